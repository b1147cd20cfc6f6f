"""A view as lines of text for a terminal of any size."""

from __future__ import annotations

import datetime
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ibpulse.aggregator import NodeSummary, Summary
from ibpulse.terminal.view import SUMMARY_WINDOW_SECONDS, RailView, SamplerView, View
from ibpulse.text import gigabytes, percent, step_text

LEAST_COLUMNS, LEAST_ROWS = 60, 12
LABEL = 9
BAR = 8
NUMBER = 6
KEYS = "q quits"
MORE_KEYS = "q quits   + and - change the time scale"
MOST_NAMES = 4
MOST_NOTES = 2


@dataclass(frozen=True, slots=True)
class Marks:
    """Characters: `levels` from empty to full, `parts` for the last cell of a bar, and one for unknown values."""

    levels: str
    parts: str
    unknown: str


BLOCKS = Marks(" ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█", "·")
ASCII = Marks(" .:-=+*#@", " #", "?")


def sparkline(shares: Iterable[float], marks: Marks) -> str:
    """One character for each share of the full scale; shares above 0 are never blank, NaN is unknown."""
    return "".join([_level(share, marks) for share in shares])


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


class Style(Enum):
    """The kind of a piece of text; a terminal without colours shows them all alike."""

    PLAIN = "plain"
    TITLE = "title"
    DIM = "dim"
    RATE = "rate"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in one style."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The lines above and below the rails, and the number of lines between them."""

    head: list[Line]
    tail: list[Line]
    room: int


def lay_out(view: View, columns: int, rows: int, marks: Marks, note: str = "", first: int = 0) -> list[Line]:
    """At most `rows` lines of at most `columns` characters; `note` is the latest problem, `first` the first rail
    to show if they do not all fit.
    """
    if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        text = f"{columns} x {rows} is too small: ibpulse top needs {LEAST_COLUMNS} x {LEAST_ROWS}; {KEYS}"
        small: Line = (Span(text[:columns]),)
        return [small][:rows]
    frame = _frame(view, columns, rows, note)
    rails = _rail_lines(view, columns, frame.room, marks, first)
    return [_clip(line, columns) for line in (*frame.head, *rails, *frame.tail)]


def last_first(view: View, columns: int, rows: int, note: str = "") -> int:
    """The first rail to show so that the last one is shown too; 0 if all fit."""
    room = _frame(view, columns, rows, note).room
    return 0 if len(view.rails) <= room else len(view.rails) - max(1, room - 1)


def spark_width(view: View, columns: int) -> int:
    """Characters of a sparkline in a terminal with that many columns."""
    return max(8, columns - _name_width(view) - 2 * (1 + BAR + NUMBER) - 2)


def _frame(view: View, columns: int, rows: int, note: str) -> Frame:
    head = [_title(view, columns), *_node_lines(view), *_rail_summary(view)]
    # two rails and their heading take precedence over a long note
    notes = min(MOST_NOTES, max(1, rows - len(head) - 4))
    tail = [_sampler_line(view.sampler), *_last_lines(note, columns, notes)]
    return Frame(head, tail, rows - len(head) - len(tail) - 1)


