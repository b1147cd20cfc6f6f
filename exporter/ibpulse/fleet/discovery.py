"""The sources of nodes: DNS, files and HTTP. A source that fails keeps the nodes of its last good answer."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ibpulse.deadline import DaemonThreads
from ibpulse.errors import DaemonError, DiscoveryError
from ibpulse.fleet.dns_services import find_services
from ibpulse.fleet.http_peer import JSON_TYPE, HttpPeer
from ibpulse.fleet.node_config import NodeAccess, NodeConfigFile
from ibpulse.fleet.targets import (
    MAX_TARGETS,
    SCHEMES,
    Target,
    TargetGroup,
    make_targets,
    parse_address,
    read_json,
    read_yaml,
)
from ibpulse.text import escape_controls
from ibpulse.validation import show
from ibpulse.yaml_file import FileSignature, YamlFile, sign_file

REFRESH_SECONDS = 30.0
SOURCE_SECONDS = 10.0
MAX_LIST_BYTES = 8_000_000
# hung lookups and files keep their thread
MAX_THREADS = 8
FORMS = "dns+NAME:PORT, dnssrv+NAME, FILE.json, FILE.yml, or the URL of HTTP service discovery"


class TargetSource(ABC):
    """A source of nodes; `name` is as the operator wrote it. `read` may block, in a thread."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def read(self) -> tuple[Target, ...]:
        """The nodes at this moment.

        Raises:
            DiscoveryError: they cannot be read.
        """

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes at this moment, without blocking.

        Raises:
            DiscoveryError: they cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(threads, self.read)


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
        return make_targets([TargetGroup(self._host, places, {})], self.name, self._scheme)


class ServiceSource(TargetSource):
    """The hosts and ports of the SRV records of a name."""

    def __init__(self, name: str, service: str, scheme: str = "http") -> None:
        super().__init__(name)
        self._service, self._scheme = service, scheme

    def read(self) -> tuple[Target, ...]:
        """The hosts of the records, in order."""
        places = tuple(f"{record.host}:{record.port}" for record in find_services(self._service))
        return make_targets([TargetGroup(self._service, places, {})], self.name, self._scheme)


class FileSource(TargetSource):
    """A file_sd file in JSON or YAML, read again when it changes."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._seen: FileSignature = None
        self._targets: tuple[Target, ...] | None = None

    def read(self) -> tuple[Target, ...]:
        """The nodes of the file, or those of the last time if it has not changed."""
        seen = sign_file(self._path)
        if self._targets is None or seen is None or seen != self._seen:
            self._targets = None
            self._targets, self._seen = self._load(), seen
        return self._targets

    def _load(self) -> tuple[Target, ...]:
        try:
            # not waiting for a pipe
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise DiscoveryError([f"{self._path}: is not a regular file"])
                content = file.read(MAX_LIST_BYTES + 1) if self._path.suffix == ".json" else b""
        except OSError as error:
            advice = "correct its name or its permissions"
            raise DiscoveryError([f"{self._path}: cannot be read: {error.strerror}; {advice}"]) from error
        if len(content) > MAX_LIST_BYTES:
            raise DiscoveryError([f"{self._path}: is longer than {MAX_LIST_BYTES} bytes; list fewer nodes"])
        if self._path.suffix == ".json":
            return make_targets(read_json(content, str(self._path)), self.name)
        return make_targets(read_yaml(YamlFile(self._path)), self.name)


class HttpSource(TargetSource):
    """A list in JSON at a URL; `access` is for asking for the list, not for the nodes in it."""

    def __init__(self, name: str, url: str, access: NodeAccess | None = None) -> None:
        super().__init__(name)
        self._peer = HttpPeer(url, access or NodeAccess())

    def read(self) -> tuple[Target, ...]:
        """Only `ask` is possible."""
        raise NotImplementedError

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes of the list."""
        try:
            answer = await self._peer.get(max_bytes=MAX_LIST_BYTES, seconds=SOURCE_SECONDS)
        except DaemonError as error:
            raise DiscoveryError([str(error)]) from error
        if answer.media_type != JSON_TYPE:
            raise DiscoveryError([f"its answer is {show(escape_controls(answer.media_type))}, not {JSON_TYPE}"])
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, lambda: make_targets(read_json(answer.body, "answer"), self.name))


