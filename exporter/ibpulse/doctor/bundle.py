"""Writes a bundle: everything that a maintainer needs from a node, in one redacted archive."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import io
import ipaddress
import json
import os
import re
import secrets
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ibpulse.doctor.tree_copy import TreeCopy
from ibpulse.errors import ConfigError
from ibpulse.events.event import Event, to_json

_HEX = "[0-9a-fA-F]"
_GROUP = _HEX + "{4}"
_BEGIN, _END = r"(?<![0-9A-Za-z:])", r"(?![0-9A-Za-z:])"
# one combined expression, so that no pseudonym is mistaken for an original
_PATTERNS = (
    rf"{_BEGIN}(?P<gid>{_GROUP}(?::{_GROUP}){{7}}){_END}",
    rf"{_BEGIN}(?P<guid>{_GROUP}(?::{_GROUP}){{3}}){_END}",
    rf"{_BEGIN}(?P<plain>(?:0x)?{_HEX}{{16}}){_END}",
    rf"{_BEGIN}(?P<mac>{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5}}){_END}",
    # an interface or device named after its address, such as `enxb8cef60300aa`
    r"(?<![0-9A-Za-z])(?P<named>(?:en|eth|ib|roce|rdma|iw|opa|wl|ww)x(?:[0-9a-f]{16}|[0-9a-f]{12}))(?![0-9a-z])",
    r"(?<![0-9A-Za-z.:])(?P<address>[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*[0-9A-Fa-f:])(?![0-9A-Za-z])",
)
_NAMING = re.compile("|".join(_PATTERNS))
# without IP addresses, because firmware versions look like them
_NAMING_HARDWARE = re.compile("|".join(_PATTERNS[:-1]))
_ZERO = frozenset("0:x")
LINK_LOCAL = "fe80:0000:0000:0000"
SHORTEST_HOST = 2
TOP = "ibpulse-bundle"
GUID_FILES = frozenset({"node_guid", "sys_image_guid"})
DESCRIPTION_FILE = "node_desc"
VERSION_FILES = frozenset({"fw_ver"})
MAX_EVENTS_BYTES = 2_000_000


class Redactor:
    """Replaces everything that identifies a node or its owner by pseudonyms.

    `hosts` are host names, full or first part; names shorter than two letters, numbers and `localhost` are kept.
    `versions` are texts that look like an IP address but are not.
    """

    def __init__(self, hosts: Iterable[str] = (), guids: Iterable[str] = (), versions: Iterable[str] = ()) -> None:
        self._versions = frozenset(versions)
        self._key = secrets.token_bytes(32)
        self._guids = {_digits(guid) for guid in guids if not _is_zero(guid)}
        self._hosts = _name_hosts(hosts)
        names = sorted(self._hosts, key=len, reverse=True)
        self._host_pattern = (
            re.compile(rf"(?<![0-9A-Za-z_])(?:{'|'.join(map(re.escape, names))})(?![0-9A-Za-z_])", re.IGNORECASE)
            if names
            else None
        )

    def clean(self, text: str) -> str:
        """The text with everything that identifies a node replaced."""
        text = _NAMING.sub(self._replace, text)
        if self._host_pattern is None:
            return text
        return self._host_pattern.sub(lambda found: self._host(found[0]), text)

    def clean_hardware(self, text: str) -> str:
        """The text with GUIDs and MAC addresses replaced; paths and numbers stay valid."""
        return _NAMING_HARDWARE.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        text, kind = found[0], found.lastgroup
        if kind == "gid":
            return self._gid(text)
        if kind == "guid":
            return self.guid(text)
        if kind == "plain":
            return self._plain_guid(text)
        if kind == "mac":
            return self._mac(text)
        if kind == "named":
            prefix, _, digits = text.partition("x")
            return f"{prefix}x{self._digits(digits)}"
        return self._address(text)

    def clean_values(self, value: object, *, keys: bool = False) -> object:
        """A document of dictionaries, lists and texts with every text cleaned; keys only if asked for."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, dict):
            return {
                self.clean(key) if keys else key: self.clean_values(inner, keys=keys) for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.clean_values(inner, keys=keys) for inner in value]
        return value

    def guid(self, text: str) -> str:
        """The pseudonym of a GUID, in the notation of the original; an all-zero GUID is kept."""
        if _is_zero(text):
            return text
        digits = self._digits(_digits(text))
        if ":" in text:
            return ":".join(digits[place : place + 4] for place in range(0, 16, 4))
        return ("0x" if text.startswith("0x") else "") + digits

    def host(self, text: str) -> str:
        """The pseudonym of a host."""
        return f"host-{self._hash('host', text.lower())[:8]}"

    def _host(self, text: str) -> str:
        return self.host(self._hosts.get(text.lower(), text))

    def _plain_guid(self, text: str) -> str:
        """Sixteen digits are a GUID if the GUID is known, or if they cannot be a count."""
        digits = _digits(text)
        known = digits in self._guids or text.startswith("0x") or not digits.isdigit()
        return self.guid(text) if known else text

    def _gid(self, text: str) -> str:
        if _is_zero(text):
            return text
        prefix, suffix = text[:19], text[20:]
        return f"{prefix if prefix.lower() == LINK_LOCAL else self.guid(prefix)}:{self.guid(suffix)}"

    def _mac(self, text: str) -> str:
        digits = re.sub("[:-]", "", text).lower()
        if set(digits) <= {"0"} or set(digits) == {"f"}:
            return text
        made = self._digits(digits)
        return ":".join(made[place : place + 2] for place in range(0, 12, 2))

    def _address(self, text: str) -> str:
        if text in self._versions:
            return text
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            # the end of a sentence, or a port after the address
            rest = text.rstrip(".:")
            if rest != text:
                return self._address(rest) + text[len(rest) :]
            host, colon, port = text.rpartition(":")
            return self._address(host) + colon + port if "." in host and port.isdigit() else text
        if address.is_loopback or address.is_unspecified:
            return text
        made = int(self._hash("address", address.exploded)[:12], 16)
        if address.version == 4:
            # 240.0.0.0/4 is reserved
            return str(ipaddress.IPv4Address(0xF000_0000 | made & 0x0FFF_FFFF))
        # 2001:db8::/32 is reserved for documentation
        return str(ipaddress.IPv6Address(0x2001_0DB8 << 96 | made))

    def _digits(self, digits: str) -> str:
        """The same number of hexadecimal digits; the first two mark an address that no card has."""
        return "02" + self._hash("digits", digits.lower())[: len(digits) - 2]

    def _hash(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind} {text}".encode(), hashlib.sha256).hexdigest()


