"""The sources of nodes: addresses and SRV records of DNS, files, and lists over HTTP."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import urlsplit

from dns.exception import DNSException, Timeout
from dns.resolver import NXDOMAIN, NoAnswer, NoNameservers, Resolver

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError, DiscoveryError
from ibpulse.base.files import FileSignature, ForeignFile, sign_file
from ibpulse.base.text import escape_controls, show
from ibpulse.base.yaml import YamlFile
from ibpulse.core.client.transport import JSON_TYPE, HttpPeer, NodeAccess
from ibpulse.gateway.nodes.targets import (
    ACCESS,
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


class TargetSource(ABC):
    """A source of nodes; `name` is as the operator wrote it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes at this moment; what blocks runs in `threads`.

        Raises:
            DiscoveryError: they cannot be read.
        """

    async def close(self) -> None:
        """Close the connections, if there are any."""
        return


class LocalSource(TargetSource):
    """A source that the system reads, which may block."""

    @abstractmethod
    def read(self) -> tuple[Target, ...]:
        """The nodes at this moment.

        Raises:
            DiscoveryError: they cannot be read.
        """

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes at this moment, read in a thread."""
        return await asyncio.get_running_loop().run_in_executor(threads, self.read)


class DnsSource(LocalSource):
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


class ServiceSource(LocalSource):
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
        places = tuple(sorted(f"{record.target.to_text(omit_final_dot=True)}:{record.port}" for record in found))
        return make_targets([TargetGroup(self._service, places, {})], self.name, self._scheme)


class FileSource(LocalSource):
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
        if self._path.suffix == ".json":
            file = ForeignFile(self._path, DiscoveryError, access=ACCESS, regular=True)
            content = file.read(MAX_LIST_BYTES, "list fewer nodes")
            return make_targets(read_json(content, str(self._path)), self.name)
        return make_targets(read_yaml(YamlFile(self._path)), self.name)


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
        return await loop.run_in_executor(threads, lambda: make_targets(read_json(answer.body, "answer"), self.name))

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
