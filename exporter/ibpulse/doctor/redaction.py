"""Replaces everything that identifies a node, its hardware, its owner or its users by pseudonyms."""

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
# one combined expression, so that no pseudonym is mistaken for an original
_PATTERNS = (
    # an address of IP over InfiniBand (RFC 4391, 9.1.1): flags, queue pair, GID
    rf"{_BEGIN}(?P<ipoib>{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{19}}|(?:0x)?{_HEX}{{40}}){_END}",
    rf"{_BEGIN}(?P<uuid>{_HEX}{{8}}(?:-{_GROUP}){{3}}-{_HEX}{{12}}){_END}",
    rf"{_BEGIN}(?P<gid>{_GROUP}(?::{_GROUP}){{7}}){_END}",
    rf"{_BEGIN}(?P<guid>{_GROUP}(?::{_GROUP}){{3}}){_END}",
    rf"{_BEGIN}(?P<plain>(?:0x)?{_HEX}{{16}}){_END}",
    rf"{_BEGIN}(?P<bare>(?:0x)?{_HEX}{{12}}){_END}",
    # six bytes, or the eight of an EUI-64
    rf"{_BEGIN}(?P<mac>{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5}}(?:(?:[:-]{_HEX}{{2}}){{2}})?){_END}",
    rf"(?<![0-9A-Za-z.])(?P<dotted>{_GROUP}(?:\.{_GROUP}){{2}})(?![0-9A-Za-z]|\.[0-9A-Za-z])",
    # what is called a serial number, and one of Mellanox
    r"(?<![0-9A-Za-z])(?i:serial(?:[ _-]?(?:number|num|no))?|s/n|sn)(?:\.?\s*[:=#]\s*|\s+)[\"']?(?P<serial>"
    r"(?=[A-Za-z-]*[0-9])[0-9A-Za-z][0-9A-Za-z-]{4,})(?![0-9A-Za-z])",
    r"(?<![0-9A-Za-z])(?P<made>MT[0-9]{4}[A-Z]{1,2}[0-9]{5,6})(?![0-9A-Za-z])",
    r"(?:(?<=/home/)|(?<=/Users/))(?P<user>[^/\s:;,\"'()<>\[\]]+)",
    # an interface or device named after its address, such as `enxb8cef60300aa`
    r"(?<![0-9A-Za-z])(?P<named>(?:en|eth|ib|roce|rdma|iw|opa|wl|ww)x(?:[0-9a-f]{16}|[0-9a-f]{12}))(?![0-9a-z])",
    r"(?<![0-9A-Za-z.:])(?P<address>[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*[0-9A-Fa-f:])(?![0-9A-Za-z])",
)
_NAMING = re.compile("|".join(_PATTERNS))
# without IP addresses, because firmware versions look like them
_NAMING_HARDWARE = re.compile("|".join(_PATTERNS[:-1]))
_ZERO = frozenset("0:x")
LINK_LOCAL = "fe80:0000:0000:0000"
# the beginning of a GID in an address of IP over InfiniBand, in hexadecimal digits
_GID_BEGIN = 8
SHORTEST_HOST = 2
# a shorter name is replaced in its own spelling only
SHORTEST_LIKE = 5
SHORTEST_USER = 3
NOBODY = frozenset({"root", "nobody", "nonexistent", "home", "user"})


