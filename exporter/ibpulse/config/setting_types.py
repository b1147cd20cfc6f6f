"""The types of settings: parsing text into values, and formatting values as text.

Each source gives a text or a list of texts. Parsing raises `ValueError`; its arguments are messages that name the value
and the remedy.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ibpulse.model import ROLES
from ibpulse.units import (
    GRID_NS,
    SECOND_NS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

if TYPE_CHECKING:
    from pathlib import Path

Given = str | Sequence[str]
"""The text or texts that a source gives for one setting."""

ABSENT = ("", "null", "~")
"""Texts that mean "no value" for an optional setting."""

T = TypeVar("T")
_LISTEN_ADDRESS = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")
_PORT_PATTERN = re.compile(r"[^\s/:,]+(?::[^\s/:,]+)?")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: its metavar, and how to parse and format it; a `mapping` may also be one in a file."""

    metavar: str
    parse: Callable[[Given], T]
    write: Callable[[T], Any]
    mapping: bool = False

    def text(self, value: T) -> str:
        """The value as one text."""
        written = self.write(value)
        return ",".join(written) if isinstance(written, list) else str(written)


class ListenAddress(NamedTuple):
    """The address to listen on; an empty host means every address of the node, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def one(
    metavar: str, parse: Callable[[str], T], *checks: Callable[[T], None], write: Callable[[T], Any] = str
) -> Kind[T]:
    """A single value, parsed by `parse`; each check raises a ValueError for an invalid value."""

    def read(given: Given) -> T:
        if not isinstance(given, str):
            raise ValueError(f"{', '.join(given)!r} is a list; give one value")  # noqa: TRY004 (a fault of the value)
        value = parse(given)
        for check in checks:
            check(value)
        return value

    return Kind(metavar, read, write)


def many(
    item: Kind[T], finish: Callable[[tuple[T, ...]], tuple[T, ...]] = lambda values: values
) -> Kind[tuple[T, ...]]:
    """A list of values, comma separated, repeated, or both; `finish` checks and orders them."""

    def read(given: Given) -> tuple[T, ...]:
        values: list[T] = []
        faults: list[str] = []
        for text in _split(given):
            try:
                values.append(item.parse(text))
            except ValueError as error:
                faults += error.args
        if faults:
            raise ValueError(*faults)
        return finish(tuple(values))

    return Kind(f"{item.metavar},...", read, lambda values: [item.write(value) for value in values])


def _split(given: Given) -> tuple[str, ...]:
    """The items of a list: comma separated, repeated, or both."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    return tuple(item.strip() for text in texts if text not in ABSENT for item in text.split(","))


def choice(*allowed: str, **synonyms: str) -> Kind[Any]:
    """One of the allowed words, or a synonym of one."""

    def parse(text: str) -> str:
        word = synonyms.get(text, text)
        if word not in allowed:
            raise ValueError(f"unknown value {text!r}; choose {' or '.join(allowed)}")
        return word

    return one("|".join((*allowed, *synonyms)), parse)


def some_of(metavar: str, *allowed: str) -> Kind[tuple[str, ...]]:
    """A list of allowed words without duplicates; the word none alone means an empty list."""

    def finish(words: tuple[str, ...]) -> tuple[str, ...]:
        if words == ("none",):
            return ()
        for word in words:
            if word not in allowed:
                raise ValueError(f"unknown value {word!r}; choose from {', '.join(allowed)}, or none")
            if words.count(word) > 1:
                raise ValueError(f"{word} is given twice; give it once")
        return words

    return many(one(metavar, str), finish)


def lists_by_word(metavar: str, item: Kind[T], *allowed: str) -> Kind[dict[str, tuple[T, ...]]]:
    """Lists of values by one of the allowed words, as text `word=a,b`; the word holds until the next one.

    No value may match one of another word, where values are shell patterns.
    """

    def read(given: Given) -> dict[str, tuple[T, ...]]:
        found: dict[str, tuple[T, ...]] = {}
        faults: list[str] = []
        word = ""
        for text in _split(given):
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
        for one, two in itertools.product(map(str, values), map(str, others)):
            if fnmatchcase(one, two) or fnmatchcase(two, one):
                texts = one if one == two else f"{one} and {two}"
                faults.append(f"{texts}: the same port is given for {word} and {other}; give each port once")
    return faults


def _between(lowest: int, highest: int, write: Callable[[int], str] = str) -> Callable[[int], None]:
    """A check of inclusive bounds; `write` formats a value for the message."""

    def check(value: int) -> None:
        if not lowest <= value <= highest:
            raise ValueError(f"{write(value)} is out of bounds; choose {write(lowest)} to {write(highest)}")

    return check


def _lasting(lowest: str, highest: str) -> Callable[[int], None]:
    return _between(parse_duration(lowest), parse_duration(highest), format_duration)


