"""Finds when the nodes of a job fall silent for far longer than between steps, and which of them was the first.

A node that still moves bytes did not stop first. Of the silent ones, the order is known only where the moments lie
further apart than the clocks are known and the samples are long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# steps that a silence lasts, and the shortest time
SILENT_PERIODS, LEAST_SECONDS = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Silence:
    """A long silence of a node on a common clock, in seconds: it fell silent between `low` and `high`.

    `end` is when its traffic came back, infinite if it did not; `known_until` is the end of its samples.
    """

    low: float
    high: float
    end: float
    known_until: float

    @property
    def length(self) -> float:
        """Its length in seconds, as far as it is known."""
        return min(self.end, self.known_until) - self.high


@dataclass(frozen=True, slots=True)
class FleetStall:
    """Nodes that were silent at the same time: `silent`, in the order in which they fell silent, and `moving` that were
    not, while some of their samples are known.

    `first` are those that may have been the first; one name if the order is certain, all of them if it is unknown.
    `since` is when the last of them fell silent, `until` when the first one moved bytes again, infinite if none did.
    `gap` is by how many seconds the first one was certainly earlier than the next, 0 if that is unknown.
    """

    silent: tuple[str, ...]
    moving: tuple[str, ...]
    first: tuple[str, ...]
    since: float
    until: float
    gap: float

    @property
    def whole(self) -> bool:
        """Whether all nodes were silent."""
        return not self.moving


def shortest_stall(period_seconds: float | None) -> float:
    """The shortest silence in seconds that is not one between steps; `period_seconds` is None if unknown."""
    return max(LEAST_SECONDS, SILENT_PERIODS * (period_seconds or 0.0))


def find_silences(
    rates: npt.NDArray[np.floating],
    start: float,
    interval: float,
    bound: float,
    idle_below: float,
    shortest: float,
) -> list[Silence]:
    """The silences of at least `shortest` seconds after traffic: rates (2, samples), NaN for missing data.

    `start` is when the first sample begins on the common clock, `bound` the uncertainty of that; all are in seconds.
    Missing samples at the beginning of a silence make its moment less certain; a silence is not longer than its known
    samples.
    """
    total = rates.sum(axis=0)
    active, known = np.flatnonzero(total > idle_below), np.flatnonzero(~np.isnan(total))
    if not len(active):
        return []
    following = np.append(active[1:], len(total))
    found = []
    for place in np.flatnonzero((following - active) * interval > shortest).tolist():
        last, end = int(active[place]), int(following[place])
        idle = known[(known > last) & (known < end)]
        # without a known idle sample there is only missing data
        if len(idle) and len(idle) * interval >= shortest:
            low, high = start + last * interval - bound, start + int(idle[0]) * interval + bound
            until = start + (int(idle[-1]) + 1) * interval
            back = start + end * interval if end < len(total) else math.inf
            found.append(Silence(low, high, back, until))
    return found


def find_stalls(
    silences: Mapping[str, Sequence[Silence]], observed: Mapping[str, Sequence[tuple[float, float]]]
) -> list[FleetStall]:
    """The stalls in the silences of nodes, the longest first; `observed` are the spans for which each has samples.

    Silences that overlap belong to one stall. Where a node has several, the first one counts.
    """
    every = sorted(((node, silence) for node, each in silences.items() for silence in each), key=lambda one: one[1].low)
    found: list[FleetStall] = []
    group: list[tuple[str, Silence]] = []
    until = -math.inf
    for node, silence in every:
        if group and silence.high >= until:
            found.append(_describe(group, observed))
            group = []
        # the stall lasts until the first node moves bytes again
        until = min(until, silence.end) if group else silence.end
        group.append((node, silence))
    if group:
        found.append(_describe(group, observed))
    return sorted(found, key=lambda stall: stall.since - stall.until)


def _describe(
    group: Sequence[tuple[str, Silence]], observed: Mapping[str, Sequence[tuple[float, float]]]
) -> FleetStall:
    own: dict[str, Silence] = {}
    for node, silence in group:
        own.setdefault(node, silence)
    order = sorted(own, key=lambda node: own[node].low + own[node].high)
    earliest = min(silence.high for silence in own.values())
    first = tuple(node for node in order if own[node].low <= earliest)
    since = max(silence.high for silence in own.values())
    until = min(silence.end for silence in own.values())
    later = [silence.low for node, silence in own.items() if node not in first]
    gap = min(later) - own[first[0]].high if len(first) == 1 and later else 0.0
    moving = tuple(
        node
        for node, spans in observed.items()
        if node not in own and any(begin <= since and end > since for begin, end in spans)
    )
    return FleetStall(tuple(order), moving, first, since, until, max(0.0, gap))
