"""Instants as people and programs write them: epoch milliseconds, epoch seconds with a fraction, RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS

# A smaller number was meant as seconds: no ring holds samples of 1973.
_MIN_MILLISECONDS = 10**11
_MAX_NS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECONDS = re.compile(r"[0-9]{1,18}", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,12})\.([0-9]{1,20})", re.ASCII)
# In a query, a plus sign that the client did not encode arrives as a space.
_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,20}))?(?:[Zz]|([+ -])(\d\d):(\d\d))", re.ASCII
)


def parse_instant(text: str) -> int:
    """Nanoseconds since the epoch of milliseconds `1763683200000`, seconds `1763683200.5` or an RFC 3339 time.

    Raises:
        ValueError: none of the three, beyond 64 bits, or a whole number so small that it must be seconds.
    """
    if _MILLISECONDS.fullmatch(text):
        if int(text) < _MIN_MILLISECONDS:
            raise ValueError(f"{text} is taken as milliseconds, which is before 1974; write {text}.0 if it is seconds")
        return _check_range(int(text) * MILLISECOND_NS, text)
    if found := _SECONDS.fullmatch(text):
        return _check_range(int(found[1]) * SECOND_NS + _fraction_ns(found[2]), text)
    if _RFC_3339.fullmatch(text):
        return parse_rfc3339(text)
    raise ValueError(
        f"{text[:64]!r} is not a time; write milliseconds since the epoch (1763683200000), "
        "seconds with a fraction (1763683200.5) or RFC 3339 (2025-11-21T00:00:00Z)"
    )


def _check_range(time_ns: int, text: str) -> int:
    """The time, if arrays of 64-bit nanoseconds can hold it; all such times are dates."""
    if not -_MAX_NS <= time_ns <= _MAX_NS:
        raise ValueError(f"{text[:64]} is outside of 1678 to 2262; check the year, or the unit of the number")
    return time_ns


def parse_rfc3339(text: str) -> int:
    """Nanoseconds since the epoch of `2025-11-21T00:00:00.5Z`, with any offset; digits beyond a nanosecond are cut off.

    Raises:
        ValueError: not of this form, no such date or time, beyond 64 bits, or an offset of 24 hours or more.
    """
    found = _RFC_3339.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:64]!r} is not a time in RFC 3339; write it like 2025-11-21T00:00:00Z")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    try:
        local = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{text} is not a time of the calendar: {error}") from error
    hours, minutes = int(found[9] or 0), int(found[10] or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(f"{text} has an offset of {hours}:{minutes:02}; it must stay below 24:00")
    offset = (hours * 60 + minutes) * (-1 if found[8] == "-" else 1)
    seconds = (local - _EPOCH) // timedelta(seconds=1) - offset * 60
    return _check_range(seconds * SECOND_NS + _fraction_ns(found[7] or "0"), text)


def format_rfc3339(time_ns: int) -> str:
    """A wall time in RFC 3339 with milliseconds, rounded down, in UTC: `2025-11-21T00:00:00.500Z`."""
    instant = _EPOCH + timedelta(milliseconds=time_ns // MILLISECOND_NS)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03}Z"


def _fraction_ns(digits: str) -> int:
    """Nanoseconds of the digits after a decimal point."""
    return int(digits[:9].ljust(9, "0"))