class Redactor:
    """Replaces everything that identifies a node or its owner by pseudonyms.

    `hosts` are host names, full or first part, which are also found with other separators, as `gpu_node_17` for
    `gpu-node-17`; names shorter than two letters, numbers and `localhost` are kept. `versions` are texts that look like
    an IP address but are not. `homes` are home directories, whose last part is the name of a user.
    """

    def __init__(
        self,
        hosts: Iterable[str] = (),
        guids: Iterable[str] = (),
        versions: Iterable[str] = (),
        homes: Iterable[str] = (),
    ) -> None:
        self._versions = frozenset(versions)
        self._key = secrets.token_bytes(32)
        self._guids = {_digits(guid) for guid in guids if not _is_zero(guid)}
        # Mellanox makes the GUID of a card from its MAC address
        self._macs = {guid[:6] + guid[10:] for guid in self._guids}
        names = _name_hosts(hosts)
        self._hosts = {_likeness(name): first for name, first in names.items()}
        self._host_pattern = _any_of(_spellings(name) for name in sorted(names, key=len, reverse=True))
        users = {home.rstrip("/").rpartition("/")[2] for home in homes}
        self._user_pattern = _any_of(
            re.escape(user) for user in users if len(user) >= SHORTEST_USER and user.lower() not in NOBODY
        )

    def clean(self, text: str) -> str:
        """The text with everything that identifies a node replaced."""
        text = _NAMING.sub(self._replace, text)
        if self._user_pattern is not None:
            text = self._user_pattern.sub(lambda found: self._user(found[0]), text)
        if self._host_pattern is not None:
            text = self._host_pattern.sub(lambda found: self._host(found[0]), text)
        return text

    def clean_hardware(self, text: str) -> str:
        """The text with GUIDs and MAC addresses replaced; paths and numbers stay valid."""
        return _NAMING_HARDWARE.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        kind = found.lastgroup or "address"
        pseudonym = {
            "ipoib": self._ipoib,
            "uuid": self._uuid,
            "gid": self._gid,
            "guid": self.guid,
            "plain": self._plain_guid,
            "bare": self._bare_mac,
            "mac": self._mac,
            "dotted": self._dotted_mac,
            "serial": self._serial,
            "made": self._serial,
            "user": self._user,
            "named": self._named,
            "address": self._address,
        }[kind]
        begin, end = found.start(kind) - found.start(), found.end(kind) - found.start()
        return found[0][:begin] + pseudonym(found[kind]) + found[0][end:]

    def clean_values(self, value: object, *, keys: bool = False) -> object:
        """A document of dictionaries, lists and texts with every text cleaned; keys only if asked for."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, dict):
            return {
                self.clean(key) if keys else key: self._serial(inner)
                if isinstance(inner, str) and "serial" in str(key).lower()
                else self.clean_values(inner, keys=keys)
                for key, inner in value.items()
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
        return self.host(self._hosts.get(_likeness(text), text))

    def _user(self, text: str) -> str:
        return f"user-{self._hash('user', text.lower())[:8]}"

    def _serial(self, text: str) -> str:
        return f"serial-{self._hash('serial', text)[:8]}"

    def _uuid(self, text: str) -> str:
        digits = self._digits(text.replace("-", ""))
        return (
            text
            if _is_zero(text.replace("-", ""))
            else "-".join(digits[begin:end] for begin, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        )

    def _named(self, text: str) -> str:
        prefix, _, digits = text.partition("x")
        return f"{prefix}x{self._digits(digits)}"

    def _ipoib(self, text: str) -> str:
        """Forty digits without separators are such an address if they have a link-local prefix or a known GUID."""
        digits = re.sub("0x|[:-]", "", text).lower()
        head, prefix, guid = digits[:_GID_BEGIN], digits[_GID_BEGIN:24], digits[24:]
        local = LINK_LOCAL.replace(":", "")
        if _is_zero(digits) or (len(text) <= 42 and prefix != local and guid not in self._guids):
            return text
        made = head + (prefix if prefix == local else self._digits(prefix)) + self._digits(guid)
        sign = next((sign for sign in ":-" if sign in text), "")
        return ("0x" if text.startswith("0x") else "") + sign.join(made[at : at + 2] for at in range(0, 40, 2))

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
        return ":".join(made[place : place + 2] for place in range(0, len(made), 2))

    def _bare_mac(self, text: str) -> str:
        """Twelve digits are a MAC address if it is known from a GUID, or if they cannot be a count."""
        digits = _digits(text)
        known = digits in self._macs or text.startswith("0x") or not digits.isdigit()
        if not known or _is_zero(text) or set(digits) == {"f"}:
            return text
        return ("0x" if text.startswith("0x") else "") + self._digits(digits)

    def _dotted_mac(self, text: str) -> str:
        digits = text.replace(".", "")
        if text in self._versions or _is_zero(digits):
            return text
        made = self._digits(digits)
        return ".".join(made[place : place + 4] for place in range(0, 12, 4))

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


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """An expression for a word that matches one of the patterns; None if there are none."""
    found = "|".join(patterns)
    return re.compile(rf"(?<![0-9A-Za-z])(?:{found})(?![0-9A-Za-z])", re.IGNORECASE) if found else None


def _parts(name: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9._-]+", name)


def _likeness(name: str) -> str:
    """What all spellings of a host name have in common."""
    return "".join(part.lstrip("0") or "0" if part.isdigit() else part.lower() for part in _parts(name))


def _spellings(name: str) -> str:
    """An expression for a host name with any separators, or none, between its parts."""
    parts = _parts(name)
    if len(name) < SHORTEST_LIKE or len(parts) < 2:
        # underscores belong to words such as node_guid
        return rf"(?<!_){re.escape(name)}(?!_)"
    numbers = (f"0*{part.lstrip('0') or '0'}" if part.isdigit() else re.escape(part) for part in parts)
    return "[._-]?".join(numbers)