def _digits(guid: str) -> str:
    return guid.removeprefix("0x").replace(":", "").lower()


def _is_zero(text: str) -> bool:
    return set(text) <= _ZERO


def _name_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """All spellings of the hosts and their domains in lower case, each with its first part."""
    found: dict[str, str] = {}
    for host in hosts:
        whole = host.strip().lower().rstrip(".")
        first, _, domain = whole.partition(".")
        for name in (whole, first, domain):
            if len(name) >= SHORTEST_HOST and not name.isdigit() and first != "localhost" and name != "localdomain":
                found[name] = domain if name == domain else first
    return found


README = """\
A bundle of `ibpulse doctor`.

sys/             the part of the node's sysfs that ibpulse reads, at one instant. Use it as a fixture:
                 ibpulse serve --path.sysfs=sys
                 A file that could not be read contains "N/A (no PMA)".
unreadable.json  these files, with the reason
doctor.txt       the findings of doctor
doctor.json      the same as JSON
settings.yaml    the settings
versions.json    the versions of ibpulse, Python and the kernel
events.jsonl     the newest events of the running daemon, one per line

GUIDs, host names, IP and MAC addresses are replaced by pseudonyms, the same original by the same pseudonym everywhere.
They were made with a random key that was not stored. GIDs, keys, LIDs and serial numbers are not included, and neither
are reasons and labels of captures. Names of
devices and interfaces, PCI addresses, firmware versions and counts are unchanged. Review the bundle before sharing it.
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a bundle before redaction; `hosts` are the names of the node.

    Of `events` the newest are written, at most `MAX_EVENTS_BYTES`.
    """

    tree: TreeCopy
    page: str
    document: Mapping[str, object]
    settings: Mapping[str, object]
    versions: Mapping[str, object]
    hosts: tuple[str, ...] = ()
    events: Sequence[Event] = ()


