"""Nodes to ask, and lists of them in the format that Prometheus reads (file_sd, HTTP SD), checked strictly."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from ibpulse.base.errors import DiscoveryError
from ibpulse.base.text import escape_controls, show
from ibpulse.base.yaml import YamlFile, is_empty, is_scalar, is_sequence, text_of, texts_of
from ibpulse.core.answers.node import is_node_name
from ibpulse.core.defaults import DEFAULT_PORT

if TYPE_CHECKING:
    import yaml

MAX_TARGETS = 5000
MAX_LABELS = 32
MAX_TEXT = 256
MAX_ADDRESS = 512
ACCESS = "correct its name or its permissions"
MAX_FAULTS = 10
SCHEMES = ("http", "https")
NODE_LABEL, SCHEME_LABEL = "node", "__scheme__"
EXAMPLE = "[{targets: [node1:10055], labels: {node: node1, rack: r1}}]"

_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?", re.ASCII)
_PREFIX = re.compile(r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._~-]+)*/?", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}", re.ASCII)
_VISIBLE = re.compile("[!-~]+")


@dataclass(frozen=True, slots=True)
class Target:
    """A node: its name, the URL of its daemon without a slash at the end, and its labels.

    `named` is false if the source gives only an address, which is then the name.
    """

    name: str
    url: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    named: bool = True

    @property
    def key(self) -> str:
        """Its identity, also if a node without a name gets one."""
        return self.name if self.named else self.url


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """An entry of a list: addresses that share labels, and its place in the list for messages."""

    place: str
    addresses: tuple[str, ...]
    labels: Mapping[str, str]


def make_target(address: str, labels: Mapping[str, str], scheme: str = "http") -> Target:
    """The node at `host`, `host:port` or a URL. Its name is the label `node`, or else the host.

    Labels that begin with two underscores are dropped, except `__scheme__`, which replaces `scheme`.

    Raises:
        ValueError: the address, the name or a label cannot be used.
    """
    _check_labels(labels)
    host, url = parse_address(address, labels.get(SCHEME_LABEL, scheme))
    name = labels.get(NODE_LABEL, host)
    if not is_node_name(name):
        raise ValueError(f"the name {show(escape_controls(name))} is not one for a node; use letters, digits, . _ - :")
    kept = {key: text for key, text in labels.items() if key != NODE_LABEL and not key.startswith("__")}
    return Target(name, url, kept, named=NODE_LABEL in labels or not is_address(host))


def parse_address(address: str, scheme: str = "http") -> tuple[str, str]:
    """Host and URL of `host`, `host:port` or a URL with a prefix, without a slash at the end.

    Raises:
        ValueError: it is not an address, has another scheme than http or https, or a user, a query or a fragment.
    """
    shown = show(escape_controls(address[:MAX_ADDRESS]))
    if len(address) > MAX_ADDRESS or not _VISIBLE.fullmatch(address):
        raise ValueError(f"{shown} is not an address; write it like node1:{DEFAULT_PORT}")
    try:
        parts = urlsplit(address if "://" in address else f"{scheme}://{address}")
        host, port = parts.hostname or "", DEFAULT_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise ValueError(f"{shown} is not an address; write it like node1:{DEFAULT_PORT}") from error
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{show(parts.scheme)} is not a scheme for nodes; use http or https")
    if "@" in parts.netloc:
        # the text may be a password, which no log should show
        raise ValueError("an address has a user name; put it into the node configuration file of the source instead")
    if "?" in address or "#" in address or not _PREFIX.fullmatch(parts.path):
        raise ValueError(f"{shown} has more than a host, a port and a plain path; write it like node1:{DEFAULT_PORT}")
    if not _is_host(host) or not 0 < port < 65536:
        raise ValueError(f"{shown} is not an address; write it like node1:{DEFAULT_PORT}")
    place = f"[{host}]" if ":" in host else host
    return host, f"{parts.scheme}://{place}:{port}{parts.path.rstrip('/')}"


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_host(text: str) -> bool:
    if ":" not in text:
        return _HOST.fullmatch(text) is not None
    try:
        return "%" not in text and bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise ValueError(f"has {len(labels)} labels; use at most {MAX_LABELS}")
    for name, text in labels.items():
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{show(escape_controls(name))} is not a name of a label; use letters, digits and _")
        if len(text) > MAX_TEXT or escape_controls(text) != text:
            raise ValueError(f"the label {name} is longer than {MAX_TEXT} characters, or has control characters")
    scheme = labels.get(SCHEME_LABEL, "http")
    if scheme not in SCHEMES:
        raise ValueError(f"{show(scheme)} is not a scheme for nodes; use http or https")


def make_targets(groups: Iterable[TargetGroup], scheme: str = "http") -> tuple[Target, ...]:
    """The nodes of a list.

    Raises:
        DiscoveryError: an entry cannot be used, two nodes have one name, or there are more than `MAX_TARGETS`.
    """
    found: dict[str, Target] = {}
    faults: list[str] = []
    for group in groups:
        for address in group.addresses:
            try:
                target = make_target(address, group.labels, scheme)
                if target.name in found:
                    raise ValueError(f"a second node is called {target.name!r}; give each its own label {NODE_LABEL}")
                found[target.name] = target
            except ValueError as error:
                faults.append(f"{group.place}: {error}")
            if len(found) > MAX_TARGETS:
                raise DiscoveryError([f"{group.place}: more than {MAX_TARGETS} nodes; list fewer"])
            if len(faults) >= MAX_FAULTS:
                raise DiscoveryError(faults)
    if faults:
        raise DiscoveryError(faults)
    return tuple(found.values())


def read_json(content: bytes, place: str) -> Iterator[TargetGroup]:
    """The entries of a list in JSON.

    Raises:
        DiscoveryError: it is not JSON, or not such a list.
    """
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DiscoveryError([f"{place}: not JSON: {error}"]) from error
    if not isinstance(document, list):
        raise DiscoveryError([f"{place}: is not a list; write it like {EXAMPLE}"])
    for number, entry in enumerate(document, 1):
        where = f"{place}: entry {number}"
        if not isinstance(entry, dict) or not {"targets"} <= entry.keys() <= {"targets", "labels"}:
            raise DiscoveryError([f"{where}: is not an object of targets and labels; write it like {EXAMPLE}"])
        addresses, labels = entry["targets"], entry.get("labels")
        labels = {} if labels is None else labels
        if not isinstance(addresses, list) or not all(isinstance(text, str) for text in addresses):
            raise DiscoveryError([f"{where}: targets is not a list of texts; write it like {EXAMPLE}"])
        if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
            raise DiscoveryError([f"{where}: labels is not an object of texts; write it like {EXAMPLE}"])
        yield TargetGroup(where, tuple(addresses), labels)


def read_yaml(file: YamlFile) -> Iterator[TargetGroup]:
    """The entries of a list in a YAML file.

    Raises:
        DiscoveryError: it cannot be read, is not YAML, or not such a list.
    """
    root = file.compose(ACCESS, regular=True)
    if not file.faults and root is None:
        # a file that is being written is empty at first
        file.refuse(1, "is empty; write [] if there are no nodes")
    elif root is not None and not is_sequence(root):
        file.refuse(root.start_mark.line + 1, f"is not a list; write it like {EXAMPLE}")
    for node in root.value if is_sequence(root) else ():
        yield _read_entry(file, node)
    if file.faults:
        raise DiscoveryError(file.faults[:MAX_FAULTS])


def _read_entry(file: YamlFile, node: yaml.Node) -> TargetGroup:
    line = node.start_mark.line + 1
    members = {entry.name: entry for entry in file.mapping_entries(node, "entry", EXAMPLE)}
    for name in members.keys() - {"targets", "labels"}:
        file.refuse(members[name].line, f"{show(escape_controls(name))}: no such key; use targets and labels")
    targets, labels = members.get("targets"), members.get("labels")
    listed = texts_of(targets.value) if targets else None
    if not isinstance(listed, tuple):
        file.refuse(line, f"targets is not a list of texts; write it like {EXAMPLE}")
        listed = ()
    read: dict[str, str] = {}
    if labels and not is_empty(labels.value):
        entries = list(file.mapping_entries(labels.value, "labels", EXAMPLE))
        if not all(is_scalar(entry.value) for entry in entries):
            file.refuse(labels.line, f"labels is not a mapping of texts; write it like {EXAMPLE}")
        read = {entry.name: text_of(entry.value) for entry in entries}
    if file.faults:
        raise DiscoveryError(file.faults[:MAX_FAULTS])
    return TargetGroup(f"{file.path}:{line}", listed, read)
