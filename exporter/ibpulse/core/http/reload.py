"""The current web configuration: users, headers, rate limit and TLS, reloaded when one of its files changes.

An invalid change is logged once, and the previous configuration stays active.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import ConfigError
from ibpulse.base.files import FileSignature, sign_file
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import sentence_list
from ibpulse.base.yaml import YamlFile
from ibpulse.core.http.web_config import TlsServer, WebConfig, build_tls, read_config
from ibpulse.core.metrics.web import WebCounts

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The active rules: `tls` of new connections, if any, users if a login is required, and the headers of responses.

    Names of headers are in lower case.
    """

    tls: TlsServer | None
    users: Mapping[str, str]
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def need_login(self) -> bool:
        """Whether every client needs a password or a certificate."""
        return bool(self.users) or (self.tls is not None and self.tls.context.verify_mode is ssl.CERT_REQUIRED)


def read_rules(path: Path) -> Rules:
    """The rules of a file and of the files it names. Weak points are logged.

    Raises:
        ConfigError: lists all errors.
    """
    return make_rules(path, *read_config(path))


def make_rules(path: Path, config: WebConfig, source: YamlFile) -> Rules:
    """The rules of a file that was read; the files it names are read now. Weak points are logged.

    Raises:
        ConfigError: lists all errors.
    """
    tls = build_tls(config.tls_server_config, source) if config.tls_server_config else None
    headers = config.http_server_config.headers.items()
    encoded = tuple((name.lower().encode(), text.encode()) for name, text in headers)
    rules = Rules(tls, dict(config.basic_auth_users), encoded)
    costs = sorted(set(map(cost_of, rules.users.values())))
    if len(costs) > 1:
        log.warning(
            "%s: basic_auth_users: the hashes have costs of %s, so the time of a refusal tells the users of the "
            "cheaper ones from names that do not exist; use one cost for all",
            path,
            sentence_list(list(map(str, costs))),
        )
    return rules


def cost_of(stored: str) -> int:
    """The cost of a bcrypt hash."""
    return int(stored[4:6])


class TokenBucket:
    """A rate limit: a burst of `burst` requests, and one more every `interval_ns`; no limit at 0."""

    def __init__(self, interval_ns: int, burst: int) -> None:
        self.interval_ns, self.burst = interval_ns, burst
        self._tokens = float(burst)
        self._filled_at_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Whether a request may pass at this time of a monotonic clock."""
        if not self.interval_ns:
            return True
        since_ns = now_ns - (now_ns if self._filled_at_ns is None else self._filled_at_ns)
        self._filled_at_ns = now_ns
        self._tokens = min(float(self.burst), self._tokens + since_ns / self.interval_ns)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class WebConfigReloader:
    """The rules of one web configuration file."""

    def __init__(self, path: Path, counts: WebCounts | None = None) -> None:
        """Read the file and the files it names, and note success or failure in `counts`. Weak points are logged.

        Raises:
            ConfigError: lists all errors.
        """
        self._path = path
        self._counts = counts or WebCounts()
        self._threads = DaemonThreads(1, "web-config")
        # the files, and their signature at the last attempt to read them
        self._files: tuple[Path, ...] = (path,)
        self._loaded: tuple[FileSignature, ...] = ()
        self.rules, self.bucket = self._load()
        self._seen: tuple[FileSignature, ...] = self._loaded
        self._counts.config_reloaded = True

    async def watch(self, errors: InternalErrors) -> None:
        """Poll the files once a second, forever, in a thread; an exception of one poll is counted in `errors`."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with errors.boundary("web"):
                await asyncio.get_running_loop().run_in_executor(self._threads, self.poll)

    def poll(self) -> None:
        """Reload files that changed, once they no longer do: several files are then completely written."""
        seen = tuple(map(sign_file, self._files))
        if seen == self._seen and seen != self._loaded:
            self._loaded = seen
            self._renew()
        self._seen = seen

    def _renew(self) -> None:
        try:
            rules, bucket = self._load()
            if (rules.tls is None) != (self.rules.tls is None):
                raise ConfigError([f"{self._path}: TLS cannot be switched on or off at run time; restart ibpulse"])
            if self.rules.need_login and not rules.need_login:
                # more often a file that was truncated or half edited than a wish
                raise ConfigError(
                    [f"{self._path}: no longer asks for a user or a certificate; restore it, or restart ibpulse"]
                )
        except ConfigError as error:
            self._counts.config_reloaded = False
            for fault in error.faults:
                log.error("web configuration not reloaded: %s", fault)
            return
        if (bucket.interval_ns, bucket.burst) != (self.bucket.interval_ns, self.bucket.burst):
            self.bucket = bucket
        self.rules = rules
        self._counts.config_reloaded = True
        log.info("reloaded the web configuration from %s", self._path)

    def _load(self) -> tuple[Rules, TokenBucket]:
        """The rules of the files. The signature is taken first, so that no later change is missed."""
        own = sign_file(self._path)
        config, source = read_config(self._path)
        section = config.tls_server_config
        others = section.files() if section else ()
        self._files = (self._path, *others)
        self._loaded = (own, *map(sign_file, others))
        rules = make_rules(self._path, config, source)
        return rules, TokenBucket(config.rate_limit.interval, config.rate_limit.burst)
