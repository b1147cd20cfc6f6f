"""Durations, sizes and rates as people write them, and the size of a counter's word.

Every `parse_*` reads the output of its `format_*`. It refuses values that are not a whole number of units.
"""

from __future__ import annotations

import itertools
import re

WORD_BYTES = 4
"""Bytes of one count of `port_xmit_data` and `port_rcv_data`: 4-octet words (InfiniBand, PortCounters)."""

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
GRID_NS = tuple(ms * MILLISECOND_NS for ms in range(1, 1001) if 1000 % ms == 0)
"""The allowed sampling intervals: whole milliseconds that divide one second, so every second has the same instants."""
LARGEST = 2**63 - 1

DURATION_UNITS = {
    "d": 86_400 * SECOND_NS,
    "h": 3_600 * SECOND_NS,
    "m": 60 * SECOND_NS,
    "s": SECOND_NS,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "ns": 1,
}
DECIMAL_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
BINARY_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
SIZE_UNITS = {**BINARY_UNITS, **DECIMAL_UNITS}
BIT_UNITS = {"Tb": 10**12, "Gb": 10**9, "Mb": 10**6, "kb": 10**3, "b": 1}

AMOUNT_UNITS: dict[str, float] = {"bytes": 1, "words": WORD_BYTES, **SIZE_UNITS}
"""Bytes per unit of size in logs of other programs."""

RATE_UNITS: dict[str, float] = {
    **{f"{name}/s": size for name, size in DECIMAL_UNITS.items()},
    **{f"{name}/s": size / 8 for name, size in BIT_UNITS.items()},
}
"""Bytes per second of each unit of rate in such logs."""

_NUMBER = r"[0-9]{1,19}(?:\.[0-9]{1,19})?"
_TERM = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_TERM.pattern})+")
_QUANTITY = re.compile(rf"({_NUMBER})([A-Za-z/]*)")


def whole_ms(time_ns: int | None) -> int | None:
    """A time in whole milliseconds, rounded down; None for None."""
    return None if time_ns is None else time_ns // MILLISECOND_NS


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as `10ms`, `5m` or `1h30m`.

    Raises:
        ValueError: not a duration, no unit, units out of order, not a whole number of nanoseconds, or over 292 years.
    """
    if re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text} has no unit; write it like 10ms, 5s or 1h30m")
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it like 10ms, 5s or 1h30m")
    terms = [(number, DURATION_UNITS[unit]) for number, unit in _TERM.findall(text)]
    sizes = [size for _, size in terms]
    if any(size <= following for size, following in itertools.pairwise(sizes)):
        raise ValueError(f"{text} has its units out of order; write the largest first, each once, like 1h30m")
    return _bounded(text, sum(_exact(text, number, size, "nanoseconds") for number, size in terms))


def format_duration(period_ns: int) -> str:
    """The shortest text that `parse_duration` reads as `period_ns`: `10ms`, `1m`, `1h30m`."""
    if period_ns < 0:
        raise ValueError(f"a duration of {period_ns} ns is negative")
    terms = []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, period_ns = divmod(period_ns, DURATION_UNITS[unit])
        if count:
            terms.append(f"{count}{unit}")
    return "".join(terms) or "0s"


def parse_size(text: str) -> int:
    """Bytes of a size such as `64MiB` (binary), `10GB` (decimal) or `512B`.

    Raises:
        ValueError: not a size, no unit, an unknown unit, not a whole number of bytes, or over 2^63 - 1.
    """
    number, unit = _split(text, "size", "64MiB, 10GB or 512B")
    if unit not in SIZE_UNITS:
        raise ValueError(f"{text} has the unknown unit {unit}; use one of {', '.join(SIZE_UNITS)}")
    return _bounded(text, _exact(text, number, SIZE_UNITS[unit], "bytes"))


def format_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads as `size_bytes`, with a whole number: `64MiB`, `10GB`, `0B`."""
    if size_bytes < 0:
        raise ValueError(f"a size of {size_bytes} bytes is negative")
    if size_bytes == 0:
        return "0B"
    exact = [f"{size_bytes // size}{unit}" for unit, size in SIZE_UNITS.items() if size_bytes % size == 0]
    return min(exact, key=len)


def parse_rate(text: str) -> int:
    """Bytes per second of a rate such as `0.1GB/s`; decimal units only, as everywhere for bandwidth.

    Raises:
        ValueError: not a rate, no unit, an unknown unit, not a whole number of bytes per second, or over 2^63 - 1.
    """
    number, unit = _split(text, "rate", "0.1GB/s or 50MB/s")
    size = DECIMAL_UNITS.get(unit.removesuffix("/s")) if unit.endswith("/s") else None
    if size is None:
        known = ", ".join(f"{name}/s" for name in DECIMAL_UNITS)
        raise ValueError(f"{text} has the unknown unit {unit}; rates count bytes: use one of {known}")
    return _bounded(text, _exact(text, number, size, "bytes per second"))


def format_rate(bytes_per_second: int) -> str:
    """Text that `parse_rate` reads as `bytes_per_second`, in the largest unit that gives at least 0.1: `0.1GB/s`."""
    if bytes_per_second < 0:
        raise ValueError(f"a rate of {bytes_per_second} bytes per second is negative")
    for unit, size in DECIMAL_UNITS.items():
        if bytes_per_second * 10 >= size:
            return f"{_decimal(bytes_per_second, size)}{unit}/s"
    return "0B/s"


def _decimal(value: int, size: int) -> str:
    """`value / size` written out exactly; `size` is a power of ten."""
    whole, rest = divmod(value, size)
    digits = len(str(size)) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _split(text: str, what: str, examples: str) -> tuple[str, str]:
    """Number and unit of `text`."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a {what}; write it like {examples}")
    if not match[2]:
        raise ValueError(f"{text} has no unit; write it like {examples}")
    return match[1], match[2]


def _exact(text: str, number: str, size: int, unit: str) -> int:
    """`number x size` as a whole number; a decimal fraction is never converted to a float."""
    whole, _, fraction = number.partition(".")
    parts: int = 10 ** len(fraction)
    value, rest = divmod(int(whole + fraction) * size, parts)
    if rest:
        raise ValueError(f"{text} is not a whole number of {unit}; use fewer decimals")
    return value


def _bounded(text: str, value: int) -> int:
    if value > LARGEST:
        raise ValueError(f"{text} is too large; it must stay below 2^63 of the smallest unit")
    return value
