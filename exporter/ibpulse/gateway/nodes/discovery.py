"""The nodes of all sources, read again and again. A source that fails keeps the nodes of its last good answer."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from dns.exception import DNSException, Timeout
from dns.resolver import NXDOMAIN, NoAnswer, NoNameservers, Resolver

from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import ConfigError, DaemonError, DiscoveryError
from ibpulse.base.files import FileSignature, ForeignFile, sign_file
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.text import escape_controls, show
from ibpulse.base.values import PATH, TEXT, YAML_TRUTH
from ibpulse.base.yaml import Keys, YamlFile, entry
from ibpulse.core.client.transport import JSON_TYPE, HttpPeer, NodeAccess
from ibpulse.gateway.nodes.targets import (
    ACCESS,
    MAX_TARGETS,
    SCHEMES,
    Target,
    TargetGroup,
    make_targets,
    parse_address,
    read_json,
    read_yaml,
)

SOURCE_SECONDS = 10.0
MAX_LIST_BYTES = 8_000_000
FORMS = "dns+NAME:PORT, dnssrv+NAME, FILE.json, FILE.yml, or the URL of HTTP service discovery"
SRV_FAULTS: dict[type[DNSException], str] = {
    NXDOMAIN: "there is no such name",
    NoAnswer: "the name has no SRV records",
    NoNameservers: "the name server fails or refuses",
    Timeout: "the name server does not answer",
}
EXAMPLE = "basic_auth: {username: gateway, password_file: password}"
MAX_SECRET_BYTES = 4096
REFRESH_SECONDS = 30.0
# hung lookups and files keep their thread
MAX_THREADS = 8


class TargetSource:
    """A source of nodes, with its last good answer and why the last one was not good.

    `name` is as the operator wrote it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.targets: tuple[Target, ...] = ()
        self.problem = ""
        self.answered_at: float | None = None
        self.notices: tuple[str, ...] = ()
        self.failures = 0
        self.running: asyncio.Task[None] | None = None

    def read(self) -> tuple[Target, ...]:
        """The nodes at this moment. May block.

        Raises:
            DiscoveryError: they cannot be read.
        """
        raise NotImplementedError

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes at this moment; what blocks runs in `threads`.

        Raises:
            DiscoveryError: they cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(threads, self.read)

    async def close(self) -> None:
        """Close the connections, if there are any."""
        return


class DnsSource(TargetSource):
    """All addresses of a host name, such as those of a headless Service, at one port."""

    def __init__(self, name: str, host: str, port: int, scheme: str = "http") -> None:
        super().__init__(name)
        self._host, self._port, self._scheme = host, port, scheme

    def read(self) -> tuple[Target, ...]:
        """The addresses of the name, in order."""
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise DiscoveryError([f"{self._host} cannot be resolved: {error.strerror}"]) from error
        hosts = sorted({str(address[0]) for *_, address in found})
        places = tuple(f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts)
        return make_targets([TargetGroup(self._host, places, {})], self._scheme)


class ServiceSource(TargetSource):
    """The hosts and ports of the SRV records of a name."""

    def __init__(self, name: str, service: str, scheme: str = "http") -> None:
        super().__init__(name)
        self._service, self._scheme = service, scheme

    def read(self) -> tuple[Target, ...]:
        """The hosts of the records, in order."""
        try:
            # a new one reads resolv.conf, which may have changed since the last lookup
            found = Resolver().resolve(self._service, "SRV", search=True)
        except DNSException as error:
            reasons = (reason for kind, reason in SRV_FAULTS.items() if isinstance(error, kind))
            reason = next(reasons, f"the lookup failed: {error}")
            raise DiscoveryError([f"{self._service} cannot be resolved: {reason}"]) from error
        # a server may have several priorities
        places = tuple(sorted({f"{record.target.to_text(omit_final_dot=True)}:{record.port}" for record in found}))
        return make_targets([TargetGroup(self._service, places, {})], self._scheme)


