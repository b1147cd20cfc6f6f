"""Lines of text in styles, and the characters of sparklines and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Marks:
    """Characters: `levels` from empty to full, `parts` for the last cell of a bar, one for missing data, one for a link
    that is down.
    """

    levels: str
    parts: str
    unknown: str
    down: str


BLOCKS = Marks(" ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█", "·", "×")
ASCII = Marks(" .:-=+*#@", " #", "?", "x")


class Style(Enum):
    """The kind of a piece of text; a terminal without colours shows them all alike."""

    PLAIN = "plain"
    TITLE = "title"
    DIM = "dim"
    RATE = "rate"
    WARNING = "warning"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in one style."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]


def sparkline(shares: Iterable[float], marks: Marks) -> str:
    """One character for each share of the full scale; shares above 0 are never blank, NaN is unknown."""
    return "".join([_level(share, marks) for share in shares])


def color_sparkline(text: str, marks: Marks) -> list[Span]:
    """A sparkline as spans: links that are down and missing data have styles of their own."""
    styles = {marks.down: Style.ALARM, marks.unknown: Style.DIM}
    return [Span("".join(signs), style) for style, signs in groupby(text, lambda sign: styles.get(sign, Style.RATE))]


def bar(share: float, width: int, marks: Marks) -> str:
    """A bar of `width` characters, filled to a share of it; shares above 0 are never blank."""
    if math.isnan(share):
        return marks.unknown.ljust(width)
    steps = len(marks.parts) - 1
    filled = round(min(max(share, 0.0), 1.0) * width * steps)
    if share > 0:
        filled = max(filled, 1)
    whole, rest = divmod(filled, steps)
    return (marks.parts[-1] * whole + (marks.parts[rest] if rest else "")).ljust(width)


def _level(share: float, marks: Marks) -> str:
    if math.isnan(share):
        return marks.unknown
    if share <= 0:
        return marks.levels[0]
    top = len(marks.levels) - 1
    return marks.levels[min(max(1, round(share * top)), top)]


def fit(columns: int, *choices: Sequence[str]) -> str:
    """The first choice whose parts all fit the columns; of the last one, the parts that do."""
    for parts in choices:
        text = "  ".join(parts)
        if len(text) <= columns:
            return text
    kept = list(choices[-1])
    while len(kept) > 1 and len("  ".join(kept)) > columns:
        kept.pop()
    return "  ".join(kept)


def clip(line: Line, columns: int) -> Line:
    """At most that many characters of a line."""
    out, left = [], columns
    for span in line:
        out.append(Span(span.text[:left], span.style))
        left -= len(out[-1].text)
    return tuple(out)
