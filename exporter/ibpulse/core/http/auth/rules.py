"""The rules of a web configuration file: TLS, users and headers, checked once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.text import sentence_list
from ibpulse.base.yaml import YamlFile
from ibpulse.core.http.auth.tls import TlsServer, build_tls
from ibpulse.core.http.auth.web_config import WebConfig, read_config

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """The active rules. `tls` is None for plain connections, `users` is empty if no login is required."""

    tls: TlsServer | None
    users: Mapping[str, str]
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def need_login(self) -> bool:
        """Whether nobody is let in without a password or a certificate."""
        return bool(self.users) or (self.tls is not None and self.tls.needs_certificate)


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
    unequal = _differing_costs(rules.users)
    if unequal:
        log.warning(
            "%s: basic_auth_users: the hashes have costs of %s, so the time of a refusal tells the users of the "
            "cheaper ones from names that do not exist; use one cost for all",
            path,
            unequal,
        )
    return rules


def _differing_costs(users: Mapping[str, str]) -> str:
    """The costs of the users' hashes as text if they differ, otherwise empty."""
    costs = sorted(set(map(cost_of, users.values())))
    return sentence_list(list(map(str, costs))) if len(costs) > 1 else ""


def cost_of(stored: str) -> int:
    """The cost of a bcrypt hash."""
    return int(stored[4:6])