def write_bundle(path: Path, contents: Contents) -> None:
    """Write the bundle to `path`, readable only by its owner.

    Raises:
        ConfigError: the file cannot be written.
    """
    data = io.BytesIO()
    # without a file name, which may contain the name of the node
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=data, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, content in _list_members(contents):
            archive.addfile(member, None if content is None else io.BytesIO(content))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data.getvalue())
    except OSError as error:
        raise ConfigError([f"--bundle: cannot write {path}: {error.strerror}; choose another file"]) from error


def _list_members(contents: Contents) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    tree = contents.tree
    guids, versions = _find_texts(tree, GUID_FILES), _find_texts(tree, VERSION_FILES)
    redactor = Redactor((*contents.hosts, *_find_hosts(tree)), guids, versions)
    yield _folder(TOP), None
    for name, text in (
        ("README.txt", README),
        ("doctor.txt", redactor.clean(contents.page)),
        ("doctor.json", _write_json(redactor.clean_values(contents.document))),
        ("settings.yaml", _write_yaml(redactor.clean_values(contents.settings))),
        ("versions.json", _write_json(redactor.clean_values(contents.versions))),
        ("unreadable.json", _write_json(_clean_reasons(tree, redactor))),
        ("events.jsonl", _write_events(contents.events, redactor)),
    ):
        yield _file(f"{TOP}/{name}", text)
    yield from _list_tree(tree, redactor)


def _list_tree(tree: TreeCopy, redactor: Redactor) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Folders, outer ones first, then files, then links."""
    above = {str(part) for path in (*tree.files, *tree.links, *tree.folders) for part in PurePosixPath(path).parents}
    for folder in sorted(above | tree.folders, key=lambda path: path.split("/")):
        yield _folder(_place(folder, redactor)), None
    for path, text in tree.files.items():
        yield _file(_place(path, redactor), _clean_file(path, text, redactor))
    for path, target in tree.links.items():
        link = tarfile.TarInfo(_place(path, redactor))
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, redactor.clean_hardware(target), 0o777
        yield link, None


def _place(path: str, redactor: Redactor) -> str:
    return f"{TOP}/sys" if path == "." else f"{TOP}/sys/{redactor.clean_hardware(path)}"


def _clean_file(path: str, text: str, redactor: Redactor) -> str:
    name = PurePosixPath(path).name
    if name in GUID_FILES:
        return f"{redactor.guid(text.strip())}\n"
    if name == DESCRIPTION_FILE:
        # free text, any part of which may identify the node
        return f"{redactor.host(text.strip())}\n"
    return redactor.clean_hardware(text)


def _clean_reasons(tree: TreeCopy, redactor: Redactor) -> dict[str, str]:
    return {redactor.clean_hardware(path): redactor.clean(reason) for path, reason in tree.unreadable.items()}


def _write_events(events: Sequence[Event], redactor: Redactor) -> str:
    """The newest events as JSON, one per line, in the order of the log."""
    lines: list[str] = []
    room = MAX_EVENTS_BYTES
    for event in reversed(events):
        # reasons and labels of captures are free text, any part of which may identify the node
        known = replace(event, text="", details={}) if event.kind == "capture" else event
        line = json.dumps(redactor.clean_values(to_json(known), keys=True)) + "\n"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return "".join(reversed(lines))


def _find_hosts(tree: TreeCopy) -> Iterator[str]:
    """First words of `node_desc`, by convention the host name."""
    types = _find_texts(tree, frozenset({"hca_type"}))
    for text in _find_texts(tree, frozenset({DESCRIPTION_FILE})):
        words = text.split()
        if words and words[0] not in types:
            yield words[0]


def _find_texts(tree: TreeCopy, names: frozenset[str]) -> list[str]:
    """The contents of the files of these names."""
    return [text.strip() for path, text in tree.files.items() if PurePosixPath(path).name in names]


def _write_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _write_yaml(value: object) -> str:
    import yaml  # slower to import than the rest of this module together

    return str(yaml.safe_dump(value, sort_keys=False))


def _folder(name: str) -> tarfile.TarInfo:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return folder


def _file(name: str, text: str) -> tuple[tarfile.TarInfo, bytes]:
    content = text.encode()
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), 0o644
    return file, content
