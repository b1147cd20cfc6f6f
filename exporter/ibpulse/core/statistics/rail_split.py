"""Splits the rates of the rails of many nodes into what is common to a node, what to a rail, and what is left.

log(rate of a rail on a node) = common + node + rail + rest, by median polish (Tukey, 1977): a rail that is hot on every
node, a node that carries less on all of its rails, and a single port that differs come out in different places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import FEWEST_PEERS
from ibpulse.core.statistics.hot_rail import HOT_FACTOR
from ibpulse.core.statistics.quantiles import quantile

# a rail below this part of the median of its node carries nothing
IDLE_PART = 0.05
# a single port differs by so many robust standard deviations of all ports
ENOUGH_Z = 5.0
MAD_TO_DEVIATION = 1.4826
ROUNDS = 10
FEWEST = 2


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
        relative = self.rail * self.rest
        found: list[tuple[str, float, int]] = []
        if np.count_nonzero(~np.isnan(self.rail)) <= FEWEST_PEERS:
            return found
        for place, name in enumerate(self.rails):
            nodes = int(np.count_nonzero(relative[:, place] >= HOT_FACTOR))
            known = int(np.count_nonzero(~np.isnan(relative[:, place])))
            if self.rail[place] >= HOT_FACTOR and known >= FEWEST and 2 * nodes > known:
                found.append((name, float(self.rail[place]), nodes))
        return sorted(found, key=lambda one: -one[1])

    def differing_nodes(self) -> list[tuple[str, float]]:
        """Nodes whose rails carry clearly more or less than those of the others, with the factor."""
        if np.count_nonzero(~np.isnan(self.node)) <= FEWEST_PEERS:
            return []
        away = np.abs(np.log(self.node))
        return [(self.nodes[place], float(self.node[place])) for place in np.flatnonzero(away >= math.log(HOT_FACTOR))]

    def differing_ports(self) -> list[tuple[str, str, float]]:
        """Single ports that carry clearly more or less than their node and their rail explain: node, rail, factor."""
        away = np.abs(np.log(self.rest))
        peers = [np.count_nonzero(np.isfinite(away), axis=axis, keepdims=True) - 1 for axis in (0, 1)]
        away[np.minimum(*peers) < FEWEST_PEERS] = np.nan
        known = away[np.isfinite(away)]
        if not known.size:
            return []
        least = max(math.log(HOT_FACTOR), ENOUGH_Z * MAD_TO_DEVIATION * float(quantile(known, 0.5)))
        places = np.argwhere(away >= least)
        return [(self.nodes[node], self.rails[rail], float(self.rest[node, rail])) for node, rail in places]

    def idle_ports(self) -> list[tuple[str, str]]:
        """Ports that carry nothing: node and rail."""
        return [(self.nodes[node], self.rails[rail]) for node, rail in np.argwhere(self.idle)]


def split_rates(nodes: Sequence[str], rails: Sequence[str], rates: Floats) -> RailSplit:
    """The split of mean rates (nodes, rails) in one direction; NaN for a rail that a node lacks or that is unknown."""
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
    unknown = np.isnan(rest)
    rail = np.where(unknown.all(axis=0), np.nan, rail)
    node, rail = (each - _medians(each[np.newaxis], 1)[0] for each in (node, rail))
    return RailSplit(tuple(nodes), tuple(rails), np.exp(node), np.exp(rail), np.exp(rest), np.asarray(idle))


def _medians(values: Floats, axis: int) -> Floats:
    """Medians of the known values; NaN where none is."""
    found = np.full(values.shape[1 - axis], np.nan)
    some = (~np.isnan(values)).any(axis=axis)
    if some.any():
        found[some] = np.nanmedian(values[some] if axis == 1 else values[:, some], axis=axis)
    return found