class FileSource(TargetSource):
    """A file_sd file in JSON or YAML, read again when it changes."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._seen: FileSignature = None
        self._known: tuple[Target, ...] | None = None

    def read(self) -> tuple[Target, ...]:
        """The nodes of the file, or those of the last time if it has not changed."""
        seen = sign_file(self._path)
        if self._known is None or seen is None or seen != self._seen:
            self._known = None
            self._known, self._seen = self._load(), seen
        return self._known

    def _load(self) -> tuple[Target, ...]:
        if self._path.suffix == ".json":
            file = ForeignFile(self._path, DiscoveryError, access=ACCESS, regular=True)
            content = file.read(MAX_LIST_BYTES, "list fewer nodes")
            return make_targets(read_json(content, str(self._path)))
        return make_targets(read_yaml(YamlFile(self._path)))


class HttpSource(TargetSource):
    """A list in JSON at a URL, which is asked for without the password of the nodes in it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._peer = HttpPeer(url, NodeAccess())

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes of the list."""
        try:
            answer = await self._peer.get(max_bytes=MAX_LIST_BYTES, seconds=SOURCE_SECONDS)
        except DaemonError as error:
            raise DiscoveryError([str(error)]) from error
        if answer.media_type != JSON_TYPE:
            raise DiscoveryError([f"its answer is {show(escape_controls(answer.media_type))}, not {JSON_TYPE}"])
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, lambda: make_targets(read_json(answer.body, "answer")))

    async def close(self) -> None:
        """Close the connections."""
        await self._peer.close()


def parse_source(text: str) -> TargetSource:
    """The source of a text: `dns+NAME:PORT`, `dns+https://NAME:PORT`, `dnssrv+NAME`, a file, or a URL.

    Raises:
        ValueError: it is none of them.
    """
    kind, plus, rest = text.partition("+")
    if plus and kind in ("dns", "dnssrv"):
        given, separator, place = rest.rpartition("://")
        if separator and given not in SCHEMES:
            raise ValueError(f"{show(given)} is not a scheme for nodes; use http or https")
        scheme = given or "http"
        host, url = parse_address(place, scheme)
        parts = urlsplit(url)
        if kind == "dnssrv":
            if place.lower() != host:
                raise ValueError(f"{show(text)} has more than a name; write it like dnssrv+_http._tcp.NAME")
            return ServiceSource(text, host, scheme)
        if parts.path:
            raise ValueError(f"{show(text)} has more than a name and a port; write it like dns+NAME:PORT")
        return DnsSource(text, host, parts.port or 0, scheme)
    if text.startswith(("http://", "https://")):
        parse_address(text.partition("?")[0])
        if "#" in text or not text.isprintable():
            raise ValueError(f"{show(escape_controls(text))} is not a URL for a list of nodes")
        return HttpSource(text)
    if Path(text).suffix in (".json", ".yml", ".yaml"):
        return FileSource(text, Path(text))
    raise ValueError(f"{show(escape_controls(text))} is not a source of nodes; use {FORMS}")


@dataclass(frozen=True, slots=True)
class BasicAuthSection:
    """`basic_auth`: the user, and the password inline or in a file."""

    username: str | None = entry(TEXT)
    password: str | None = entry(TEXT, secret=True)
    password_file: Path | None = entry(PATH)


@dataclass(frozen=True, slots=True)
class ClientTlsSection:
    """`tls_config`: the authority of the nodes, the gateway's own certificate, the name in the nodes' certificates."""

    ca_file: Path | None = entry(PATH)
    cert_file: Path | None = entry(PATH)
    key_file: Path | None = entry(PATH)
    server_name: str | None = entry(TEXT)
    insecure_skip_verify: bool = entry(YAML_TRUTH, False)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The whole file."""

    basic_auth: BasicAuthSection | None = entry(BasicAuthSection)
    tls_config: ClientTlsSection | None = entry(ClientTlsSection)


