"""Times as arguments of the Python API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ibpulse.base.units import MILLISECOND_NS, parse_duration
from ibpulse.base.values import INSTANT, MOMENT

Time = str | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ns(time: Time, begin_ns: int | None = None) -> int:
    """A wall time in nanoseconds since 1970; with `begin_ns`, a duration counts from there.

    Raises:
        ValueError: it is not a time, or a `datetime` without a time zone.
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{time} has no time zone; write datetime(..., tzinfo=UTC)")
        # a pandas.Timestamp is a datetime, and knows nanoseconds
        nanoseconds = getattr(time, "value", None)
        return nanoseconds if isinstance(nanoseconds, int) else (time - _EPOCH) // timedelta(microseconds=1) * 1000
    if not isinstance(time, str):
        raise ValueError(f"{time!r} is not a time; give a text like '2026-11-21T12:00:00Z', or a datetime")  # noqa: TRY004
    return INSTANT.parse(time) if begin_ns is None else MOMENT.parse(time).in_recording(begin_ns)


def read_span(begin_ns: int, end_ns: int, start: Time | None, end: Time | None, last: str | None) -> tuple[int, int]:
    """The part of a span of wall time that arguments choose, in nanoseconds since 1970.

    Raises:
        ValueError: a time is invalid, or `last` is combined with `start`.
    """
    finish = end_ns if end is None else to_ns(end, begin_ns)
    if last is None:
        return (begin_ns if start is None else to_ns(start, begin_ns)), finish
    if start is not None:
        raise ValueError("last cannot be combined with start; give last and end, or start and end")
    return finish - parse_duration(last), finish


def span_query(last: str | None, start: Time | None, end: Time | None) -> list[tuple[str, str | int]]:
    """The parameters of a request; times are widened to milliseconds.

    Raises:
        ValueError: as `read_span`.
    """
    if last is not None:
        if start is not None or end is not None:
            raise ValueError("last cannot be combined with start or end; it is the most recent part")
        parse_duration(last)
        return [("last", last)]
    query: list[tuple[str, str | int]] = []
    if start is not None:
        query.append(("from", to_ns(start) // MILLISECOND_NS))
    if end is not None:
        query.append(("to", -(-to_ns(end) // MILLISECOND_NS)))
    return query
