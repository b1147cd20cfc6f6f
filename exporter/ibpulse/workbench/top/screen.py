"""A view as lines of styled text for a terminal of any size."""

from __future__ import annotations

import datetime
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ibpulse.base.text import gigabytes, percent, step_text
from ibpulse.core.events import Event
from ibpulse.workbench.top.view import SUMMARY_WINDOW_SECONDS, TROUBLES, RailView, SamplerView, View, clock_text

if TYPE_CHECKING:
    from ibpulse.core.answers.summary import NodeSummary

MIN_COLUMNS, MIN_ROWS = 60, 12
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
"""The meanings of the parts of the screen."""
SCALE_KEYS = ("+ and - change the time scale", "+ - time scale")
LEGEND = ("blank: no traffic", "missing", "link down")
SHORT_KEYS, SHORT_LEGEND = "+ - scale", ("blank: none", "missing", "down")
MAX_NAMES = 4
MAX_NOTES = 2
# with this many rows one event takes precedence over a rail
EVENT_ROWS = 20
MAX_EVENTS = 8
ALARMS = ("link-down", "link-flap", "disappeared", "unreadable", "quarantined")
# columns of the table of rails
NAME, MAX_NAME = 9, 20
TAG = 5
BAR = 8
NUMBER = 6
MIN_SPARK = 8
MAX_JOB = 10
# narrower terminals need the columns for the sparklines
JOB_COLUMNS = 80


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


def spark_width(view: View, columns: int) -> int:
    """Characters of a sparkline in a terminal with that many columns."""
    left = columns - _name_width(view) - _job_width(view, columns) - _tag_width(view)
    return max(MIN_SPARK, left - 2 * (1 + BAR + NUMBER) - 2)


def rail_lines(view: View, columns: int, room: int, marks: Marks, first: int) -> list[Line]:
    """The table, including its heading: `room` lines for the rails from `first` on."""
    if not view.rails:
        return [(Span("no rails: no port's bytes are counted; see `ibpulse doctor`"),)]
    job, spark = _job_width(view, columns), spark_width(view, columns)
    name = _name_width(view) + _tag_width(view)
    span = f"last {spark * view.bin_ns / 1e9:.3g} s, peaks of {view.bin_ns / 1e6:g} ms"
    if len(span) > spark:
        span = span.partition(",")[0]
    heading = f"{'rail'.ljust(name)}{' job'.ljust(job) if job else ''} {span[:spark].ljust(spark)}"
    heading += "".join(f" {way:>{BAR + NUMBER}}" for way in ("transmit GB/s", "receive GB/s"))
    whole = len(view.rails) <= room
    count = len(view.rails) if whole else max(1, room - 1)
    first = min(max(0, first), len(view.rails) - count)
    full = _full_scale(view.rails)
    tags = _tags(view) if _tag_width(view) else {}
    shown = [
        _rail_line(rail, name, tags.get(rail.name, ""), _job_text(rail, job), spark, full, marks)
        for rail in view.rails[first : first + count]
    ]
    rest = f"rails {first + 1} to {first + count} of {len(view.rails)}; arrow keys show the others"
    return [(Span(heading, Style.DIM),), *shown, *([] if whole else [(Span(rest, Style.DIM),)])]


def _rail_line(rail: RailView, name: int, tag: str, job: str, spark: int, full: float, marks: Marks) -> Line:
    scale = rail.rate_bytes_per_second or full
    # the busier of the two directions
    shares = np.fmax(rail.peaks[0], rail.peaks[1])[-spark:] / scale
    signs = np.array(list(sparkline(shares.tolist(), marks)), dtype=np.str_)
    signs[rail.down[-spark:]] = marks.down
    past = color_sparkline(f" {''.join(signs.tolist()).rjust(spark)}", marks)
    owner = (Span(job, Style.DIM),) if job else ()
    label = rail.name[: name - len(tag) - 1] if tag else rail.name[:name]
    if rail.trouble:
        since = "" if rail.since_ns is None else f" since {clock_text(rail.since_ns, rail.now_ns)}"
        return (
            Span(label.ljust(name), Style.ALARM),
            *owner,
            *past,
            Span(f" {rail.trouble}{since}", Style.ALARM),
        )
    spans = [Span(label), Span(tag.rjust(name - len(label)), Style.WARNING), *owner, *past]
    for mean in rail.means:
        share = float("nan") if mean is None else mean / scale
        spans += [Span(f" {bar(share, BAR, marks)}", Style.RATE), Span(f"{gigabytes(mean):>{NUMBER}}")]
    return tuple(spans)


def _tags(view: View) -> Mapping[str, str]:
    """The words `idle` and `slow` for the rails that are."""
    ports = () if view.summary is None else view.summary.ports
    found = {port.port: "idle" if port.rail_idle else "slow" for port in ports if port.rail_idle or port.rail_slow}
    return {rail.name: found[rail.name] for rail in view.rails if rail.name in found and not rail.trouble}


