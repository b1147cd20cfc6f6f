"""Sparklines, bars and numbers as text. It must not know what they stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """Characters: `levels` from nothing to full, `parts` of a bar's last cell, and one for what is not known."""

    levels: str
    parts: str
    unknown: str


BLOCKS = Marks(" ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█", "·")
ASCII = Marks(" .:-=+*#@", " #", "?")


def sparkline(shares: Iterable[float], marks: Marks) -> str:
    """One character for each share of the full scale; more than nothing is never blank, NaN is unknown."""
    return "".join([_level(share, marks) for share in shares])


def bar(share: float, width: int, marks: Marks) -> str:
    """A bar of `width` characters, filled to a share of it; more than nothing is never empty."""
    if math.isnan(share):
        return marks.unknown.ljust(width)
    steps = len(marks.parts) - 1
    filled = round(min(max(share, 0.0), 1.0) * width * steps)
    if share > 0:
        filled = max(filled, 1)
    whole, rest = divmod(filled, steps)
    return (marks.parts[-1] * whole + (marks.parts[rest] if rest else "")).ljust(width)


def gigabytes(bytes_per_second: float | None) -> str:
    """A rate in GB/s in six characters, `-` where it is not known; more than nothing is never 0."""
    if bytes_per_second is None:
        return "-"
    number = bytes_per_second / 1e9
    if number >= 0.95 or number <= 0:
        return f"{number:.1f}"
    return f"{number:.3f}" if number >= 0.001 else "<0.001"


def percent(ratio: float | None) -> str:
    """A ratio in percent that never says all when it is not: `99.98 %`; `-` where it is not known."""
    if ratio is None:
        return "-"
    return "100 %" if ratio >= 1 else f"{min(ratio * 100, 99.99):.2f} %"


def duration(seconds: float | None) -> str:
    """A time in s or ms, `-` where it is not known."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1e3:.{1 if seconds >= 0.01 else 2}f} ms"


def _level(share: float, marks: Marks) -> str:
    if math.isnan(share):
        return marks.unknown
    if share <= 0:
        return marks.levels[0]
    top = len(marks.levels) - 1
    return marks.levels[min(max(1, round(share * top)), top)]
