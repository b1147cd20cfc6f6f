"""The table of rails: a sparkline and two bars for each, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ibpulse.base.text import gigabytes
from ibpulse.workbench.top.styled_text import Line, Marks, Span, Style, bar, color_sparkline, sparkline
from ibpulse.workbench.top.view import RailView, View, clock_text

NAME, MOST_NAME = 9, 20
TAG = 5
BAR = 8
NUMBER = 6
LEAST_SPARK = 8
MOST_JOB = 10
# narrower terminals need the columns for the sparklines
JOB_COLUMNS = 80


def spark_width(view: View, columns: int) -> int:
    """Characters of a sparkline in a terminal with that many columns."""
    left = columns - _name_width(view) - _job_width(view, columns) - _tag_width(view)
    return max(LEAST_SPARK, left - 2 * (1 + BAR + NUMBER) - 2)


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


def _jobs_differ(view: View) -> bool:
    """Whether the rails have different jobs; the only job of all rails is no property of a rail."""
    return len({rail.jobs for rail in view.rails}) > 1


def _job_width(view: View, columns: int) -> int:
    """The width of the column of jobs, with the space before it; 0 without one."""
    if columns < JOB_COLUMNS or not _jobs_differ(view):
        return 0
    return 1 + min(MOST_JOB, max(len("job"), *(len(_job_words(rail)) for rail in view.rails)))


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
    return min(max([NAME, *(len(rail.name) for rail in view.rails)]), MOST_NAME)
