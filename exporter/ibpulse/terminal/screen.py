"""A view as lines of text for a terminal of any size."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibpulse.events import Event
from ibpulse.terminal.rail_table import rail_lines, spark_width
from ibpulse.terminal.styled_text import Line, Marks, Span, Style, clip, fit
from ibpulse.terminal.view import SUMMARY_WINDOW_SECONDS, TROUBLES, SamplerView, View, clock_text
from ibpulse.text import gigabytes, percent, step_text

if TYPE_CHECKING:
    from ibpulse.answers.summary import NodeSummary

__all__ = ["LEAST_COLUMNS", "LEAST_ROWS", "last_first", "lay_out", "spark_width"]

LEAST_COLUMNS, LEAST_ROWS = 60, 12
LABEL = 9
KEYS = "q quits"
HELP_KEY = "? help"
HELP = (
    ("q, Ctrl-C", "quit"),
    ("?, h", "show or hide this help"),
    ("+, -", "finer or coarser time scale"),
    ("arrows, j k", "scroll; also PgUp PgDn, Home End"),
    ("Ctrl-L", "redraw"),
)
"""The keys and what they do."""
MEANINGS = (
    ("sparkline", "peaks of the busier direction"),
    ("blank", "no traffic; any traffic at all is visible"),
    ("{unknown}", "missing data, never drawn as silence"),
    ("{down}", "the link was down"),
    ("bars", "means of the last second, of the line rate"),
    ("idle, slow", "below 5 %, 75 % of the median rail"),
    ("node, CV", "over the last 10 s; 1 GB = 10^9 bytes"),
)
"""What the parts of the screen mean."""
SCALE_KEYS = ("+ and - change the time scale", "+ - time scale")
LEGEND = ("blank: no traffic", "missing", "link down")
SHORT_KEYS, SHORT_LEGEND = "+ - scale", ("blank: none", "missing", "down")
MOST_NAMES = 4
MOST_NOTES = 2
# with this many rows one event takes precedence over a rail
EVENT_ROWS = 20
MOST_EVENTS = 8
ALARMS = ("link-down", "link-flap", "disappeared", "unreadable", "quarantined")


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
    frame = _frame(view, columns, rows, marks, note)
    rails = rail_lines(view, columns, frame.room, marks, first)
    return [clip(line, columns) for line in (*frame.head, *rails, *frame.tail)]


def lay_out_help(columns: int, rows: int, marks: Marks) -> list[Line]:
    """The keys and the meanings, in at most `rows` lines of at most `columns` characters."""
    title: Line = (Span("ibpulse top: help".ljust(columns), Style.TITLE),)
    signs = {"unknown": marks.unknown, "down": marks.down}
    told = [(Span(f" {name.format(**signs):12} "), Span(text, Style.DIM)) for name, text in (*HELP, *MEANINGS)]
    gap: Line = (Span(""),)
    # the shortest terminal has no room for the gap
    parts = [title, *told[: len(HELP)], *([gap] if rows > len(told) + 1 else []), *told[len(HELP) :]]
    return [clip(line, columns) for line in parts[:rows]]


def last_first(view: View, columns: int, rows: int, marks: Marks, note: str = "") -> int:
    """The first rail to show so that the last one is shown too; 0 if all fit."""
    room = _frame(view, columns, rows, marks, note).room
    return 0 if len(view.rails) <= room else len(view.rails) - max(1, room - 1)


def _frame(view: View, columns: int, rows: int, marks: Marks, note: str) -> Frame:
    head = [_title(view, columns), *_node_lines(view, columns), *_rail_summary(view, columns)]
    # two rails and their heading take precedence over a long note
    notes = min(MOST_NOTES, max(1, rows - len(head) - 4))
    tail = [_sampler_line(view.sampler, columns), *_last_lines(note, columns, marks, notes)]
    room = rows - len(head) - len(tail) - 1
    events = _event_lines(view, columns, min(MOST_EVENTS, max(room - len(view.rails), int(rows >= EVENT_ROWS))))
    return Frame(head, [*events, *tail], room - len(events))


def _title(view: View, columns: int) -> Line:
    when = datetime.datetime.fromtimestamp(view.wall_ns // 1_000_000_000, datetime.UTC)
    right = f"every {view.interval_ns / 1e6:g} ms  {when:%H:%M:%S} UTC"
    if view.simulated:
        right = f"SIMULATED  {right}"
    left = f"ibpulse  {view.place}"
    return (Span(left[: columns - len(right) - 1].ljust(columns - len(right)), Style.TITLE), Span(right, Style.TITLE))


def _node_lines(view: View, columns: int) -> list[Line]:
    if view.summary is None:
        return [_labelled("node", "no second is complete yet" if view.rails else "-")]
    node = view.summary.node
    transmit, receive = node.transmit_bytes_per_second, node.receive_bytes_per_second
    total = None if transmit is None or receive is None else transmit + receive
    scales = [f"{value:.2f} ({scale})" for scale, value in node.burstiness_cv.items() if value is not None]
    moved = [
        f"{gigabytes(total)} GB/s",
        f"transmit {gigabytes(transmit)}",
        f"receive {gigabytes(receive)}",
        f"last {SUMMARY_WINDOW_SECONDS} s",
    ]
    active, duty = (
        f"active mean {gigabytes(node.bandwidth_active_mean_bytes_per_second)}",
        f"duty cycle {percent(node.duty_cycle_ratio)}",
    )
    peak = f"peak {gigabytes(node.bandwidth_peak_bytes_per_second)}"
    room = columns - LABEL - 1
    return [
        _labelled("node", fit(room, moved)),
        _labelled("", fit(room, *([active, f"{peak}{share}", duty] for share in _shares_of_line(node)))),
        _labelled("CV", fit(room, scales or ["-"])),
        _labelled("step", _step(node, room)),
    ]


def _shares_of_line(node: NodeSummary) -> tuple[str, ...]:
    """The peak as a share of the line rate, in words of several lengths, the longest first; empty if unknown."""
    if node.bandwidth_peak_utilization_ratio is None:
        return ("",)
    share, line = percent(node.bandwidth_peak_utilization_ratio), gigabytes(node.line_rate_bytes_per_second)
    return f" ({share} of line rate {line})", f" ({share} of {line})", ""


def _step(node: NodeSummary, room: int) -> str:
    period, score = step_text(node.step_period_seconds), f"{node.step_period_score:.2f}"
    signature, confidence = node.workload_signature, f"{node.workload_signature_confidence:.2f}"
    return fit(
        room,
        [f"{period} (score {score})", f"signature {signature} (confidence {confidence})"],
        [f"{period} (score {score})", f"signature {signature} ({confidence})"],
    )


def _rail_summary(view: View, columns: int) -> list[Line]:
    troubles = _troubles(view)
    count, bad = len(view.rails), sum(map(len, troubles.values())) - len(troubles["slow"])
    parts = [f"{count}"]
    if view.summary is not None:
        # the summary looks back for seconds, so a rail that has just gone down may still be among them
        parts = [f"{min(view.summary.node.active_rails, count - bad)} of {count} rails active"]
    elif bad:
        parts = [f"{count - bad} of {count} links up"]
    if view.summary is not None and view.summary.node.rail_fairness_ratio is not None:
        parts.append(f"fairness {view.summary.node.rail_fairness_ratio:.3f}")
    jobs = list(dict.fromkeys(job for rail in view.rails for job in rail.jobs))
    if jobs:
        # with several jobs each rail names its own
        parts.append(f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs")
    if view.others:
        parts.append(f"other ports: {view.others}")
    lines = [_labelled("rails", fit(columns - LABEL - 1, parts))]
    named = {word: names for word, names in troubles.items() if names}
    if named:
        choices = [[_count(word, names, most) for word, names in named.items()] for most in range(MOST_NAMES, -1, -1)]
        lines.append((Span(" " * (LABEL + 1)), Span(fit(columns - LABEL - 1, *choices), Style.WARNING)))
    return lines


def _troubles(view: View) -> dict[str, list[str]]:
    """Possible problems of rails, each with the names of the rails that have it; a rail has one."""
    found: dict[str, list[str]] = {word: [] for word in ("down", *TROUBLES, "not read", "idle", "slow")}
    rated = {} if view.summary is None else {port.port: port for port in view.summary.ports}
    for rail in view.rails:
        port = rated.get(rail.name)
        if rail.trouble:
            word = rail.state if rail.state in TROUBLES else "down"
        elif rail.means == (None, None):
            word = "not read"
        elif port is not None and (port.rail_idle or port.rail_slow):
            word = "idle" if port.rail_idle else "slow"
        else:
            continue
        found[word].append(rail.name)
    return found


def _count(word: str, names: Sequence[str], most: int) -> str:
    if not most:
        return f"{len(names)} {word}"
    return f"{len(names)} {word}: {', '.join(names[:most])}" + (", ..." if len(names) > most else "")


def _event_lines(view: View, columns: int, most: int) -> list[Line]:
    """The newest events, the newest first."""
    newest = view.events[::-1][:most]
    return [_event_line("" if place else "events", event, view.wall_ns, columns) for place, event in enumerate(newest)]


def _event_line(label: str, event: Event, now_ns: int, columns: int) -> Line:
    when = clock_text(event.time_ns, now_ns)
    text = f"{when}  {event.text}"
    room = columns - LABEL - 1
    shown = text if len(text) <= room else f"{text[: room - 3]}..."
    style = Style.WARNING if event.kind in ALARMS else Style.PLAIN
    return (Span(label.ljust(LABEL + 1), Style.DIM), Span(shown, style))


def _sampler_line(sampler: SamplerView | None, columns: int) -> Line:
    if sampler is None:
        return _labelled("sampler", "no data yet")
    all_ticks = sampler.ticks + sampler.missed
    kept = percent(sampler.ticks / all_ticks if all_ticks else None)
    errors = [f"{sampler.read_errors:.0f} read errors", f"{sampler.restarts:.0f} restarts"]
    delay = f"wake-up delay {step_text(sampler.lateness_seconds)}"
    room = columns - LABEL - 1
    return _labelled("sampler", fit(room, [f"{kept} captured", delay, *errors], [f"{kept} captured", *errors]))


def _last_lines(note: str, columns: int, marks: Marks, most: int) -> list[Line]:
    """The keys with a legend of the sparklines, or the note."""
    if not note:
        choices = [
            [KEYS, HELP_KEY, keys, blank, f"{marks.unknown} {missing}", f"{marks.down} {down}"]
            for keys, (blank, missing, down) in (
                *((keys, LEGEND) for keys in SCALE_KEYS),
                (SHORT_KEYS, SHORT_LEGEND),
            )
        ]
        return [(Span(fit(columns, *choices), Style.DIM),)]
    told = textwrap.wrap(note, columns - LABEL - 1)
    if len(told) > most:
        told = [*told[: most - 1], " ".join(told[most - 1 :])]
    return [
        (Span(("" if row else KEYS).ljust(LABEL + 1), Style.DIM), Span(text, Style.WARNING))
        for row, text in enumerate(told)
    ]


def _labelled(label: str, text: str) -> Line:
    return (Span(label.ljust(LABEL + 1), Style.DIM), Span(text))