def _title(view: View, columns: int) -> Line:
    when = datetime.datetime.fromtimestamp(view.wall_ns // 1_000_000_000, datetime.UTC)
    right = f"every {view.interval_ns / 1e6:g} ms  {when:%H:%M:%S} UTC"
    left = f"ibpulse  {view.place}"
    return (Span(left[: columns - len(right) - 1].ljust(columns - len(right)), Style.TITLE), Span(right, Style.TITLE))


def _node_lines(view: View) -> list[Line]:
    if view.summary is None:
        return [_labelled("node", "no second is complete yet" if view.rails else "-")]
    node = view.summary.node
    transmit, receive = node.transmit_bytes_per_second, node.receive_bytes_per_second
    total = None if transmit is None or receive is None else transmit + receive
    scales = [f"{value:.2f} ({scale})" for scale, value in node.burstiness_cv.items() if value is not None]
    return [
        _labelled(
            "node",
            f"{gigabytes(total)} GB/s  transmit {gigabytes(transmit)}  receive {gigabytes(receive)}  "
            f"last {SUMMARY_WINDOW_SECONDS} s",
        ),
        _labelled(
            "",
            f"active mean {gigabytes(node.bandwidth_active_mean_bytes_per_second)}  "
            f"peak {gigabytes(node.bandwidth_peak_bytes_per_second)}  duty cycle {percent(node.duty_cycle_ratio)}",
        ),
        _labelled("CV", "  ".join(scales) or "-"),
        _labelled("step", _step(node)),
    ]


def _step(node: NodeSummary) -> str:
    return (
        f"{step_text(node.step_period_seconds)} (score {node.step_period_score:.2f})  "
        f"signature {node.workload_signature} (confidence {node.workload_signature_confidence:.2f})"
    )


def _rail_summary(view: View) -> list[Line]:
    if view.summary is None:
        return [_labelled("rails", str(len(view.rails)))]
    node = view.summary.node
    text = f"{node.active_rails} of {node.rails} active"
    text += "" if node.rail_fairness_ratio is None else f"  fairness {node.rail_fairness_ratio:.3f}"
    text += f"  other ports: {view.others}" if view.others else ""
    faults = "  ".join(
        f"{len(names)} {word}: {_few(names)}" for word, names in _rail_problems(view, view.summary) if names
    )
    named: list[Line] = [(Span(" " * (LABEL + 1)), Span(faults, Style.WARNING))] if faults else []
    return [_labelled("rails", text), *named]


def _rail_problems(view: View, summary: Summary) -> list[tuple[str, list[str]]]:
    """Possible problems of rails, each with the names of the rails that have it."""
    down = [rail.name for rail in view.rails if not rail.active]
    unread = [rail.name for rail in view.rails if rail.active and rail.means == (None, None)]
    others = [port for port in summary.ports if port.port not in (*down, *unread)]
    return [
        ("down", down),
        ("not read", unread),
        ("idle", [port.port for port in others if port.rail_idle]),
        ("slow", [port.port for port in others if port.rail_slow]),
    ]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


def _rail_lines(view: View, columns: int, room: int, marks: Marks, first: int) -> list[Line]:
    """The table of rails, including its heading."""
    if not view.rails:
        return [(Span("no rails: no port's bytes are counted; see `ibpulse doctor`"),)]
    name, spark = _name_width(view), spark_width(view, columns)
    span = f"last {spark * view.bin_ns / 1e9:.3g} s, peaks of {view.bin_ns / 1e6:g} ms"
    heading = f"{'rail'.ljust(name)} {span[:spark].ljust(spark)}"
    heading += "".join(f" {way:>{BAR + NUMBER}}" for way in ("transmit GB/s", "receive GB/s"))
    whole = len(view.rails) <= room
    count = len(view.rails) if whole else max(1, room - 1)
    first = min(max(0, first), len(view.rails) - count)
    full = _full_scale(view.rails)
    shown = [_rail_line(rail, name, spark, full, marks) for rail in view.rails[first : first + count]]
    rest = f"rails {first + 1} to {first + count} of {len(view.rails)}; arrow keys show the others"
    return [(Span(heading, Style.DIM),), *shown, *([] if whole else [(Span(rest, Style.DIM),)])]


def _rail_line(rail: RailView, name: int, spark: int, full: float, marks: Marks) -> Line:
    label = Span(rail.name[:name].ljust(name), Style.PLAIN if rail.active else Style.WARNING)
    if not rail.active:
        return (label, Span(f" {rail.state or 'not active'}", Style.WARNING))
    scale = rail.rate_bytes_per_second or full
    # the busier of the two directions
    shares = np.fmax(rail.peaks[0], rail.peaks[1])[-spark:] / scale
    spans = [label, Span(f" {sparkline(shares.tolist(), marks).rjust(spark)}", Style.RATE)]
    for mean in rail.means:
        share = float("nan") if mean is None else mean / scale
        spans += [Span(f" {bar(share, BAR, marks)}", Style.RATE), Span(f"{gigabytes(mean):>{NUMBER}}")]
    return tuple(spans)


def _full_scale(rails: Sequence[RailView]) -> float:
    """Full scale of rails with unknown data rate: the highest value of all."""
    highest = [float(np.nanmax(rail.peaks)) for rail in rails if not np.isnan(rail.peaks).all()]
    return max([*highest, 1.0])


def _name_width(view: View) -> int:
    return min(max([LABEL, *(len(rail.name) for rail in view.rails)]), 20)


def _sampler_line(sampler: SamplerView | None) -> Line:
    if sampler is None:
        return _labelled("sampler", "no data yet")
    all_ticks = sampler.ticks + sampler.missed
    kept = sampler.ticks / all_ticks if all_ticks else None
    text = (
        f"{percent(kept)} captured  wake-up delay {step_text(sampler.lateness_seconds)}  "
        f"{sampler.read_errors:.0f} read errors  {sampler.restarts:.0f} restarts"
    )
    return _labelled("sampler", text)


def _last_lines(note: str, columns: int, most: int) -> list[Line]:
    if not note:
        return [(Span(MORE_KEYS, Style.DIM),)]
    told = textwrap.wrap(note, columns - LABEL - 1)
    if len(told) > most:
        told = [*told[: most - 1], " ".join(told[most - 1 :])]
    return [
        (Span(("" if row else KEYS).ljust(LABEL + 1), Style.DIM), Span(text, Style.WARNING))
        for row, text in enumerate(told)
    ]


def _labelled(label: str, text: str) -> Line:
    return (Span(label.ljust(LABEL + 1), Style.DIM), Span(text))


def _clip(line: Line, columns: int) -> Line:
    out, left = [], columns
    for span in line:
        out.append(Span(span.text[:left], span.style))
        left -= len(out[-1].text)
    return tuple(out)
