"""The events of a recording as numbered marks on its time line, bounded, with a line of text for each mark."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ibpulse.base.text import count_text, first_names, natural_key
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.events import Event
from ibpulse.workbench.pictures.figure import SMALL, TINY, Axes, Colours
from ibpulse.workbench.pictures.panels import LINE_STEP, Page, time_unit
from ibpulse.workbench.pictures.picture_run import PictureRun

STRIP_INCHES = 0.2
# between the numbers of two marks
LEAST_INCHES = 0.2
# per point of the size of small letters, of which these texts consist
LETTER_INCHES = 0.007
# a number stays with its unit
FIXED_SPACE = "\u00a0"
MOST_KINDS, MOST_SUBJECTS = 3, 3


@dataclass(frozen=True, slots=True)
class EventMarks:
    """The events of a run, in groups of neighbours that share one mark.

    `lines` are the texts, `times` (events,) the times at which the events were noticed and `earliest` (events,) those
    before which they did not happen, in seconds since the beginning of the run.
    """

    run: PictureRun
    groups: tuple[tuple[Event, ...], ...]
    lines: tuple[str, ...]
    times: Floats
    earliest: Floats

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def places(self) -> list[float]:
        """The time of each mark: that of its first event."""
        return [_seconds(self.run, group[0]) for group in self.groups]

    def draw_strip(self, axes: Axes, colours: Colours) -> None:
        """A strip above a plot over time: a tick for each event, a line back to its earliest time, and the numbers."""
        axes.set_axis_off()
        axes.set_xlim(0.0, self.run.span_seconds)
        axes.set_ylim(0.0, 1.0)
        axes.hlines(np.full(len(self.times), 0.12), self.earliest, self.times, color=colours.text, linewidth=0.8)
        axes.vlines(self.times, 0.0, 0.34, color=colours.text, linewidth=0.8)
        for number, place in enumerate(self.places, start=1):
            axes.text(place, 0.4, f"{number}", fontsize=TINY, ha="center", color=colours.text, weight="bold")

    def draw_lines(self, axes: Axes, colours: Colours) -> None:
        """A thin line through a plot over time for each mark."""
        size, _ = time_unit(self.run.span_seconds)
        for place in self.places:
            axes.axvline(place / size, color=colours.text, linewidth=0.6, linestyle=(0, (2, 2)), zorder=0.8)

    def write(self, page: Page, left: float, top: float) -> None:
        """The texts, below each other."""
        for line, text in enumerate(self.lines):
            page.write(left, top + LINE_STEP * line, text, SMALL, color=page.colours.faint)


def gather_marks(run: PictureRun, inches: float, most: int) -> EventMarks:
    """The events of a run as at most `most` marks on a time line of that width, which do not overlap.

    Events that are close to each other share a mark; none is left out. A text has at most two lines.
    """
    times = np.array([_seconds(run, event) for event in run.events])
    unsure = np.array([event.uncertainty_ns / SECOND_NS for event in run.events])
    groups = tuple(
        run.events[first:end] for first, end in _group(times, LEAST_INCHES / inches * run.span_seconds, most)
    )
    letters = int(inches / (SMALL * LETTER_INCHES))
    lines = []
    for number, group in enumerate(groups, start=1):
        text = f"{number}  {_describe(run, group)}"
        lines += textwrap.wrap(
            text, letters, subsequent_indent="    ", max_lines=2, placeholder=" …", break_on_hyphens=False
        )
    return EventMarks(run, groups, tuple(lines), times, np.maximum(times - unsure, 0.0))


def _group(times: Floats, least: float, most: int) -> list[tuple[int, int]]:
    """At most `most` groups of sorted times, whose first times are more than `least` apart: first place and end."""
    edges: list[int] = []
    for place, time in enumerate(times.tolist()):
        if not edges or time - times[edges[-1]] > least:
            edges.append(place)
    while len(edges) > most:
        gaps = [times[edge] - times[edge - 1] for edge in edges[1:]]
        del edges[1 + int(np.argmin(gaps))]
    return list(pairwise([*edges, len(times)]))


def _seconds(run: PictureRun, event: Event) -> float:
    return (event.time_ns - run.begin_ns) / SECOND_NS


def _describe(run: PictureRun, events: tuple[Event, ...]) -> str:
    """Time and text of an event; of several the span, their kinds and their ports."""
    size, sign = time_unit(run.span_seconds)
    digits = 0 if run.span_seconds >= 1000 * size else 1 if run.span_seconds >= 100 * size else 2
    begin, end = (f"{_seconds(run, events[place]) / size:.{digits}f}" for place in (0, -1))
    when = (begin if begin == end else f"{begin} to {end}") + FIXED_SPACE + sign
    if len(events) == 1:
        return f"{when}  {events[0].text}"
    kinds = Counter(event.kind for event in events).most_common()
    rest = sum(number for _, number in kinds[MOST_KINDS:])
    counted = [*kinds[:MOST_KINDS], *([("more", rest)] if rest else [])]
    parts = [f"{number}{FIXED_SPACE}{kind}" for kind, number in counted]
    subjects = sorted({event.subject for event in events if event.subject}, key=natural_key)
    named = f" ({first_names(subjects, MOST_SUBJECTS)})" if subjects else ""
    return f"{when}  {count_text(len(events), 'event')}: {', '.join(parts)}{named}"