def _tag_width(view: View) -> int:
    return TAG if _tags(view) else 0


def _job_width(view: View, columns: int) -> int:
    """The width of the column of jobs, with the space before it; 0 without one."""
    # the only job of all rails is no property of a rail
    if columns < JOB_COLUMNS or len({rail.jobs for rail in view.rails}) < 2:
        return 0
    return 1 + min(MAX_JOB, max(len("job"), *(len(_job_words(rail)) for rail in view.rails)))


def _job_words(rail: RailView) -> str:
    first, *others = rail.jobs or ("",)
    return f"{first} +{len(others)}" if others else first


def _job_text(rail: RailView, width: int) -> str:
    """The cell of a rail; an id that is too long keeps its end, which distinguishes it."""
    text = _job_words(rail)
    return f" {text[len(text) - min(len(text), width - 1) :].ljust(width - 1)}" if width else ""


def _full_scale(rails: Sequence[RailView]) -> float:
    """Full scale of rails with unknown data rate: the highest value of all."""
    highest = [float(np.nanmax(rail.peaks)) for rail in rails if not np.isnan(rail.peaks).all()]
    return max([*highest, 1.0])


def _name_width(view: View) -> int:
    return min(max([NAME, *(len(rail.name) for rail in view.rails)]), MAX_NAME)


def lay_out(view: View, columns: int, rows: int, marks: Marks, note: str = "", first: int = 0) -> list[Line]:
    """At most `rows` lines of at most `columns` characters; `note` is the latest problem, `first` the first rail
    to show if they do not all fit.
    """
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        text = f"{columns} x {rows} is too small: ibpulse top needs {MIN_COLUMNS} x {MIN_ROWS}; {KEYS}"
        small: Line = (Span(text[:columns]),)
        return [small][:rows]
    head, tail, room = _frame(view, columns, rows, marks, note)
    return [clip(line, columns) for line in (*head, *rail_lines(view, columns, room, marks, first), *tail)]


def lay_out_help(columns: int, rows: int, marks: Marks) -> list[Line]:
    """The keys and the meanings, in at most `rows` lines of at most `columns` characters."""
    title: Line = (Span("ibpulse top: help".ljust(columns), Style.TITLE),)
    signs = {"unknown": marks.unknown, "down": marks.down}
    lines = [(Span(f" {name.format(**signs):12} "), Span(text, Style.DIM)) for name, text in (*HELP, *MEANINGS)]
    gap: Line = (Span(""),)
    # the shortest terminal has no room for the gap
    parts = [title, *lines[: len(HELP)], *([gap] if rows > len(lines) + 1 else []), *lines[len(HELP) :]]
    return [clip(line, columns) for line in parts[:rows]]


def last_first(view: View, columns: int, rows: int, marks: Marks, note: str = "") -> int:
    """The first rail to show so that the last one is shown too; 0 if all fit."""
    *_, room = _frame(view, columns, rows, marks, note)
    return 0 if len(view.rails) <= room else len(view.rails) - max(1, room - 1)


def _frame(view: View, columns: int, rows: int, marks: Marks, note: str) -> tuple[list[Line], list[Line], int]:
    """The lines above and below the rails, and the number of lines between them."""
    head = [_title(view, columns), *_node_lines(view, columns), *_rail_summary(view, columns)]
    # two rails and their heading take precedence over a long note
    notes = min(MAX_NOTES, max(1, rows - len(head) - 4))
    tail = [_sampler_line(view.sampler, columns), *_last_lines(note, columns, marks, notes)]
    room = rows - len(head) - len(tail) - 1
    events = _event_lines(view, columns, min(MAX_EVENTS, max(room - len(view.rails), int(rows >= EVENT_ROWS))))
    return head, [*events, *tail], room - len(events)


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
        *([_labelled("limits", fit(room, limits))] if (limits := _limit_words(view)) else []),
    ]


def _limit_words(view: View) -> list[str]:
    """The signs of what limited transmit, with their shares, if any is known."""
    known = any(sign != "unknown" for sign, _ in view.limits)
    return [f"{sign} {share * 100:.0f} %" for sign, share in view.limits] if known else []


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
        choices = [[_count(word, names, most) for word, names in named.items()] for most in range(MAX_NAMES, -1, -1)]
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
    wrapped = textwrap.wrap(note, columns - LABEL - 1)
    if len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], " ".join(wrapped[most - 1 :])]
    return [
        (Span(("" if row else KEYS).ljust(LABEL + 1), Style.DIM), Span(text, Style.WARNING))
        for row, text in enumerate(wrapped)
    ]


def _labelled(label: str, text: str) -> Line:
    return (Span(label.ljust(LABEL + 1), Style.DIM), Span(text))
