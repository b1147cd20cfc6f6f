"""The values of the live view, and the bins it keeps between two refreshes."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Singles
from ibpulse.core.events import Event
from ibpulse.core.events.log import StateSpan

if TYPE_CHECKING:
    # pydantic is slow to import, and the terminal is looked at first
    from ibpulse.core.answers.summary import Summary

SUMMARY_WINDOW_SECONDS = 10
# the costliest part of a view: every two seconds it took half of the CPU of `ibpulse top`, which was 2.3 % of a core
SUMMARY_EVERY_SECONDS = 2
TROUBLES = ("unreadable", "hung", "disappeared")
"""Words for the state of a port that cannot be read."""
DAY_SECONDS = 86_400
# how far back events are shown
EVENTS_NS = 3600 * SECOND_NS
MAX_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class RailView:
    """One rail: `peaks` float32 (2, points) are the highest rates of each bin, `means` those of the last second,
    transmit and receive, None for missing data. `rate_bytes_per_second` is the data rate of one direction.

    `state` is the kernel's word for the link, or one of `TROUBLES`, at the wall time `now_ns`; it began at `since_ns`,
    None if that is unknown. `down` (points,) marks bins without traffic in which the link was down. `jobs` are the ids
    of the jobs that have it.
    """

    name: str
    active: bool
    state: str
    rate_bytes_per_second: float | None
    peaks: Singles
    means: tuple[float | None, float | None]
    down: Bools
    since_ns: int | None = None
    now_ns: int = 0
    jobs: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """The state in words if the port cannot carry traffic or nothing is known about it, otherwise empty."""
        if self.active and self.state not in TROUBLES:
            return ""
        return self.state or "not active"


@dataclass(frozen=True, slots=True)
class SamplerView:
    """The sampler's health; None means unknown."""

    ticks: float
    missed: float
    read_errors: float
    restarts: float
    lateness_seconds: float | None


@dataclass(frozen=True, slots=True)
class View:
    """The content of the screen: `summary` covers the last ten whole seconds, None before there are any.

    `wall_ns` is the time of the newest bin, `bin_ns` the width of each, `others` counts the ports that are not rails.
    `events` are the newest events of the node by time. `limits` are signs of what limited transmit in those seconds,
    with their shares. `simulated`: the ports are those of a simulator or a replay.
    """

    place: str
    wall_ns: int
    interval_ns: int
    bin_ns: int
    rails: tuple[RailView, ...]
    others: int
    summary: Summary | None
    sampler: SamplerView | None
    events: tuple[Event, ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    simulated: bool = False


class Watcher(Protocol):
    """Anything that can fetch a view."""

    def prepare(self) -> None:
        """Take over what changes in the thread of the event loop; called there before each fetch."""

    def fetch(self, points: int, wanted_ns: int) -> View:
        """The current view, with `points` bins per rail, each about `wanted_ns` wide; may take a while."""


def bin_width(interval_ns: int, wanted_ns: int) -> int:
    """Width of a bin in ns: `wanted_ns`, rounded up to a multiple of the interval."""
    return -(-wanted_ns // interval_ns) * interval_ns


def clock_text(time_ns: int, now_ns: int) -> str:
    """A wall-clock time in UTC, `07:40:12`; the date if it is more than a day ago."""
    when = datetime.datetime.fromtimestamp(time_ns // 1_000_000_000, datetime.UTC)
    return f"{when:%H:%M:%S}" if abs(now_ns - time_ns) < DAY_SECONDS * 1_000_000_000 else f"{when:%Y-%m-%d}"


def down_bins(spans: Sequence[StateSpan], first: int, width: int, peaks: Singles) -> Bools:
    """The bins without traffic in which the link was down: (bins,).

    `first` is the beginning of the first bin and `width` the length of each, in the unit of the spans.
    """
    found = np.zeros(peaks.shape[1], dtype=np.bool_)
    for span in spans:
        if span.state is not None and span.state.link_down:
            found[max(0, (span.first - first) // width) : max(0, -(-(span.end - first) // width))] = True
    with np.errstate(invalid="ignore"):
        return np.asarray(found & ~(peaks > 0).any(axis=0))


def newest_events(events: Iterable[Event], now_ns: int) -> tuple[Event, ...]:
    """The events to show, by time; that the daemon started is none."""
    recent = (event for event in events if event.time_ns >= now_ns - EVENTS_NS and event.kind != "started")
    return tuple(sorted(recent, key=lambda event: event.time_ns)[-MAX_EVENTS:])


def mean_of(values: npt.NDArray[np.floating[Any]]) -> float | None:
    """The mean of the values that are not NaN; None if there are none."""
    good = values[~np.isnan(values)]
    return float(good.mean()) if good.size else None


class BinCache:
    """The last bins of each rail, float32 (2, bins). Bins of one width are numbered; those before `_end` are cached."""

    def __init__(self) -> None:
        self._width = 0
        self._end = 0
        self._count = 0
        self._known: Mapping[str, Singles] = {}

    def missing(self, width: int, names: Collection[str], end: int, count: int, unsure: int) -> int:
        """The number of bins before `end` to compute so that `count` bins of this width are cached for all names.

        The last `unsure` cached bins may have changed and are computed again.
        """
        if width != self._width:
            self._width, self._known = width, {}
        if set(names) != set(self._known) or end < self._end or end - count < self._end - self._count:
            return count
        return min(count, end - self._end + unsure)

    def add(self, newest: Mapping[str, Singles], end: int, count: int) -> Mapping[str, Singles]:
        """The last `count` bins before `end`; `newest` are the computed ones, as many as `missing` returned."""
        begin = end - count - (self._end - self._count)
        found: dict[str, Singles] = {}
        for name, values in newest.items():
            kept = count - values.shape[1]
            found[name] = (
                np.concatenate([self._known[name][:, begin : begin + kept], values], axis=1) if kept else values
            )
        self._known, self._end, self._count = found, end, count
        return found
