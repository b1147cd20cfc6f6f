"""How much later a node begins a step than the others, and which rail is hot on most nodes; from samples alone.

The ends of a collective coincide on all its members to a fraction of a millisecond, so the silence between an end and
the first transmission of the next step needs no clock between nodes: it is longer by as much as the node is late. A
node that receives before it sends itself computes longer, which needs no other node at all. Both are bounds: an edge
lies somewhere in its sample, but at the line rate its bytes need a part of it. Pipeline stages end at different times,
so what this says of them is a hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
HOT_FACTOR = 1.15
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
    """One step by the clock of its node: the end of the traffic before, first transmission, first reception."""

    end_before: Bounds
    transmit: Bounds
    receive: Bounds | None

    @property
    def silence(self) -> Bounds:
        """From the end of the traffic before to the first transmission; needs no clock of another node."""
        return self.transmit - self.end_before


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of a node in ms, as the median of `steps` steps, and the most by which it may be wrong.

    `own_lead_ms` is how much later than its own first reception the node began to transmit, None if it does not receive
    at the beginning of steps; `own_lead_uncertainty_ms` is by how much that may be wrong.
    """

    lateness_ms: float
    uncertainty_ms: float
    steps: int
    own_lead_ms: float | None = None
    own_lead_uncertainty_ms: float | None = None

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
        transmit = clock.begin(0, states, idle_below, end, until)
        if transmit is not None:
            receive = clock.begin(1, states, idle_below, end, until)
            found.append(StepEdges(clock.end(first), transmit, receive))
    return found


def _silences(states: npt.NDArray[np.int_]) -> list[tuple[int, int]]:
    """Idle samples between active ones, `first` up to `end`, exclusive; missing ones at their edges are included.

    Those with many missing samples in a row, and those at the beginning or the end of all samples, are left out.
    """
    active = np.flatnonzero(states == ACTIVE)
    found = []
    apart = np.flatnonzero(np.diff(active) > FEWEST_IDLE)
    for before, after in zip(active[apart].tolist(), active[apart + 1].tolist(), strict=True):
        part = states[before + 1 : after]
        if (part == IDLE).any() and _longest(part == MISSING) <= MOST_MISSING:
            found.append((before + 1, after))
    return found


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

    def begin(self, way: int, states: npt.NDArray[np.int_], idle_below: float, first: int, until: int) -> Bounds | None:
        """When a direction begins in samples from `first` on: after its last idle sample; None if it does not."""
        active = np.flatnonzero(self.rates[way, first:until] > idle_below)
        if not len(active):
            return None
        at = first + int(active[0])
        known = at - 1
        while known >= 0 and np.isnan(self.rates[way, known]):
            known -= 1
        if at - known - 1 > MOST_MISSING:
            return None
        return Bounds(self._time(known + 1), self._time(at + 1) - self._needed(float(self.rates[way, at])))

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
    # by the step of the reference node
    matched = {node: _match(ends[reference], ends[node], near) for node in usual}
    silences = {
        node: {place: usual[node][own].silence for place, own in each.items()} for node, each in matched.items()
    }
    found = {}
    for node, mine in silences.items():
        pairs = [(silence, _median(silences, node, place)) for place, silence in mine.items()]
        late = [silence - others for silence, others in pairs if others is not None]
        if len(late) >= FEWEST_STEPS:
            usually = _median_of(late)
            lead = _own_lead(usual[node])
            found[node] = Lateness(usually.middle, usually.uncertainty, len(late), *lead)
    return found


def _match(reference: Sequence[float], ends: Sequence[float], near: float) -> dict[int, int]:
    """For each step of the reference, the nearest step whose end is no further away."""
    places = np.asarray(ends)
    found = {}
    for place, end in enumerate(reference):
        nearest = int(np.argmin(np.abs(places - end)))
        if abs(places[nearest] - end) <= near:
            found[place] = nearest
    return found


def _median(silences: Mapping[str, Mapping[int, Bounds]], node: str, place: int) -> Bounds | None:
    """Bounds of the median silence of the other nodes before a step."""
    others = [each[place] for name, each in silences.items() if name != node and place in each]
    return Bounds(median(one.low for one in others), median(one.high for one in others)) if others else None


def _median_of(every: Sequence[Bounds]) -> Bounds:
    return Bounds(median(one.low for one in every), median(one.high for one in every))


def _own_lead(steps: Iterable[StepEdges]) -> tuple[float | None, float | None]:
    leads = [step.transmit - step.receive for step in steps if step.receive is not None]
    if len(leads) < FEWEST_STEPS:
        return None, None
    usually = _median_of(leads)
    return usually.middle, usually.uncertainty


@dataclass(frozen=True, slots=True)
class HotRail:
    """A rail that carries more than its share on most nodes: the median of its share there, and what is usual."""

    port: str
    share_ratio: float
    usual_ratio: float
    nodes: int


def find_hot_rail(rails: Mapping[str, Mapping[str, float]]) -> HotRail | None:
    """The hot rail by the bytes of every rail on every node; None if there is none.

    It carries the most on more than half of the nodes with traffic, and clearly more than an equal share.
    """
    shares: dict[str, list[tuple[float, float]]] = {}
    nodes = 0
    for carried in rails.values():
        total = sum(carried.values())
        if total <= 0 or len(carried) < 2:
            continue
        nodes += 1
        port = max(carried, key=carried.__getitem__)
        share, usual = carried[port] / total, 1 / len(carried)
        if share >= HOT_FACTOR * usual:
            shares.setdefault(port, []).append((share, usual))
    if not shares:
        return None
    port = max(shares, key=lambda name: len(shares[name]))
    found = shares[port]
    if 2 * len(found) <= nodes:
        return None
    return HotRail(port, median(share for share, _ in found), median(usual for _, usual in found), len(found))