def duration(lowest: str, highest: str, *first: Callable[[int], None]) -> Kind[int]:
    """A duration in nanoseconds with inclusive bounds; the checks in `first` run before that of the bounds."""
    return one("DURATION", parse_duration, *first, _lasting(lowest, highest), write=format_duration)


def seconds(lowest: str, highest: str) -> Kind[int]:
    """A duration in nanoseconds with inclusive bounds, in whole seconds."""
    return duration(lowest, highest, _whole_seconds)


def _divides_second(period_ns: int) -> None:
    if period_ns not in GRID_NS:
        below = max((one for one in GRID_NS[:-1] if one < period_ns), default=GRID_NS[0])
        above = GRID_NS[GRID_NS.index(below) + 1]
        nearest = f"{format_duration(below)} and {format_duration(above)}"
        raise ValueError(f"{format_duration(period_ns)} does not divide one second; the nearest that do are {nearest}")


def _whole_seconds(period_ns: int) -> None:
    if period_ns % SECOND_NS:
        raise ValueError(f"{format_duration(period_ns)} is not a whole number of seconds; write it like 10s or 5m")


def _integer(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number; write it like 2")
    return int(text)


def _cpu(text: str) -> int | None:
    if text in ABSENT:
        return None
    number = _integer(text)
    if number > 8191:
        raise ValueError(f"{number} is not a CPU number; choose 0 to 8191, or leave it empty for no pinning")
    return number


def _tick_bytes(text: str) -> int | None:
    if text in ABSENT:
        return None
    number = _integer(text)
    if not 1 <= number <= 4096:
        raise ValueError(f"{number} is out of bounds; choose 1 to 4096 bytes, or leave it empty if unknown")
    return number


def _rails(text: str) -> int | None:
    if text in ABSENT:
        return None
    number = _integer(text)
    if number > 256:
        raise ValueError(f"{number} is out of bounds; choose 0 to 256, or leave it empty to count them")
    return number


def _ratio(text: str) -> float:
    if not re.fullmatch(r"[01]|0?\.[0-9]{1,9}|1\.0{1,9}", text):
        raise ValueError(f"{text!r} is not a ratio; write it like 0.85, from 0 to 1")
    return float(text)


def _path(text: str) -> Path:
    if text in ABSENT:
        raise ValueError("the path is empty; give a path or remove the setting")
    return _make_path(text)


def _optional_path(text: str) -> Path | None:
    return None if text in ABSENT else _make_path(text)


def _make_path(text: str) -> Path:
    from pathlib import Path  # not for help texts

    return Path(text)


def _port_pattern(text: str) -> str:
    if not _PORT_PATTERN.fullmatch(text):
        raise ValueError(f"{text!r} is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*")
    return text


def _listen_address(text: str) -> ListenAddress:
    match = _LISTEN_ADDRESS.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055")
    if int(match[3]) > 65535:
        raise ValueError(f"port {match[3]} in {text!r} is out of range; use 1 to 65535, or 0 for any free port")
    return ListenAddress(match[1] or match[2] or "", int(match[3]))


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"unknown value {text!r}; choose true or false")
    return text == "true"


def _node_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", text):
        raise ValueError(f"{text[:64]!r} is not a node name; write it like gpu-node-7 or gpu-node-7.example.org")
    return text


def _host_name(text: str) -> str:
    if not re.fullmatch(r"\*|[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", text):
        raise ValueError(
            f"{text[:64]!r} is not a host name; write it without a port, like gpu-node-7.example.org, or *"
        )
    return text


def _source(text: str) -> str:
    # its form is checked by the command, because reading sources takes imports that no daemon needs
    if not text.isprintable() or len(text) > 1024:
        raise ValueError(f"{text[:64]!r} is not a source of nodes; write it like dns+NAME:PORT, nodes.json or a URL")
    return text


def _as_it_is(value: T) -> T:
    return value


def _or_none(value: object) -> str | None:
    return None if value is None else str(value)


PATH = one("PATH", _path)
OPTIONAL_PATH = one("PATH", _optional_path, write=_or_none)
INTERVAL = duration("1ms", "1s", _divides_second)
RATE = one("RATE", parse_rate, write=format_rate)
SIZE = one("SIZE", parse_size, write=format_size)
RATIO = one("RATIO", _ratio)
CPU = one("CPU", _cpu, write=_as_it_is)
RAILS = one("COUNT", _rails, write=_as_it_is)
TICK_BYTES = one("BYTES", _tick_bytes, write=_as_it_is)
SWITCH = one("true|false", _switch, write=lambda value: str(value).lower())
ADDRESS = one("ADDRESS", _listen_address)
_PORT = one("PORT", _port_pattern)
PORTS = many(_PORT)
ROLE_PORTS = lists_by_word("ROLE", _PORT, *ROLES)
NODES = many(one("NAME", _node_name))
SOURCES = many(one("SOURCE", _source))
HOSTS = many(one("HOST", _host_name))
