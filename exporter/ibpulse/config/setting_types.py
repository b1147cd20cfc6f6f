"""How the text of one setting becomes a value, and is written again.

Each source gives a text or a list of texts; every refusal is a `ValueError` that names the value and the way out.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator

from ibpulse.units import (
    MILLISECOND_NS,
    SECOND_NS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from ibpulse.validators import between, single

Given = str | Sequence[str]
"""What a source says about one setting."""

ABSENT = ("", "null", "~")
"""Texts that stand for nothing, where a setting may have no value."""

GRID_NS = tuple(ms * MILLISECOND_NS for ms in range(1, 1001) if 1000 % ms == 0)
"""The periods whose ticks fall on the same instants of every second: whole milliseconds that divide one second."""

T = TypeVar("T")
_LISTEN_ADDRESS = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")
_PORT_PATTERN = re.compile(r"[^\s/:,]+(?::[^\s/:,]+)?")


class ListenAddress(NamedTuple):
    """Where to listen; an empty host means every address of the node, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def one_value(parse: Callable[[str], T]) -> PlainValidator:
    """A validator for a setting that takes one text, read by `parse`."""
    return single(parse, lambda given: f"{', '.join(given)} is a list; give one value")


def choice(*allowed: str) -> PlainValidator:
    """A validator for one of a few words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not known; choose {' or '.join(allowed)}")
        return text

    return one_value(parse)


def lasting(lowest: str, highest: str) -> AfterValidator:
    """A validator for the bounds of a duration."""
    return between(parse_duration(lowest), parse_duration(highest), format_duration)


def _divides_second(period_ns: int) -> int:
    if period_ns not in GRID_NS:
        above = min(max(bisect(GRID_NS, period_ns), 1), len(GRID_NS) - 1)
        nearest = f"{format_duration(GRID_NS[above - 1])} and {format_duration(GRID_NS[above])}"
        raise ValueError(f"{format_duration(period_ns)} does not divide one second; the nearest that do are {nearest}")
    return period_ns


def _whole_seconds(period_ns: int) -> int:
    if period_ns % SECOND_NS:
        raise ValueError(f"{format_duration(period_ns)} is not a whole number of seconds; write it like 10s or 5m")
    return period_ns


def _integer(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number; write it like 2")
    return int(text)


def _cpu(text: str) -> int | None:
    if text in ABSENT:
        return None
    number = _integer(text)
    if number > 8191:
        raise ValueError(f"{number} is no processor; choose 0 to 8191, or leave it empty to pin to none")
    return number


def _tick_bytes(text: str) -> int | None:
    if text in ABSENT:
        return None
    number = _integer(text)
    if not 1 <= number <= 4096:
        raise ValueError(f"{number} is no length of a tick; choose 1 to 4096 bytes, or leave it empty if not known")
    return number


def _ratio(text: str) -> float:
    if not re.fullmatch(r"[01]|0?\.[0-9]{1,9}|1\.0{1,9}", text):
        raise ValueError(f"{text!r} is not a ratio; write it like 0.85, from 0 to 1")
    return float(text)


def _path(text: str) -> Path:
    if text in ABSENT:
        raise ValueError("the path is empty; give one or leave the setting out")
    return Path(text)


def _optional_path(text: str) -> Path | None:
    return None if text in ABSENT else Path(text)


def _write_optional_path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _port_pattern(text: str) -> str:
    if not _PORT_PATTERN.fullmatch(text):
        raise ValueError(f"{text!r} names no port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*")
    return text


def _listen_address(text: str) -> ListenAddress:
    match = _LISTEN_ADDRESS.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055")
    if int(match[3]) > 65535:
        raise ValueError(f"{text} has the port {match[3]}; choose 1 to 65535, or 0 for any free port")
    return ListenAddress(match[1] or match[2] or "", int(match[3]))


def _split(given: Given) -> tuple[str, ...]:
    """The items of a list, which may be comma separated, repeated, or both."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    return tuple(item.strip() for text in texts if text not in ABSENT for item in text.split(","))


def _ascending(periods_ns: tuple[int, ...]) -> tuple[int, ...]:
    """The same periods, shortest first; a list without any, or with one twice, is refused."""
    if not periods_ns:
        raise ValueError("the list is empty; give at least one duration")
    twice = next((period_ns for period_ns in periods_ns if periods_ns.count(period_ns) > 1), None)
    if twice is not None:
        raise ValueError(f"{format_duration(twice)} is given twice; give it once")
    return tuple(sorted(periods_ns))


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not known; choose true or false")
    return text == "true"


def _node_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", text):
        raise ValueError(f"{text[:64]!r} is no name of a node; write it like gpu-node-7 or gpu-node-7.example.org")
    return text


DurationNs = Annotated[int, one_value(parse_duration), PlainSerializer(format_duration)]
GridNs = Annotated[DurationNs, AfterValidator(_divides_second)]
SecondsNs = Annotated[DurationNs, AfterValidator(_whole_seconds)]
WindowNs = Annotated[DurationNs, lasting("1s", "1h"), AfterValidator(_whole_seconds)]
RateBytesPerSecond = Annotated[int, one_value(parse_rate), PlainSerializer(format_rate)]
Ratio = Annotated[float, one_value(_ratio), PlainSerializer(str)]
Count = Annotated[int, one_value(_integer)]
Cpu = Annotated[int | None, one_value(_cpu)]
TickBytes = Annotated[int | None, one_value(_tick_bytes)]
SizeBytes = Annotated[int, one_value(parse_size), PlainSerializer(format_size)]
Switch = Annotated[bool, one_value(_switch), PlainSerializer(lambda value: str(value).lower())]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
NodeNames = Annotated[tuple[Annotated[str, AfterValidator(_node_name)], ...], BeforeValidator(_split)]
SomePath = Annotated[Path, one_value(_path), PlainSerializer(str)]
OptionalPath = Annotated[Path | None, one_value(_optional_path), PlainSerializer(_write_optional_path)]
Address = Annotated[ListenAddress, one_value(_listen_address), PlainSerializer(str)]
PortPattern = Annotated[str, one_value(_port_pattern)]
PortPatterns = Annotated[tuple[PortPattern, ...], BeforeValidator(_split)]
WindowsNs = Annotated[tuple[WindowNs, ...], BeforeValidator(_split), AfterValidator(_ascending)]
GridsNs = Annotated[tuple[GridNs, ...], BeforeValidator(_split), AfterValidator(_ascending)]
