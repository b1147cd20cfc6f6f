"""GUIDs, host names, IP and MAC addresses replaced by made-up ones, the same original by the same one.

The key is random, made for one redactor and kept nowhere, so nobody can try out originals afterwards. What a pseudonym
stands for is decided by the value, however it is written: with colons, with 0x, or inside a name. It must not read.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable

_HEX = "[0-9a-fA-F]"
_GROUP = _HEX + "{4}"
_BEGIN, _END = r"(?<![0-9A-Za-z:])", r"(?![0-9A-Za-z:])"
# all at once, so that no pseudonym is taken for an original
_PATTERNS = (
    rf"{_BEGIN}(?P<gid>{_GROUP}(?::{_GROUP}){{7}}){_END}",
    rf"{_BEGIN}(?P<guid>{_GROUP}(?::{_GROUP}){{3}}){_END}",
    rf"{_BEGIN}(?P<plain>(?:0x)?{_HEX}{{16}}){_END}",
    rf"{_BEGIN}(?P<mac>{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5}}){_END}",
    # an interface or device that is named after its address, as `enxb8cef60300aa`
    r"(?<![0-9A-Za-z])(?P<named>(?:en|eth|ib|roce|rdma|iw|opa|wl|ww)x(?:[0-9a-f]{16}|[0-9a-f]{12}))(?![0-9a-z])",
    r"(?<![0-9A-Za-z.:])(?P<address>[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*[0-9A-Fa-f:])(?![0-9A-Za-z])",
)
_NAMING = re.compile("|".join(_PATTERNS))
# without IP addresses: versions of firmware look like these
_NAMING_HARDWARE = re.compile("|".join(_PATTERNS[:-1]))
_ZERO = frozenset("0:x")
LINK_LOCAL = "fe80:0000:0000:0000"
SHORTEST_HOST = 2


class Redactor:
    """Replaces what names a node or its owner.

    `hosts` are names of machines, whole or first part; what is shorter than two letters, a number or `localhost` is
    left. `versions` are texts that look like an IP address and are none.
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
        """The text without anything that names a node."""
        text = _NAMING.sub(self._replace, text)
        if self._host_pattern is None:
            return text
        return self._host_pattern.sub(lambda found: self._host(found[0]), text)

    def clean_hardware(self, text: str) -> str:
        """The text without GUIDs and MAC addresses; all else stays, so that a path stays one, and a number too."""
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

    def clean_values(self, value: object) -> object:
        """A document of dictionaries, lists and texts with every text cleaned; keys stay."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, dict):
            return {key: self.clean_values(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_values(inner) for inner in value]
        return value

    def guid(self, text: str) -> str:
        """The pseudonym of a GUID, written as the original is; one that is all zeros stays."""
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
        """Sixteen digits are a GUID when they are one that is known, or cannot be a count."""
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
            # 240.0.0.0/4 is nobody's
            return str(ipaddress.IPv4Address(0xF000_0000 | made & 0x0FFF_FFFF))
        # 2001:db8::/32 is for documents
        return str(ipaddress.IPv6Address(0x2001_0DB8 << 96 | made))

    def _digits(self, digits: str) -> str:
        """As many hexadecimal digits, of which the first two say that nobody's card has them."""
        return "02" + self._hash("digits", digits.lower())[: len(digits) - 2]

    def _hash(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind} {text}".encode(), hashlib.sha256).hexdigest()


def _digits(guid: str) -> str:
    return guid.removeprefix("0x").replace(":", "").lower()


def _is_zero(text: str) -> bool:
    return set(text) <= _ZERO


def _name_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """Every way in which the hosts may be written, in lower case, with the first part of the name; domains too."""
    found: dict[str, str] = {}
    for host in hosts:
        whole = host.strip().lower().rstrip(".")
        first, _, domain = whole.partition(".")
        for name in (whole, first, domain):
            if len(name) >= SHORTEST_HOST and not name.isdigit() and first != "localhost" and name != "localdomain":
                found[name] = domain if name == domain else first
    return found
