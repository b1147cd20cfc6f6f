"""How much later a node begins a step than the others, from samples alone.

The ends of a collective coincide on all its members to a fraction of a millisecond, so the silence between an end and
the first transmission of the next step needs no clock between nodes: it is longer by as much as the node is late. It
has bounds: an edge lies somewhere in its sample, but at the line rate its bytes need a part of it. Pipeline stages end
at different times, so what this says of them is a hint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# of the highest rate of the node; below it, a sample is idle. What a node sends ahead into buffers is more than that:
# 16 MiB are 4 % of a sample at 40 GB/s
IDLE_PART = 0.01
# a silence of a step is at least half as long as the long ones, and so many samples
LONG_QUANTILE, LONG_PART, FEWEST_IDLE = 0.9, 0.5, 3
# missing samples in a row that are bridged
MOST_MISSING = 5
FEWEST_STEPS = 3
ENOUGH_MS = 1.0
Floats = npt.NDArray[np.floating]
IDLE, ACTIVE, MISSING = 0, 1, 2


class Bounds(NamedTuple):
    """A time in ms that lies between `low` and `high`."""

    low: float
    high: float

    def __sub__(self, other: Bounds) -> Bounds:
        return Bounds(self.low - other.high, self.high - other.low)

    @property
    def middle(self) -> float:
        """The value with the least largest error."""
        return (self.low + self.high) / 2

    @property
    def uncertainty(self) -> float:
        """The most by which the middle may be wrong."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class StepEdges:
    """One step by the clock of its node: the end of the traffic before, and the first transmission."""

    end_before: Bounds
    transmit: Bounds

    @property
    def silence(self) -> Bounds:
        """From the end of the traffic before to the first transmission; needs no clock of another node."""
        return self.transmit - self.end_before


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of a node in ms, as the median of `steps` steps, and the most by which it may be wrong."""

    lateness_ms: float
    uncertainty_ms: float
    steps: int

    @property
    def late(self) -> bool:
        """Whether the node is certainly late, and by enough to say so."""
        return self.lateness_ms - self.uncertainty_ms >= ENOUGH_MS


def find_edges(rates: Floats, start_ms: float, interval_ms: float, line_rate: float | None = None) -> list[StepEdges]:
    """The steps in the rates of a node: (2, samples), transmit and receive in bytes per second, NaN for missing data.

    `line_rate` is that of one direction; without it, an edge may lie anywhere in its sample.
    """
    if rates.shape[1] == 0 or np.isnan(rates).all():
        return []
    highest = float(np.nanmax(rates))
    if highest <= 0:
        return []
    idle_below = IDLE_PART * highest
    both = np.max(rates, axis=0)
    states = np.where(np.isnan(both), MISSING, np.where(both > idle_below, ACTIVE, IDLE))
    clock = _Clock(rates, start_ms, interval_ms, max(line_rate, highest) if line_rate else None)
    silences = _silences(states)
    if not silences:
        return []
    lengths = [end - first for first, end in silences]
    least = max(FEWEST_IDLE, LONG_PART * float(np.quantile(lengths, LONG_QUANTILE)))
    chosen = [one for one, length in zip(silences, lengths, strict=True) if length >= least]
    found = []
    for (first, end), until in zip(chosen, [*(first for first, _ in chosen[1:]), len(both)], strict=True):
        transmit = clock.begin(idle_below, end, until)
        if transmit is not None:
            found.append(StepEdges(clock.end(first), transmit))
    return found


def _silences(states: npt.NDArray[np.int_]) -> list[tuple[int, int]]:
    """Idle samples between active ones, `first` up to `end`, exclusive; missing ones at their edges are included.

    Those with many missing samples in a row, and those at the beginning or the end of all samples, are left out.
    """
    active = np.flatnonzero(states == ACTIVE)
    apart = np.flatnonzero(np.diff(active) > FEWEST_IDLE)
    gaps = zip((active[apart] + 1).tolist(), active[apart + 1].tolist(), strict=True)
    missing = states == MISSING
    if not missing.any():
        return list(gaps)
    return [
        (first, end)
        for first, end in gaps
        if not missing[first:end].all() and _longest(missing[first:end]) <= MOST_MISSING
    ]


def _longest(flags: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return int(np.max(edges[1::2] - edges[::2], initial=0))


@dataclass(frozen=True, slots=True)
class _Clock:
    """Bounds of edges; samples end one interval after they begin."""

    rates: Floats
    start_ms: float
    interval_ms: float
    line_rate: float | None

    def begin(self, idle_below: float, first: int, until: int) -> Bounds | None:
        """When transmission begins in samples from `first` on: after its last idle sample; None if it does not."""
        transmitted = self.rates[0]
        active = np.flatnonzero(transmitted[first:until] > idle_below)
        if not len(active):
            return None
        at = first + int(active[0])
        known = at - 1
        while known >= 0 and np.isnan(transmitted[known]):
            known -= 1
        if at - known - 1 > MOST_MISSING:
            return None
        return Bounds(self._time(known + 1), self._time(at + 1) - self._needed(float(transmitted[at])))

    def end(self, first_idle: int) -> Bounds:
        """When the traffic before a silence ended: at or after its last active sample, before the first idle one."""
        last, known = first_idle - 1, first_idle
        while np.isnan(self.rates[:, known]).any():
            known += 1
        return Bounds(self._time(last) + self._needed(float(np.max(self.rates[:, last]))), self._time(known))

    def _time(self, sample: int) -> float:
        return self.start_ms + sample * self.interval_ms

    def _needed(self, rate: float) -> float:
        """The least time in ms in which the bytes of a sample pass."""
        return 0.0 if self.line_rate is None else float(self.interval_ms * min(1.0, rate / self.line_rate))


def compare_nodes(
    steps: Mapping[str, Sequence[StepEdges]], offsets_ms: Mapping[str, float] | None = None
) -> dict[str, Lateness]:
    """The lateness of each node against the median of the others, over the steps that both have.

    `offsets_ms` are how far the clocks are ahead, as far as known. They only tell which step of a node is which of
    another one; the lateness does not depend on them. Nodes with too few common steps are left out.
    """
    usual = {node: each for node, each in steps.items() if len(each) >= FEWEST_STEPS}
    if len(usual) < 2:
        return {}
    known = offsets_ms or {}
    ends = {node: [step.end_before.middle - known.get(node, 0.0) for step in each] for node, each in usual.items()}
    reference = max(usual, key=lambda node: len(usual[node]))
    near = float(median(np.diff(ends[reference]))) / 3
    late: dict[str, list[Bounds]] = {node: [] for node in usual}
    matched = {node: _match(ends[reference], ends[node], near) for node in usual}
    for place in range(len(usual[reference])):
        silences = {node: usual[node][own[place]].silence for node, own in matched.items() if place in own}
        if len(silences) < 2:
            continue
        lows = medians_of_others([silence.low for silence in silences.values()])
        highs = medians_of_others([silence.high for silence in silences.values()])
        for (node, silence), low, high in zip(silences.items(), lows, highs, strict=True):
            late[node].append(silence - Bounds(low, high))
    return {node: _make_lateness(each) for node, each in late.items() if len(each) >= FEWEST_STEPS}


def _match(reference: Sequence[float], ends: Sequence[float], near: float) -> dict[int, int]:
    """For each step of the reference, the nearest step whose end is no further away."""
    places = np.asarray(ends)
    found = {}
    for place, end in enumerate(reference):
        nearest = int(np.argmin(np.abs(places - end)))
        if abs(places[nearest] - end) <= near:
            found[place] = nearest
    return found


def medians_of_others(values: Sequence[float]) -> list[float]:
    """For each of at least two values, the median of all others."""
    order = np.argsort(values)
    ranks = np.argsort(order)
    by_rank = np.asarray(values)[order]
    middle = np.array([(len(values) - 2) // 2, (len(values) - 1) // 2])
    # without a value, those after it are one place further ahead
    others = by_rank[middle + (middle >= ranks[:, np.newaxis])]
    return [float(found) for found in others.mean(axis=1)]


def _make_lateness(steps: Sequence[Bounds]) -> Lateness:
    usually = Bounds(median(one.low for one in steps), median(one.high for one in steps))
    return Lateness(usually.middle, usually.uncertainty, len(steps))