class NodeConfigFile:
    """The access of one file; without a path, that of a source without passwords."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file. Blocks.

        Raises:
            ConfigError: lists all faults, with file, line and key.
        """
        self.path = path
        self.problem = ""
        self._files: tuple[Path, ...] = ()
        self._seen: tuple[FileSignature, ...] = ()
        # several sources have the same file, and are read in parallel
        self._lock = threading.Lock()
        self.access = NodeAccess() if path is None else self._load(path)

    def poll(self) -> bool:
        """Read the files again if one changed; whether there is a new access. Blocks."""
        with self._lock:
            if self.path is None or tuple(map(sign_file, self._files)) == self._seen:
                return False
            try:
                self.access, self.problem = self._load(self.path), ""
            except ConfigError as error:
                self.problem = f"{'; '.join(error.faults)}; the previous configuration stays active"
                return False
            return True

    def _load(self, path: Path) -> NodeAccess:
        config, source = read_node_config(path)
        auth, tls = config.basic_auth, config.tls_config
        named = (*([auth.password_file] if auth else ()), *([tls.ca_file, tls.cert_file, tls.key_file] if tls else ()))
        # before the files are read, so that no later change is missed
        self._files = (path, *(file for file in named if file))
        self._seen = tuple(map(sign_file, self._files))
        authorization = _make_authorization(auth, source) if auth else ""
        server_name = (tls and tls.server_name) or ""
        return NodeAccess(_make_tls(tls, source), server_name, authorization, verified_only=tls is not None)


def read_node_config(path: Path) -> tuple[NodeConfig, YamlFile]:
    """The checked file, and the line of each key; the files that it names are not opened.

    Raises:
        ConfigError: lists all faults.
    """
    file = YamlFile(path)
    texts = file.read_texts("correct the path or the file's permissions", EXAMPLE)
    texts = {key: content for key, content in texts.items() if content}
    config = file.read_section(NodeConfig, texts)
    if not file.faults and not texts:
        file.faults.append(f"{path}: is empty; write basic_auth or tls_config, or do not name the file")
    if not file.faults:
        file.faults += (f"{file.place(keys)}: {sentence}" for keys, sentence in _find_contradictions(config))
    if file.faults:
        raise ConfigError(file.faults)
    return config, file


def _find_contradictions(config: NodeConfig) -> Iterator[tuple[Keys, str]]:
    auth, tls = config.basic_auth, config.tls_config
    if auth and (not auth.username or ":" in auth.username or not auth.username.isprintable()):
        yield ("basic_auth", "username"), "give a name of printable characters without a colon"
    if auth and (auth.password is None) == (auth.password_file is None):
        yield ("basic_auth", "password_file"), "give either password_file or password"
    if tls and (tls.cert_file is None) != (tls.key_file is None):
        yield ("tls_config", "key_file"), "cert_file and key_file belong together; give both or none"
    if tls and tls.insecure_skip_verify:
        advice = "is not supported, because any server could then collect the password; give ca_file"
        yield ("tls_config", "insecure_skip_verify"), advice


def _make_authorization(auth: BasicAuthSection, source: YamlFile) -> str:
    password = auth.password
    if auth.password_file:
        password = _read_secret(auth.password_file, source.place(("basic_auth", "password_file")))
    return f"Basic {base64.b64encode(f'{auth.username}:{password}'.encode()).decode()}"


def _read_secret(path: Path, place: str) -> str:
    """The only line of a file."""
    file = ForeignFile(path, ConfigError, f"{place}:", "correct the path or the file")
    text = file.read_text(MAX_SECRET_BYTES, "write the password into it, in one line").strip()
    if not text or escape_controls(text) != text:
        file.refuse("is not a password", "write it into the file, in one line")
    return text


def _make_tls(tls: ClientTlsSection | None, source: YamlFile) -> ssl.SSLContext:
    """The context with which nodes are verified; without `ca_file`, by the authorities of the system."""
    if tls is None:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ValueError) as error:
        place = source.place(("tls_config", "ca_file"))
        raise ConfigError([f"{place}: {tls.ca_file} has no usable certificate: {_reason(error)}"]) from error
    if tls.cert_file and tls.key_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            place = source.place(("tls_config", "cert_file"))
            pair = f"{tls.cert_file} and {tls.key_file}"
            raise ConfigError([f"{place}: {pair} are not a certificate and its key: {_reason(error)}"]) from error
    return context