def parse_source(text: str, access: NodeAccess | None = None) -> TargetSource:
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
        _, url = parse_address(place, scheme)
        parts = urlsplit(url)
        if parts.path:
            raise ValueError(f"{show(text)} has more than a name and a port; write it like dns+NAME:PORT")
        if kind == "dnssrv":
            return ServiceSource(text, place, scheme)
        return DnsSource(text, parts.hostname or "", parts.port or 0, scheme)
    if text.startswith(("http://", "https://")):
        parse_address(text.partition("?")[0])
        if "#" in text or not text.isprintable():
            raise ValueError(f"{show(escape_controls(text))} is not a URL for a list of nodes")
        return HttpSource(text, text, access)
    if Path(text).suffix in (".json", ".yml", ".yaml"):
        return FileSource(text, Path(text))
    raise ValueError(f"{show(escape_controls(text))} is not a source of nodes; use {FORMS}")


@dataclass(slots=True)
class _Known:
    """A source, the access to its nodes, its last good answer, and why the last one was not good."""

    source: TargetSource
    config: NodeConfigFile
    targets: tuple[Target, ...] = ()
    problem: str = ""
    answered: bool = False
    running: asyncio.Task[None] | None = None


class Discovery:
    """The nodes of all sources. Of nodes with one name, that of the first source counts."""

    def __init__(self, sources: Sequence[tuple[TargetSource, NodeConfigFile]]) -> None:
        self._known = [_Known(source, config) for source, config in sources]
        self._threads = DaemonThreads(MAX_THREADS, "discovery")
        self.targets: tuple[Target, ...] = ()
        self.problems: tuple[str, ...] = ()

    def access(self, target: Target) -> NodeAccess:
        """The access to a node: that of its own source, never another one's."""
        return next(known.config.access for known in self._known if known.source.name == target.source)

    async def refresh(self) -> None:
        """Read all sources in parallel; late ones go on, and count the next time."""
        for known in self._known:
            if known.running is None or known.running.done():
                known.running = asyncio.create_task(self._read(known))
        running = [known.running for known in self._known if known.running]
        if running:
            await asyncio.wait(running, timeout=SOURCE_SECONDS)
        for known in self._known:
            if known.running and not known.running.done():
                known.problem = f"no answer within {SOURCE_SECONDS:g} s"
        self._merge()

    async def run(self) -> None:
        """Refresh every `REFRESH_SECONDS`, forever."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _read(self, known: _Known) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, known.config.poll)
        try:
            known.targets = await known.source.ask(self._threads)
            known.problem, known.answered = "", True
        except DiscoveryError as error:
            known.problem = "; ".join(error.faults)

    def _merge(self) -> None:
        found: dict[str, Target] = {}
        problems: list[str] = []
        for known in self._known:
            if known.problem:
                kept = "; the nodes of its last good answer stay" if known.answered else ""
                problems.append(f"{known.source.name}: {known.problem}{kept}")
            if known.config.problem:
                problems.append(f"{known.source.name}: {known.config.problem}")
            twice = [target.name for target in known.targets if target.name in found]
            if twice:
                problems.append(f"{known.source.name}: {twice[0]!r} is a node of an earlier source, which counts")
            for target in known.targets:
                if len(found) >= MAX_TARGETS:
                    problems.append(
                        f"{known.source.name}: more than {MAX_TARGETS} nodes in all; the others are left out"
                    )
                    break
                found.setdefault(target.name, target)
        self.targets, self.problems = tuple(found.values()), tuple(problems)
