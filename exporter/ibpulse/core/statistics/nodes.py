"""Many nodes: the hot rail, rates split into nodes, rails and ports, failovers, and stalls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.defaults import MIN_PEERS
from ibpulse.core.statistics.lateness import MAD_TO_DEVIATION
from ibpulse.core.statistics.moments import quantile
from ibpulse.core.statistics.steps.runs import find_equal_runs
from ibpulse.core.statistics.verdict import MIN_SILENCE_SECONDS

HOT_FACTOR = 1.15
# a rail below this part of the median of its node carries nothing
IDLE_PART = 0.05
# a single port differs by this many robust standard deviations of all ports
MIN_Z = 5.0
ROUNDS = 10
MIN_NODES = 2
# of a failover; the factors are those of the usual share of each rail
MIN_RAILS, MIN_FAILOVER_SECONDS = 3, 3
SILENT_BELOW, DOUBLED, USUAL = 0.05, (1.6, 2.4), (0.7, 1.3)
# seconds with less of the usual traffic say nothing about shares
MIN_TRAFFIC = 0.1
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HotRail:
    """A rail that carries more than its share on most nodes: the medians of its share there and of the usual one."""

    port: str
    share_ratio: float
    usual_ratio: float
    nodes: int


def find_hot_rail(rails: Mapping[str, Mapping[str, float]]) -> HotRail | None:
    """The hot rail by the bytes of every rail on every node; None if there is none.

    It carries the most on more than half of the nodes with traffic, and clearly more than an equal share. Nodes with
    fewer than four rails are left out.
    """
    shares: dict[str, list[tuple[float, float]]] = {}
    nodes = 0
    for carried in rails.values():
        total = sum(carried.values())
        if total <= 0 or len(carried) <= MIN_PEERS:
            continue
        nodes += 1
        port = max(carried, key=carried.__getitem__)
        share, usual = carried[port] / total, 1 / len(carried)
        if share >= HOT_FACTOR * usual:
            shares.setdefault(port, []).append((share, usual))
    port, found = max(shares.items(), key=lambda one: len(one[1]), default=("", []))
    if not found or 2 * len(found) <= nodes:
        return None
    return HotRail(port, median(share for share, _ in found), median(usual for _, usual in found), len(found))


@dataclass(frozen=True, slots=True)
class RailSplit:
    """Factors of a fleet in one direction: `node` (nodes,), `rail` (rails,), `rest` (nodes, rails); NaN if unknown.

    A factor of 1 is usual. `idle` (nodes, rails) carry nothing while the other rails of their node do; they are
    left out of the split.
    """

    nodes: tuple[str, ...]
    rails: tuple[str, ...]
    node: Floats
    rail: Floats
    rest: Floats
    idle: Bools

    def hot_rails(self) -> list[tuple[str, float, int]]:
        """Rails that carry clearly more on more than half of the nodes: name, factor, and number of these nodes."""
        if np.count_nonzero(~np.isnan(self.rail)) <= MIN_PEERS:
            return []
        relative = self.rail * self.rest
        hot, known = np.count_nonzero(relative >= HOT_FACTOR, axis=0), np.count_nonzero(~np.isnan(relative), axis=0)
        chosen = np.flatnonzero((self.rail >= HOT_FACTOR) & (known >= MIN_NODES) & (2 * hot > known))
        found = [(self.rails[place], float(self.rail[place]), int(hot[place])) for place in chosen]
        return sorted(found, key=lambda one: -one[1])

    def differing_nodes(self) -> list[tuple[str, float]]:
        """Nodes whose rails carry clearly more or less than those of the others, with the factor."""
        if np.count_nonzero(~np.isnan(self.node)) <= MIN_PEERS:
            return []
        away = np.abs(np.log(self.node))
        return [(self.nodes[place], float(self.node[place])) for place in np.flatnonzero(away >= math.log(HOT_FACTOR))]

    def differing_ports(self) -> list[tuple[str, str, float]]:
        """Single ports that carry clearly more or less than their node and their rail explain: node, rail, factor."""
        away = np.abs(np.log(self.rest))
        peers = [np.count_nonzero(np.isfinite(away), axis=axis, keepdims=True) - 1 for axis in (0, 1)]
        away[np.minimum(*peers) < MIN_PEERS] = np.nan
        known = away[np.isfinite(away)]
        if not known.size:
            return []
        least = max(math.log(HOT_FACTOR), MIN_Z * MAD_TO_DEVIATION * float(quantile(known, 0.5)))
        places = np.argwhere(away >= least)
        return [(self.nodes[node], self.rails[rail], float(self.rest[node, rail])) for node, rail in places]

    def idle_ports(self) -> list[tuple[str, str]]:
        """Ports that carry nothing: node and rail."""
        return [(self.nodes[node], self.rails[rail]) for node, rail in np.argwhere(self.idle)]


def split_rates(nodes: Sequence[str], rails: Sequence[str], rates: Floats) -> RailSplit:
    """The split of mean rates (nodes, rails) in one direction; NaN for a rail that a node lacks or that is unknown.

    log(rate of a rail on a node) = common + node + rail + rest, by median polish (Tukey, 1977): a rail that is hot on
    every node, a node that carries less on all of its rails, and a single port that differs come out in different
    places.
    """
    known = np.where(rates >= 0, rates, np.nan)
    usual = _medians(known, 1)[:, np.newaxis]
    with np.errstate(invalid="ignore"):
        idle = (known < IDLE_PART * usual) | ((known == 0) & (usual > 0))
        rest = np.log(np.where(idle | ~(known > 0), np.nan, known))
    node, rail = np.zeros(len(nodes)), np.zeros(len(rails))
    for _ in range(ROUNDS):
        shift = _medians(rest, 1)
        node, rest = node + shift, rest - shift[:, np.newaxis]
        shift = np.nan_to_num(_medians(rest, 0))
        rail, rest = rail + shift, rest - shift
    rail = np.where(np.isnan(rest).all(axis=0), np.nan, rail)
    node, rail = (each - _medians(each[np.newaxis], 1)[0] for each in (node, rail))
    return RailSplit(tuple(nodes), tuple(rails), np.exp(node), np.exp(rail), np.exp(rest), np.asarray(idle))


def _medians(values: Floats, axis: int) -> Floats:
    """Medians of the known values; NaN where none is."""
    found = np.full(values.shape[1 - axis], np.nan)
    some = (~np.isnan(values)).any(axis=axis)
    if some.any():
        found[some] = np.nanmedian(values.compress(some, axis=1 - axis), axis=axis)
    return found


@dataclass(frozen=True, slots=True)
class Failover:
    """In seconds `first` to before `end` of a node, `silent` carried nothing and `doubled` about twice its share.

    `lasting` is false if the traffic came back. `bytes_ratio` is the rate of the node during it over that of its other
    seconds, NaN if there are none.
    """

    silent: str
    doubled: str
    first: int
    end: int
    lasting: bool
    bytes_ratio: float


def find_failovers(rails: Sequence[str], moved: Floats) -> list[Failover]:
    """Apparent failovers in the bytes (seconds, rails) of a node, both directions, NaN where unknown.

    NCCL can move the traffic of a dead port to another one. The bytes of a step stay the same then, and nothing hangs.
    """
    totals = moved.sum(axis=1)
    known = ~np.isnan(totals)
    if len(rails) < MIN_RAILS or not known.any():
        return []
    known &= totals > MIN_TRAFFIC * np.median(totals[known])
    seconds = np.flatnonzero(known)
    shares = moved[seconds] / totals[seconds, np.newaxis]
    carrying = np.where(shares > SILENT_BELOW / len(rails), shares, np.nan)
    equal = np.full(len(rails), 1 / len(rails))
    medians = _medians(carrying, 0)
    for usual in (np.where(np.isnan(medians), equal, medians), equal):
        pairs = _find_pairs(shares / usual)
        found = [
            _describe_failover(
                rails, divmod(int(pairs[first]), len(rails)), seconds[[first, end - 1]].tolist(), seconds, totals
            )
            for first, end in zip(*find_equal_runs(pairs), strict=True)
            if pairs[first] >= 0 and end - first >= MIN_FAILOVER_SECONDS
        ]
        if found:
            return found
    return []


def _find_pairs(ratios: Floats) -> Counts:
    """For each second the silent rail × number of rails + the doubled rail, -1 if it is not exactly one of each."""
    doubled, usual = ((ratios >= low) & (ratios <= high) for low, high in (DOUBLED, USUAL))
    silent = ratios < SILENT_BELOW
    one_each = (silent.sum(axis=1) == 1) & (doubled.sum(axis=1) == 1) & (silent | doubled | usual).all(axis=1)
    return np.where(one_each, silent.argmax(axis=1) * ratios.shape[1] + doubled.argmax(axis=1), -1)


def _describe_failover(
    rails: Sequence[str], pair: tuple[int, int], span: Sequence[int], seconds: Counts, totals: Floats
) -> Failover:
    first, last = span
    during = (seconds >= first) & (seconds <= last)
    others = totals[seconds[~during]]
    ratio = float(totals[seconds[during]].mean() / others.mean()) if len(others) else math.nan
    return Failover(rails[pair[0]], rails[pair[1]], first, last + 1, bool(last == seconds[-1]), ratio)


@dataclass(frozen=True, slots=True)
class FleetStall:
    """Nodes that were silent at the same time, in the order in which they fell silent.

    `moving` were not, as their samples show. The last of them fell silent at `since`, and the first one moved bytes
    again at `until`, infinite if none did.
    """

    silent: tuple[str, ...]
    moving: tuple[str, ...]
    since: float
    until: float


def find_stalls(silences: Mapping[str, Sequence[Span]], observed: Mapping[str, Sequence[Span]]) -> list[FleetStall]:
    """The stalls in the silences of nodes, the longest first; `observed` are the spans for which each has samples.

    Silences that overlap belong to one stall. Where a node has several, the first one counts.
    """
    every = sorted((span, node) for node, spans in silences.items() for span in spans)
    found: list[FleetStall] = []
    group: list[tuple[Span, str]] = []
    until = -math.inf
    for (begin, end), node in every:
        if group and begin >= until:
            found.append(_describe(group, observed))
            group = []
        # the stall lasts until the first node moves bytes again
        until = min(until, end) if group else end
        group.append(((begin, end), node))
    if group:
        found.append(_describe(group, observed))
    return sorted(found, key=lambda stall: stall.since - stall.until)


def _describe(group: Sequence[tuple[Span, str]], observed: Mapping[str, Sequence[Span]]) -> FleetStall:
    own: dict[str, Span] = {}
    for span, node in group:
        own.setdefault(node, span)
    since, until = max(begin for begin, _ in own.values()), min(end for _, end in own.values())
    moving = tuple(
        node
        for node, spans in observed.items()
        if node not in own and any(begin <= since and end >= since + MIN_SILENCE_SECONDS for begin, end in spans)
    )
    return FleetStall(tuple(own), moving, since, until)