def _refuse_passphrase() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source by name: the number of its nodes, its problem or an empty text, and the age of its last good answer."""

    name: str
    nodes: int
    problem: str
    age_seconds: float | None


class Discovery:
    """The nodes of all sources. Of nodes with one name, that of the first source counts."""

    def __init__(
        self,
        sources: Sequence[TargetSource],
        config: NodeConfigFile | None = None,
        errors: InternalErrors | None = None,
        clock: Clock = time,
    ) -> None:
        self._sources, self._config, self._clock = sources, config or NodeConfigFile(), clock
        self._errors = errors or InternalErrors(parts=GATEWAY_PARTS)
        self._threads = DaemonThreads(MAX_THREADS, "discovery")
        self.targets: tuple[Target, ...] = ()
        self.asked = asyncio.Event()
        """Set once a source has listed nodes, or all were asked."""

    def sources(self) -> tuple[SourceState, ...]:
        """The sources in their order."""
        now = self._clock.monotonic()
        return tuple(
            SourceState(
                source.name,
                len(source.targets),
                "; ".join(self._problems(source)),
                None if source.answered_at is None else now - source.answered_at,
            )
            for source in self._sources
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of the sources, as sentences."""
        return tuple(f"{source.name}: {problem}" for source in self._sources for problem in self._problems(source))

    def _problems(self, source: TargetSource) -> tuple[str, ...]:
        kept = "; the nodes of its last good answer stay" if source.problem and source.answered_at is not None else ""
        return tuple(filter(None, (source.problem + kept, self._config.problem, *source.notices)))

    def failures(self) -> dict[str, int]:
        """Failed readings of each source."""
        return {source.name: source.failures for source in self._sources}

    @property
    def access(self) -> NodeAccess:
        """The access to all nodes."""
        return self._config.access

    async def refresh(self) -> None:
        """Read all sources in parallel. What each lists counts at once; late ones go on."""
        for source in self._sources:
            if source.running is None or source.running.done():
                source.running = asyncio.create_task(self._read(source))
        running = [source.running for source in self._sources if source.running]
        if running:
            await asyncio.wait(running, timeout=SOURCE_SECONDS)
        for source in self._sources:
            if source.running and not source.running.done():
                source.problem = f"no answer within {SOURCE_SECONDS:g} s"
            source.failures += bool(source.problem)
        self._merge()

    async def run(self) -> None:
        """Refresh every `REFRESH_SECONDS`, forever. New problems are logged."""
        known: tuple[str, ...] = ()
        while True:
            with self._errors.boundary("discovery"):
                await self.refresh()
            self.asked.set()
            problems = self.problems
            for problem in problems:
                if problem not in known:
                    log.warning("%s", problem)
            known = problems
            await asyncio.sleep(REFRESH_SECONDS)

    async def close(self) -> None:
        """End what still reads, and close all connections."""
        for source in self._sources:
            if source.running:
                source.running.cancel()
                await asyncio.gather(source.running, return_exceptions=True)
            await source.close()

    async def _read(self, source: TargetSource) -> None:
        problem = "internal error of the gateway; see its log"
        with self._errors.boundary("discovery", source.name):
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._config.poll)
                source.targets = await source.ask(self._threads)
                problem, source.answered_at = "", self._clock.monotonic()
            except DiscoveryError as error:
                problem = "; ".join(error.faults)
        source.problem = problem
        with self._errors.boundary("discovery"):
            self._merge()

    def _merge(self) -> None:
        found: dict[str, Target] = {}
        for source in self._sources:
            new = {target.name: target for target in source.targets if target.name not in found}
            twice = next((target.name for target in source.targets if target.name in found), None)
            notices = [] if twice is None else [f"{twice!r} is a node of an earlier source, which counts"]
            if len(found) + len(new) > MAX_TARGETS:
                notices.append(f"more than {MAX_TARGETS} nodes in all; the others are left out")
            found |= islice(new.items(), MAX_TARGETS - len(found))
            source.notices = tuple(notices)
        self.targets = tuple(found.values())
        if found:
            self.asked.set()


def make_discovery(texts: Sequence[str], config_file: Path | None, errors: InternalErrors | None = None) -> Discovery:
    """The discovery of the sources that `nodes.sources` lists, which all have the access of `nodes.config.file`.

    Raises:
        ConfigError: a source or that file is invalid.
    """
    config = NodeConfigFile(config_file)
    sources, faults = [], []
    for text in texts:
        try:
            sources.append(parse_source(text))
        except ValueError as error:
            faults.append(f"nodes.sources: {error}")
    faults += (
        f"nodes.sources: {show(text)} is given twice; give each source of nodes once"
        for text, count in Counter(texts).items()
        if count > 1
    )
    if faults:
        raise ConfigError(faults)
    return Discovery(sources, config, errors)
