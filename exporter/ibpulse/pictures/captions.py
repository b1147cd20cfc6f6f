"""What a picture says of its recordings, in words. It must not draw."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ibpulse.pictures.run import PictureRun
from ibpulse.units import SECOND_NS, format_rate

HOLE = "hatched: not measured"
DURATIONS = ((SECOND_NS, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
TIME_UNITS = ((3 * 3600, 3600, "h"), (600, 60, "min"), (0, 1, "s"))


def duration_text(period_ns: int) -> str:
    """A duration as sentences have it: `10 ms`, `2.29 s`."""
    size, sign = next((size, sign) for size, sign in DURATIONS if period_ns >= size)
    return f"{period_ns / size:.4g} {sign}"


def rate_text(bytes_per_second: float) -> str:
    """A rate as sentences have it: `0.1 GB/s`."""
    return re.sub(r"([0-9])([A-Za-z])", r"\1 \2", format_rate(round(bytes_per_second)))


def time_unit(span_seconds: float) -> tuple[int, str]:
    """Seconds of the unit in which a span is readable, and its sign."""
    return next((size, sign) for least, size, sign in TIME_UNITS if span_seconds >= least)


def describe_run(run: PictureRun) -> str:
    """Host, date, span and interval of a run, and how much of it is not known."""
    begin = datetime.fromtimestamp(run.begin_ns // SECOND_NS, UTC)
    size, sign = time_unit(run.span_seconds)
    span = f"{run.span_seconds / size:.4g} {sign}"
    parts = [f"{begin:%Y-%m-%d %H:%M:%S} UTC", f"{span} at {duration_text(run.interval_ns)}"]
    if run.host:
        parts.insert(0, run.host)
    if run.hole_ratio:
        parts.append(f"{max(run.hole_ratio * 100, 0.1):.1f} % not measured")
    return " · ".join(parts)


def describe_column(run: PictureRun, ticks: int) -> str:
    """How long a column is: `90 ms`."""
    return duration_text(ticks * run.interval_ns)
