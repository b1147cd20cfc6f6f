"""The lateness of a node, from the edges of its steps and those of its peers, and the offsets of clocks.

The ends of a collective coincide on all its members to a fraction of a millisecond, and correct the clocks in band: the
silence between such an end and the first transmission of the next step is longer by as much as the node is late,
whatever its clock says. Without any other node, a node that transmits later than it receives computes longer. Stages of
a pipeline end at different times, so only nodes of one stage are peers.

A node reads its clock at some moment between request and reply. Its clock minus that of the asker is therefore at least
as much as if it had answered with the reply, and at most as much as if it had answered with the request. The highest
lower bound and the lowest upper bound of all exchanges count, so a quick request and a quick reply are enough, even if
never both at the same time. Clocks drift: with every second, each bound is 50 µs less sharp. Bounds are relative to the
monotonic clock, so that a step of the own clock does not affect them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.defaults import MIN_PEERS
from ibpulse.core.statistics.steps.edges import EdgeTimes, StepTimes

DRIFT = 50e-6
KEPT_NS = 300_000_000_000


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The clock of a node minus this one, in nanoseconds, and the largest possible error either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class MeasuredOffset:
    """The offset of a node's clock as it was at a wall time of this one."""

    offset: ClockOffset
    at_ns: int

    def bounds(self, low_ms: int, high_ms: int) -> tuple[float, float]:
        """A time between two of the node's clock on this one, in seconds; clocks drift until they are measured."""
        shift = self.offset.offset_ns / 1e9
        doubt = (self.offset.uncertainty_ns + DRIFT * abs(self.at_ns - 1e6 * high_ms + self.offset.offset_ns)) / 1e9
        return low_ms / 1000 - shift - doubt, high_ms / 1000 - shift + doubt

    def set_forward(self, ms: int) -> MeasuredOffset:
        """The same of the node's clock after it was set forward by this, for all times that it said before."""
        return replace(self, offset=replace(self.offset, offset_ns=self.offset.offset_ns + ms * MILLISECOND_NS))


_Bound = tuple[int, int]
"""The least or the most that the node's clock was ahead of the monotonic clock, and when."""


