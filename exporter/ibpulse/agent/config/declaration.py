"""The declaration of a setting, and the kinds of values that only settings have."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar

from ibpulse.base.text import show
from ibpulse.base.units import GRID_NS, format_duration
from ibpulse.base.values import Given, Kind, duration, many, matching, one, optional, split_texts, whole
from ibpulse.core.model import BYTE_WAYS, ROLES

PREFIX = "IBPULSE_"
_LISTEN_ADDRESS = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name such as `sampler.interval`, kind of value, default as text, help sentence, and field.

    `shown` describes a default that is computed at startup or has no text.
    """

    name: str
    kind: Kind[Any]
    default: str
    sentence: str
    shown: str = ""
    field: str = ""

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper().replace(".", "__").replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default as shown in help and docs."""
        return self.shown or self.default


def setting(kind: Kind[T], default: T | str, sentence: str, *, shown: str = "", name: str = "") -> T:
    """Declare a setting: its kind, its default as text or value, its help sentence.

    `name` is the last part of the setting's name if it differs from the field's.
    """
    text = default if isinstance(default, str) else kind.text(default)
    declared: Any = field(metadata={"setting": Setting(name, kind, text, sentence, shown)})
    return declared  # type: ignore[no-any-return]


def declarations(group: Any, prefix: str = "") -> list[Setting]:
    """The settings of a group, given as class or instance; `prefix` stands before the last part of their names."""
    found = []
    for each in fields(group):
        declared: Setting = each.metadata["setting"]
        name = declared.name or each.name.replace("_", "-")
        found.append(replace(declared, name=prefix + name, field=each.name))
    return found


def written_values(group: Any) -> dict[str, Any]:
    """The values of a group by the last part of the name, as texts and lists of texts."""
    return {each.name: each.kind.write(getattr(group, each.field)) for each in declarations(group)}


class ListenAddress(NamedTuple):
    """The address to listen on; an empty host means every address of the node, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def lists_by_word(metavar: str, item: Kind[T], *allowed: str) -> Kind[dict[str, tuple[T, ...]]]:
    """Lists of values by one of the allowed words, as text `word=a,b`; the word holds until the next one.

    No value may match one of another word, where values are shell patterns.
    """

    def read(given: Given) -> dict[str, tuple[T, ...]]:
        found: dict[str, tuple[T, ...]] = {}
        faults: list[str] = []
        word = ""
        for text in split_texts(given):
            before, equals, after = text.partition("=")
            word = before if equals else word
            try:
                if not word:
                    raise ValueError(f"{text!r} has no {metavar.lower()}; write it like {allowed[0]}={text}")
                if word not in allowed:
                    raise ValueError(f"unknown {metavar.lower()} {word!r}; choose {', '.join(allowed)}")
                found[word] = (*found.get(word, ()), item.parse(after if equals else text))
            except ValueError as error:
                faults += (fault for fault in error.args if fault not in faults)
        if faults or (faults := find_overlaps(found)):
            raise ValueError(*faults)
        return found

    def write(lists: dict[str, tuple[T, ...]]) -> list[str]:
        return [f"{word}={value}" for word, values in lists.items() for value in values]

    return Kind(f"{metavar}={item.metavar},...", read, write, mapping=True)


def find_overlaps(lists: Mapping[str, Sequence[object]]) -> list[str]:
    """A fault for each pattern that is given for two words, or matches one of another word."""
    faults = []
    for (word, values), (other, others) in itertools.combinations(lists.items(), 2):
        for first, second in itertools.product(map(str, values), map(str, others)):
            if fnmatchcase(first, second) or fnmatchcase(second, first):
                texts = first if first == second else f"{first} and {second}"
                faults.append(f"{texts}: the same port is given for {word} and {other}; give each port once")
    return faults


def _divides_second(period_ns: int) -> None:
    if period_ns not in GRID_NS:
        below = max((one for one in GRID_NS[:-1] if one < period_ns), default=GRID_NS[0])
        above = GRID_NS[GRID_NS.index(below) + 1]
        nearest = f"{format_duration(below)} and {format_duration(above)}"
        raise ValueError(f"{format_duration(period_ns)} does not divide one second; the nearest that do are {nearest}")


def _listen_address(text: str) -> ListenAddress:
    match = _LISTEN_ADDRESS.fullmatch(text)
    if not match:
        raise ValueError(f"{show(text)} is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055")
    if int(match[3]) > 65535:
        raise ValueError(f"port {match[3]} in {text!r} is out of range; use 1 to 65535, or 0 for any free port")
    host = match[1] or match[2] or ""
    # as in other programs, [::] is IPv4 too
    return ListenAddress("" if _is_every_ipv6(host) else host, int(match[3]))


def _is_every_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).is_unspecified
    except ValueError:
        return False


def _source(text: str) -> str:
    # its form is checked by the command, because reading sources takes imports that no daemon needs
    if not text.isprintable() or len(text) > 1024:
        raise ValueError(f"{show(text)} is not a source of nodes; write it like dns+NAME:PORT, nodes.json or a URL")
    return text


INTERVAL = duration("1ms", "1s", _divides_second)
CPU = optional(whole(0, 8191, "CPU"), "for no pinning")
RAILS = optional(whole(0, 256), "to count them")
TICK_BYTES = optional(whole(1, 4096, "BYTES"), "if unknown")
ADDRESS = one("ADDRESS", _listen_address)
_PORT = matching(
    "PORT", r"[^\s/:,]+(?::[^\s/:,]+)?", "a port", "write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"
)
PORTS = many(_PORT)
ROLE_PORTS = lists_by_word("ROLE", _PORT, *ROLES)
PORT_SOURCES = lists_by_word("SOURCE", _PORT, *BYTE_WAYS)
NODES = many(
    matching(
        "NAME",
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}",
        "a node name",
        "write it like gpu-node-7 or gpu-node-7.example.org",
    )
)
SOURCES = many(one("SOURCE", _source))
HOSTS = many(
    matching(
        "HOST",
        r"\*|[A-Za-z0-9_][A-Za-z0-9._-]{0,252}",
        "a host name",
        "write it without a port, like gpu-node-7.example.org, or *",
    )
)
