"""HTML for notebooks: a heading with facts, a table, and sparklines. It follows the colours of the notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ibpulse.arrays import Floats
from ibpulse.text import escape_controls

SPARK_WIDTH, SPARK_HEIGHT = 220, 22
MOST_ROWS = 64
_STYLE = (
    "<style>.ibpulse{font-variant-numeric:tabular-nums}.ibpulse p{margin:.2em 0;opacity:.75}"
    ".ibpulse table{border-collapse:collapse;margin:.4em 0}.ibpulse th,.ibpulse td{padding:.15em .7em;"
    "text-align:left;border:0;border-top:1px solid rgba(128,128,128,.3)}"
    ".ibpulse .n{text-align:right;white-space:nowrap}.ibpulse svg{vertical-align:middle}"
    ".ibpulse .warn{color:#d55e00;font-weight:600}</style>"
)


class Markup(str):
    """HTML that is inserted as it is; any other text is escaped."""

    __slots__ = ()


def text(value: str) -> str:
    """A text of unknown origin as HTML."""
    return value if isinstance(value, Markup) else html.escape(escape_controls(value))


def document(title: str, facts: Iterable[str], head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, facts in one line, and a table of at most `MOST_ROWS` rows."""
    kinds = [' class="n"' if place and _is_number(cell) else "" for place, cell in enumerate(rows[0] if rows else head)]
    shown = [_row("td", row, kinds) for row in rows[:MOST_ROWS]]
    more = f"<p>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    table = f"<table><thead>{_row('th', head, kinds)}</thead><tbody>{''.join(shown)}</tbody></table>" if rows else ""
    about = " · ".join(map(text, facts))
    return f'<div class="ibpulse">{_STYLE}<strong>{text(title)}</strong><p>{about}</p>{table}{more}</div>'


def _row(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}{kind}>{text(cell)}</{tag}>' for cell, kind in zip(cells, kinds, strict=True))}</tr>"


def _is_number(cell: str) -> bool:
    """Whether a cell begins like a number, or is an unknown one."""
    return not isinstance(cell, Markup) and (cell[:1].isdigit() or cell[:1] in "+-")


def warning(words: str) -> Markup:
    """A word that stands out."""
    return Markup(f'<span class="warn">{text(words)}</span>')


def spark(values: Floats, top: float, missing: str = "missing data") -> Markup:
    """The highest of `values` (samples,) in each of at most `SPARK_WIDTH` columns, up to `top`, as an SVG.

    NaN is a grey column on the whole height, and never a value.
    """
    ticks = max(1, -(-len(values) // SPARK_WIDTH))
    starts = np.arange(0, len(values), ticks)
    highest = np.fmax.reduceat(values, starts) if len(values) else values
    width = SPARK_WIDTH / max(1, len(highest))
    bars, holes = [], []
    for place, value in enumerate(highest.tolist()):
        x = round(place * width, 2)
        if math.isnan(value):
            holes.append(f"M{x} 0h{width:.2f}v{SPARK_HEIGHT}h-{width:.2f}z")
        elif value > 0:
            # the smallest traffic is visible
            height = max(0.8, min(value / top, 1.0) * SPARK_HEIGHT) if top > 0 else 0.8
            bars.append(f"M{x} {SPARK_HEIGHT}v-{height:.2f}h{width:.2f}v{height:.2f}z")
    return Markup(
        f'<svg width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" role="img">'
        f'<rect width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" fill="currentColor" opacity=".06"/>'
        + (f'<path d="{"".join(holes)}" fill="#888" opacity=".45"><title>{missing}</title></path>' if holes else "")
        + f'<path d="{"".join(bars)}" fill="#2a8fd0"/></svg>'
    )