class ClockOffsets:
    """The exchanges with one node. Times are those of the monotonic clock, in nanoseconds."""

    def __init__(self) -> None:
        self._bounds: tuple[_Bound, _Bound] | None = None
        self._newest_ns = 0

    def add(self, sent_ns: int, received_ns: int, node_ns: int) -> bool:
        """Add an exchange, in which the node's clock was `node_ns`; true if that clock was stepped since the last ones.

        A step is an offset that neither round trips nor drift explain. Earlier exchanges are dropped then.

        Raises:
            ValueError: the reply is older than the request.
        """
        if received_ns < sent_ns:
            raise ValueError(f"a reply {sent_ns - received_ns} ns before its request")
        new = (node_ns - received_ns, received_ns), (node_ns - sent_ns, sent_ns)
        known, self._newest_ns = self._bounds or new, received_ns
        (least_ns, most_ns), (new_least_ns, new_most_ns) = _drifted(known, received_ns), _drifted(new, received_ns)
        stepped = new_least_ns > most_ns or new_most_ns < least_ns
        # all bounds become less sharp at the same rate, so the sharper one stays so
        sharper = new[0] if new_least_ns >= least_ns else known[0], new[1] if new_most_ns <= most_ns else known[1]
        self._bounds = new if stepped else sharper
        return stepped

    def offset(self, now_ns: int, wall_ns: int) -> ClockOffset | None:
        """The offset at this moment, at which this clock is `wall_ns`; None without an exchange in the last minutes."""
        if self._bounds is None or now_ns - self._newest_ns > KEPT_NS:
            return None
        least_ns, most_ns = _drifted(self._bounds, now_ns)
        return ClockOffset((least_ns + most_ns) // 2 - (wall_ns - now_ns), -(-(most_ns - least_ns) // 2))


def _drifted(bounds: tuple[_Bound, _Bound], now_ns: int) -> tuple[int, int]:
    """The least and the most at a moment."""
    least_drift_ns, most_drift_ns = (round(DRIFT * max(0, now_ns - at_ns)) for _, at_ns in bounds)
    return bounds[0][0] - least_drift_ns, bounds[1][0] + most_drift_ns


MIN_STEPS = 3
# a node is late by at least this much, and by this many robust standard deviations of its peers
MIN_LATE_MS, MIN_Z = 2.0, 5.0
# how far the ends of a collective lie apart on its members
COINCIDE_MS = 0.5
STANDARD_ERRORS = 3.0
# with fewer peers, their spread is hardly known, so that the own edges of a late node must show its wait
MIN_SURE_PEERS = 6
# of a normal distribution: its standard deviation over the median of absolute deviations, and the standard error of a
# median over that of a mean
MAD_TO_DEVIATION, MEDIAN_ERROR = 1.4826, 1.2533
# the smallest deviation of peers that is believed
MIN_DEVIATION_MS = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time in ms, its largest possible error, and its distance from that of the peers in robust standard
    deviations."""

    ms: float
    uncertainty_ms: float
    z: float = math.nan

    @property
    def stands_out(self) -> bool:
        """Whether it is certainly positive, and large enough to report."""
        return self.ms > MIN_LATE_MS and self.ms > self.uncertainty_ms and self.z > MIN_Z


@dataclass(frozen=True, slots=True)
class Lateness:
    """The lateness of a node, from `steps` of its steps that its peers have as well, usually `peers` of them.

    `start` is its first transmission against that of the median of its peers, on the job's own clock. `own` is its
    first transmission minus its own first receipt, None if one direction is unknown. `ends` is the delay of the end of
    its traffic by the clocks as they were measured, None if they were not.
    """

    steps: int
    peers: int
    start: Estimate
    own: Estimate | None
    ends: Estimate | None

    @property
    def lateness_ms(self) -> float:
        """The delay of its begin, in ms."""
        return self.start.ms

    @property
    def uncertainty_ms(self) -> float:
        """The largest possible error of that."""
        return self.start.uncertainty_ms

    @property
    def ends_apart(self) -> bool:
        """Whether its traffic does not end with that of its peers: another stage, or a clock whose bound is wrong."""
        return self.ends is not None and abs(self.ends.ms) > max(self.ends.uncertainty_ms, MIN_LATE_MS)

    @property
    def waits(self) -> bool:
        """Whether its own edges show that it transmits later than it receives."""
        return self.own is not None and self.own.stands_out

    @property
    def refuted(self) -> bool:
        """Whether its own edges certainly show a shorter wait: it received as late as it transmitted."""
        own, start = self.own, self.start
        return own is not None and own.ms + own.uncertainty_ms < start.ms - start.uncertainty_ms

    @property
    def enough_peers(self) -> bool:
        """Whether it has enough peers to be called late."""
        return self.peers >= MIN_PEERS

    @property
    def late(self) -> bool:
        """Whether it is certainly late, and by enough to say so.

        Where its ends are apart from those of its peers, they cannot correct its clock, so its own edges must agree.
        """
        agrees = self.waits or not (self.ends_apart or self.peers < MIN_SURE_PEERS)
        return self.enough_peers and self.start.stands_out and agrees and not self.refuted


def compare_nodes(
    steps: Mapping[str, StepTimes], clocks: Mapping[str, ClockOffset] | None = None
) -> dict[str, Lateness]:
    """The lateness of each node against the median of its peers, over the steps that both have.

    Times are after one origin, by the clock of each node. `clocks` are the known leads of these clocks; they decide
    which steps of two nodes match, and whether the ends coincide. Nodes with too few common steps are left out.
    """
    usual = {node: each for node, each in steps.items() if len(each) >= MIN_STEPS}
    if len(usual) < 2:
        return {}
    known = clocks or {}
    ahead = {node: float(known[node].offset_ns) if node in known else 0.0 for node in usual}
    places = match_steps([each.end_before.at - ahead[node] for node, each in usual.items()])
    series = _Series(list(usual.values()), places)
    silences = series.difference("transmit", "end_before")
    starts = _compare(silences, series.width("transmit", "end_before"), COINCIDE_MS)
    # as they are: z is against the peers, because all nodes of a pipeline have some own delay
    owns = _describe(series.difference("transmit", "receive"), series.width("transmit", "receive"), 0.0)
    ends = _compare_ends(series, list(usual), known)
    shared = ~np.isnan(_against_others(silences))
    common = np.count_nonzero(shared, axis=1)
    others = np.count_nonzero(~np.isnan(silences), axis=0) - 1
    return {
        node: Lateness(int(count), int(np.median(others[mine])), start, own, end)
        for node, count, mine, start, own, end in zip(usual, common, shared, starts, owns, ends, strict=True)
        if count >= MIN_STEPS and start is not None
    }


def match_steps(ends: Sequence[Floats]) -> Counts:
    """For each series of ends its steps that match those of the longest: (series, steps of it), -1 where it has none.

    Steps match the nearest one of the longest series, at most a third of a step away.
    """
    reference = max(ends, key=lambda each: np.count_nonzero(~np.isnan(each)))
    near = float(np.nanmedian(np.diff(reference))) / 3
    found = np.full((len(ends), len(reference)), -1, dtype=np.int64)
    for row, own in enumerate(ends):
        known = np.flatnonzero(~np.isnan(own))
        if not len(known):
            continue
        times = own[known]
        after = np.clip(np.searchsorted(times, reference), 1, max(1, len(times) - 1))
        choice = np.stack([after - 1, np.minimum(after, len(times) - 1)])
        distance = np.abs(times[choice] - reference)
        best = np.argmin(distance, axis=0)
        near_enough = np.min(distance, axis=0) <= near
        found[row, near_enough] = known[np.take_along_axis(choice, best[np.newaxis], axis=0)[0]][near_enough]
    return found


class _Series:
    """Edges of the matched steps of several nodes, in ms: each (nodes, steps), NaN where a node lacks one."""

    def __init__(self, nodes: Sequence[StepTimes], places: Counts) -> None:
        self._nodes, self._places = nodes, places

    def at(self, edge: str) -> Floats:
        """The estimates of an edge."""
        return self._take(edge, lambda times: times.at)

    def difference(self, later: str, earlier: str) -> Floats:
        """The time from one edge to a later one of the same node."""
        return self.at(later) - self.at(earlier)

    def width(self, later: str, earlier: str) -> Floats:
        """The error that such a difference may have in every step alike.

        The middle of an unresolved edge is wrong by up to half its range. Where steps begin at all parts of a sample,
        that error differs from step to step and shows in the scatter; what is left is as wide as the parts at which
        none begins.
        """
        found = np.zeros(self._places.shape)
        for edge in (later, earlier):
            found += self._take(edge, lambda times: np.where(times.resolved, 0.0, (times.high - times.low) / 2))
        alike = np.array([_measure_sameness(each) for each in self._nodes])
        return np.asarray(found * alike[:, np.newaxis])

    def _take(self, edge: str, values: Callable[[EdgeTimes], Floats]) -> Floats:
        rows = []
        for node, places in zip(self._nodes, self._places, strict=True):
            times: EdgeTimes = getattr(node, edge)
            own = np.append(values(times), np.nan)
            rows.append(own[places] / MILLISECOND_NS)
        return np.array(rows)


def _measure_sameness(node: StepTimes) -> float:
    """The likeness of the parts of a sample at which the steps of a node end: 1 if they are the same, or unknown.

    Twice the longest part of a sample without any, because the median of few different errors may be each of them.
    """
    ends = node.end_before.at[node.end_before.resolved]
    if len(ends) < MIN_STEPS:
        return 1.0
    phases = np.sort(ends % node.interval_ns) / node.interval_ns
    gaps = np.diff(phases, append=phases[0] + 1.0)
    return float(min(1.0, 2.0 * gaps.max()))


def _compare(values: Floats, widths: Floats, floor_ms: float) -> list[Estimate | None]:
    """The difference of the values (nodes, steps) of each node from those of the median of its peers.

    The uncertainty is three standard errors of the median over the steps, `floor_ms`, and what may be wrong in all
    steps alike.
    """
    against = _against_others(values)
    systematic = (widths + medians_of_others(widths)) if widths.any() else np.zeros(values.shape)
    return _describe(against, systematic, floor_ms)


def _against_others(values: Floats) -> Floats:
    return np.asarray(values - medians_of_others(values))


def _describe(against: Floats, systematic: Floats, floor_ms: float) -> list[Estimate | None]:
    scores, errors = _medians(against)
    usual = medians_of_others(scores[:, np.newaxis])[:, 0]
    spread = MAD_TO_DEVIATION * _deviations_of_others(scores)
    scale = np.fmax(np.fmax(spread, errors), MIN_DEVIATION_MS)
    alike, _ = _medians(np.where(np.isnan(against), np.nan, systematic))
    return [
        None if math.isnan(score) else Estimate(float(score), float(unsure), float(z))
        for score, unsure, z in zip(
            scores, STANDARD_ERRORS * errors + floor_ms + alike, (scores - usual) / scale, strict=True
        )
    ]


def _compare_ends(series: _Series, nodes: Sequence[str], clocks: Mapping[str, ClockOffset]) -> list[Estimate | None]:
    """The delay of the end of each node's traffic against its peers, by the measured clocks."""
    if len(clocks.keys() & set(nodes)) < 2:
        return [None] * len(nodes)
    ahead = np.array([clocks[node].offset_ns / MILLISECOND_NS if node in clocks else np.nan for node in nodes])
    unsure = np.array([clocks[node].uncertainty_ns / MILLISECOND_NS if node in clocks else np.nan for node in nodes])
    against = _against_others(series.at("end_before") - ahead[:, np.newaxis])
    bounds = (unsure + medians_of_others(unsure[:, np.newaxis])[:, 0])[:, np.newaxis] * np.ones(against.shape)
    return _describe(against, bounds, COINCIDE_MS)


def _medians(values: Floats) -> tuple[Floats, Floats]:
    """The median over the steps of each node, and its standard error: (nodes,), NaN without values."""
    counts = np.count_nonzero(~np.isnan(values), axis=1)
    scores, errors = np.full(len(values), np.nan), np.full(len(values), np.nan)
    some = counts > 0
    if some.any():
        scores[some] = np.nanmedian(values[some], axis=1)
        away = np.nanmedian(np.abs(values[some] - scores[some, np.newaxis]), axis=1)
        errors[some] = MEDIAN_ERROR * MAD_TO_DEVIATION * away / np.sqrt(counts[some])
    return scores, errors


def _deviations_of_others(scores: Floats) -> Floats:
    """For each node, the median of the absolute deviations of all others from their own median; 0 of fewer than 3."""
    found = np.zeros(len(scores))
    if np.count_nonzero(~np.isnan(scores)) < 4:
        return found
    for place in range(len(scores)):
        others = np.delete(scores, place)
        found[place] = np.nanmedian(np.abs(others - np.nanmedian(others)))
    return found


def medians_of_others(values: Floats) -> Floats:
    """For each value (nodes, steps), the median of those of all other nodes in the same step; NaN if there are none."""
    order = np.argsort(values, axis=0, kind="stable")
    ranks = np.argsort(order, axis=0, kind="stable")
    by_rank = np.take_along_axis(values, order, axis=0)
    counts = np.count_nonzero(~np.isnan(values), axis=0)
    halves = []
    for shift in (2, 1):
        middle = np.maximum(counts - shift, 0) // 2
        # without a value, those after it are one place further ahead
        place = np.minimum(middle + (middle >= ranks), len(values) - 1)
        halves.append(np.take_along_axis(by_rank, place, axis=0))
    found = (halves[0] + halves[1]) / 2
    return np.where(np.isnan(values) | (counts < 2), np.nan, found)
