"""How uneven the loads of experts are: over ranks and nodes, against chance, from one window of time to the next.

An exchange of tokens ends with its most loaded rank, so maximum over mean is what it pays. Chance alone makes loads
uneven too; only what is above that is skew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ibpulse.workbench.models.expert_load import chance_cv, jain_index, measured_penalty, penalty, rank_loads

MARGIN = 0.05
"""Loads are skewed if maximum over mean exceeds that of chance by more."""


@dataclass(frozen=True, slots=True)
class Unevenness:
    """Loads of some ranks or nodes: maximum over mean, coefficient of variation, Jain's index, and the hottest one.

    `chance` is the maximum over mean of uniform routing, by chance; None if the number of tokens is unknown.
    """

    loads: tuple[float, ...]
    penalty: float
    cv: float
    jain: float
    hottest: int
    chance: float | None

    @property
    def skewed(self) -> bool | None:
        """Whether the loads are more uneven than by chance; None if that is unknown."""
        return None if self.chance is None else self.penalty > self.chance + MARGIN


def describe_loads(loads: Sequence[float], tokens: float | None) -> Unevenness:
    """The unevenness of loads, one per rank or node; `tokens` is the number of token copies that they add up to.

    Raises:
        ValueError: fewer than two loads, a negative one or one that is not finite, or only zeros.
    """
    worst = measured_penalty(loads)
    mean = math.fsum(loads) / len(loads)
    cv = math.sqrt(math.fsum((load - mean) ** 2 for load in loads) / len(loads)) / mean
    chance = penalty(len(loads), chance_cv(len(loads), tokens)) if tokens and len(loads) > 1 else None
    return Unevenness(tuple(loads), worst, cv, jain_index(cv), max(range(len(loads)), key=loads.__getitem__), chance)


def placed_loads(loads: Sequence[float], placement: Sequence[int], ranks: int) -> list[float]:
    """Loads of ranks whose slots hold replicas of experts; the load of an expert is shared equally by its replicas.

    `placement` has the expert of each slot, rank by rank, as the load balancer EPLB writes it.

    Raises:
        ValueError: an expert does not exist or has no replica, or slots do not divide by ranks.
    """
    replicas = [0] * len(loads)
    for expert in placement:
        if not 0 <= expert < len(loads):
            raise ValueError(f"expert {expert} does not exist; the table has experts 0 to {len(loads) - 1}")
        replicas[expert] += 1
    if 0 in replicas:
        raise ValueError(f"expert {replicas.index(0)} is on no rank; place every expert")
    return rank_loads([loads[expert] / replicas[expert] for expert in placement], ranks)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's correlation of two lists, with mean ranks for equal values; NaN if one of them is constant."""
    one, other = _ranks(first), _ranks(second)
    mean = (len(one) + 1) / 2
    above = math.fsum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    below = math.fsum((a - mean) ** 2 for a in one) * math.fsum((b - mean) ** 2 for b in other)
    return above / math.sqrt(below) if below else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        end = first + 1
        while end < len(order) and values[order[end]] == values[order[first]]:
            end += 1
        for at in order[first:end]:
            ranks[at] = (first + 1 + end) / 2
        first = end
    return ranks


def persistence(windows: Sequence[Sequence[float]]) -> float:
    """Mean rank correlation of loads from one window to the next: 1 if the same experts stay popular, near 0 for noise.

    NaN with fewer than two windows.
    """
    found = [rank_correlation(one, other) for one, other in pairwise(windows)]
    known = [value for value in found if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def added_seconds(penalties: Sequence[float], seconds: float) -> float:
    """Seconds that uneven loads add to exchanges of all layers together, which would take `seconds` with even ones.

    (mean of maximum over mean - 1) x seconds: each layer's exchange waits for its own most loaded rank.
    """
    return (math.fsum(penalties) / len(penalties) - 1) * seconds
