"""Finds silences of a job's nodes that are far longer than those between steps, and the first node to stop sending.

A node that still moves bytes did not stop first. Of the silent ones, the order is known only where the clocks are, and
where the moments lie further apart than the bounds of the clocks and the samples. Sending decides: a node that stops
sending still receives what the others send.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.statistics.steps.runs import find_runs

# steps that a silence lasts, and the shortest time
SILENT_PERIODS, MIN_SECONDS = 3.0, 1.0

Moment = tuple[float, float]
"""Bounds of a moment on the common clock, in seconds."""
WHENEVER: Moment = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Silence:
    """A long silence of a node on a common clock, in seconds: it fell silent between `low` and `high`.

    Its traffic came back at `end`, infinite if it did not. `sent` and `received` bound the last traffic of each
    direction; `ordered` is false if the clock of the node is not known.
    """

    low: float
    high: float
    end: float
    sent: Moment
    received: Moment
    ordered: bool


@dataclass(frozen=True, slots=True)
class FirstNodes:
    """The nodes that may have been the first to stop: one if that is certain, all if nothing is known.

    That one was certainly earlier than the next by `gap` seconds, 0 if that is unknown.
    """

    nodes: tuple[str, ...]
    gap: float = 0.0

    @classmethod
    def of(cls, moments: Mapping[str, Moment]) -> FirstNodes:
        """The first of the nodes with these moments, in their order."""
        earliest = min(high for _, high in moments.values())
        nodes = tuple(node for node, (low, _) in moments.items() if low <= earliest)
        later = [low for node, (low, _) in moments.items() if node not in nodes]
        return cls(nodes, min(later) - earliest if len(nodes) == 1 and later else 0.0)


@dataclass(frozen=True, slots=True)
class FleetStall:
    """Nodes that were silent at the same time, in the order in which they fell silent.

    `moving` were not, as their samples show. `sending` are those that may have been the first to stop sending,
    `receiving` the first to stop receiving. The last of them fell silent at `since`, and the first one moved bytes
    again at `until`, infinite if none did.
    """

    silent: tuple[str, ...]
    moving: tuple[str, ...]
    sending: FirstNodes
    receiving: FirstNodes
    since: float
    until: float

    @property
    def first(self) -> tuple[str, ...]:
        """The nodes that may have been the first to stop sending; empty if any of them may."""
        return self.sending.nodes if len(self.sending.nodes) < len(self.silent) else ()


def shortest_stall(period_seconds: float | None) -> float:
    """The shortest silence in seconds that is not one between steps; `period_seconds` is None if unknown."""
    return max(MIN_SECONDS, SILENT_PERIODS * (period_seconds or 0.0))


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """The times of samples in seconds: the first one begins at `start` on the common clock, and is `interval` long.

    `bound` is the largest possible error of that clock, None if it is not known. Counters show traffic up to
    `resolution` after it passed, at least one interval.
    """

    start: float
    interval: float
    bound: float | None
    resolution: float = 0.0

    def last_traffic(self, active: int, idle: int) -> Moment:
        """The end of the traffic of an active sample, if `idle` is the first known sample without any."""
        bound, seen = self.bound or 0.0, max(self.resolution, self.interval)
        return (
            self.start + (active + 1) * self.interval - seen - bound,
            self.start + idle * self.interval + bound,
        )


def find_silences(
    rates: npt.NDArray[np.floating], times: SampleTimes, idle_below: float, shortest: float
) -> list[Silence]:
    """The silences of at least `shortest` seconds after traffic: rates (2, samples), NaN for missing data.

    Missing samples at the beginning of a silence make its moment less certain; a silence is not longer than its known
    samples.
    """
    total, interval = rates.sum(axis=0), times.interval
    firsts, ends = find_runs(~(total > idle_below))
    long = (firsts > 0) & ((ends - firsts + 1) * interval > shortest)
    found = []
    for first, end in zip(firsts[long].tolist(), ends[long].tolist(), strict=True):
        idle = first + np.flatnonzero(~np.isnan(total[first:end]))
        # without a known idle sample there is only missing data
        if len(idle) and len(idle) * interval >= shortest:
            sent, received = (_last_traffic(way[: idle[0] + 1], times, idle_below) for way in rates)
            back = times.start + end * interval if end < len(total) else math.inf
            low, high = times.last_traffic(first - 1, int(idle[0]))
            found.append(Silence(low, high, back, sent, received, times.bound is not None))
    return found


def _last_traffic(rates: npt.NDArray[np.floating], times: SampleTimes, idle_below: float) -> Moment:
    """The last traffic of one direction, whose last sample is a known one without any."""
    active = np.flatnonzero(rates > idle_below)
    if not len(active):
        return WHENEVER
    idle = np.flatnonzero(rates[active[-1] + 1 :] <= idle_below)
    return times.last_traffic(int(active[-1]), int(active[-1] + 1 + idle[0]))


def find_stalls(
    silences: Mapping[str, Sequence[Silence]],
    observed: Mapping[str, Sequence[tuple[float, float]]],
    shortest: float = MIN_SECONDS,
) -> list[FleetStall]:
    """The stalls in the silences of nodes, the longest first; `observed` are the spans for which each has samples.

    Silences that overlap belong to one stall. Where a node has several, the first one counts. A silence is seen only
    with `shortest` seconds of samples.
    """
    every = sorted(((node, silence) for node, each in silences.items() for silence in each), key=lambda one: one[1].low)
    found: list[FleetStall] = []
    group: list[tuple[str, Silence]] = []
    until = -math.inf
    for node, silence in every:
        if group and silence.high >= until:
            found.append(_describe(group, observed, shortest))
            group = []
        # the stall lasts until the first node moves bytes again
        until = min(until, silence.end) if group else silence.end
        group.append((node, silence))
    if group:
        found.append(_describe(group, observed, shortest))
    return sorted(found, key=lambda stall: stall.since - stall.until)


def _describe(
    group: Sequence[tuple[str, Silence]], observed: Mapping[str, Sequence[tuple[float, float]]], shortest: float
) -> FleetStall:
    own: dict[str, Silence] = {}
    for node, silence in group:
        own.setdefault(node, silence)
    order = sorted(own, key=lambda node: own[node].low + own[node].high)
    since = max(silence.high for silence in own.values())
    ordered = all(silence.ordered for silence in own.values())
    sent, received = (
        FirstNodes.of({node: getattr(own[node], way) for node in order}) if ordered else FirstNodes(tuple(order))
        for way in ("sent", "received")
    )
    moving = tuple(
        node
        for node, spans in observed.items()
        if node not in own and any(begin <= since and end >= since + shortest for begin, end in spans)
    )
    return FleetStall(tuple(order), moving, sent, received, since, min(silence.end for silence in own.values()))
