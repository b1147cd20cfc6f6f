"""The unevenness of expert loads: over ranks, nodes and rails, against chance, over time, and its cost.

An exchange of tokens ends with its most loaded rank, so maximum over mean is what it pays. Chance alone makes loads
uneven too; only what is above that is skew. The penalty is the expected maximum over the mean of n loads. For loads
that are nearly normal it follows from Blom's approximation of the largest order statistic (G. Blom, Statistical
Estimates and Transformed Beta-Variables, 1958). Popular experts are not normal: a lognormal popularity with a CV of 1
over 64 ranks has a maximum of 5.3 means where the normal form gives 3.3. Use measured loads for those.

NCCL sends to a GPU of another node over one NIC of the sender's node. With PXN (its default where NVLink is), that is
the NIC with the index of the receiver; without, that of the sender. A deduplicated dispatch sends to the GPU of the
same index on the receiver's node first. Each GPU has a rail of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

PXN, WITHOUT_PXN, DEDUPLICATED = "with PXN", "without PXN", "deduplicated"
MARGIN = 0.05
"""Loads are skewed if maximum over mean exceeds that of chance by more."""


def largest_of(count: int) -> float:
    """Expected maximum of `count` independent standard normal values: Phi^-1((n - 0.375) / (n + 0.25))."""
    from statistics import NormalDist  # slow to import, and rarely needed

    if count < 2:
        raise ValueError(f"{count} loads have no expected maximum; give 2 or more")
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def penalty(count: int, cv: float) -> float:
    """Expected maximum over mean of `count` loads with this coefficient of variation: 1 + z_n c."""
    return 1 + largest_of(count) * cv


def chance_cv(ranks: int, copies: float) -> float:
    """CV of the load of a rank if `copies` tokens are spread uniformly by chance: sqrt((1 - 1/n) / (copies/n))."""
    return math.sqrt((1 - 1 / ranks) / (copies / ranks))


def measured_penalty(loads: Sequence[float]) -> float:
    """Maximum over mean of measured loads, one per rank."""
    if not loads or not all(math.isfinite(load) and load >= 0 for load in loads) or not sum(loads):
        raise ValueError("loads are numbers of 0 or more, and at least one is more than 0")
    return max(loads) * len(loads) / math.fsum(loads)


def rank_loads(expert_loads: Sequence[float], ranks: int) -> list[float]:
    """Loads of ranks that hold equally many consecutive experts each."""
    if not expert_loads or len(expert_loads) % ranks:
        raise ValueError(f"{len(expert_loads)} loads do not divide by {ranks} ranks; give one per expert")
    held = len(expert_loads) // ranks
    return [math.fsum(expert_loads[at : at + held]) for at in range(0, len(expert_loads), held)]


@dataclass(frozen=True, slots=True)
class Unevenness:
    """Loads of some ranks or nodes: maximum over mean, coefficient of variation, Jain's index, and the hottest one.

    Jain's fairness index is 1 / (1 + CV^2). `chance` is the maximum over mean of uniform routing, by chance, `skewed`
    whether the loads are more uneven; None if the number of tokens is unknown.
    """

    loads: tuple[float, ...]
    penalty: float
    cv: float
    jain: float
    hottest: int
    chance: float | None
    skewed: bool | None


def describe_loads(loads: Sequence[float], tokens: float | None) -> Unevenness:
    """The unevenness of loads, one per rank or node; `tokens` is the number of token copies that they add up to."""
    worst = measured_penalty(loads)
    mean = math.fsum(loads) / len(loads)
    cv = math.sqrt(math.fsum((load - mean) ** 2 for load in loads) / len(loads)) / mean
    chance = penalty(len(loads), chance_cv(len(loads), tokens)) if tokens and len(loads) > 1 else None
    hot = max(range(len(loads)), key=loads.__getitem__)
    skewed = None if chance is None else worst > chance + MARGIN
    return Unevenness(tuple(loads), worst, cv, 1 / (1 + cv * cv), hot, chance, skewed)


def placed_loads(loads: Sequence[float], placement: Sequence[int], ranks: int) -> list[float]:
    """Loads of ranks whose slots hold replicas of experts; the load of an expert is shared equally by its replicas.

    `placement` has the expert of each slot, rank by rank, as the load balancer EPLB writes it.
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
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]


def persistence(windows: Sequence[Sequence[float]]) -> float:
    """Mean rank correlation of loads from one window to the next: 1 if the same experts stay popular, near 0 for noise.

    NaN with fewer than two windows.
    """
    found = [rank_correlation(one, other) for one, other in pairwise(windows)]
    known = [value for value in found if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


@dataclass(frozen=True, slots=True)
class RailLoads:
    """Traffic of each rail of each node: `transmit` and `receive` are [node][rail], in the unit of the loads."""

    path: str
    transmit: tuple[tuple[float, ...], ...]
    receive: tuple[tuple[float, ...], ...]
    shows: str


def rail_loads(loads: Sequence[float], nodes: int) -> tuple[RailLoads, ...]:
    """The loads of rails for the three ways of sending; every rank sends the same, and receives one of the `loads`.

    Law: on each node and for each way, transmit and receive add up to the loads that leave and enter the node.
    """
    if not 2 <= nodes <= len(loads) or len(loads) % nodes:
        raise ValueError(f"{len(loads)} ranks do not divide by {nodes} nodes; give 2 or more that they divide by")
    gpus = len(loads) // nodes
    held = [loads[at : at + gpus] for at in range(0, len(loads), gpus)]
    others = (nodes - 1) / nodes
    arriving = tuple(tuple(load * others for load in node) for node in held)
    # what one node sends to the others: a share of 1 / nodes of each of their loads
    by_receiver = tuple(
        tuple(math.fsum(held[to][rail] for to in range(nodes) if to != node) / nodes for rail in range(gpus))
        for node in range(nodes)
    )
    evenly = tuple(tuple(math.fsum(row) / gpus for _ in row) for row in by_receiver)
    spread = tuple(tuple(math.fsum(row) / gpus for _ in row) for row in arriving)
    return (
        RailLoads(PXN, by_receiver, arriving, "transmit of one rail on every node, and receive of one port"),
        RailLoads(WITHOUT_PXN, evenly, arriving, "receive of one port only"),
        RailLoads(DEDUPLICATED, evenly, spread, "receive of all rails of one node"),
    )


def hottest(rows: Sequence[Sequence[float]]) -> tuple[int, int, float]:
    """Node, rail and load ÷ mean of the most loaded port."""
    node, rail = max(
        ((at, to) for at, row in enumerate(rows) for to in range(len(row))), key=lambda at: rows[at[0]][at[1]]
    )
    mean = math.fsum(value for row in rows for value in row) / sum(map(len, rows))
    return node, rail, rows[node][rail] / mean if mean else math.nan


@dataclass(frozen=True, slots=True)
class LoadRow:
    """The loads of the experts of a layer, perhaps in one of several windows of time."""

    layer: str
    loads: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SkewInputs:
    """The placement of experts, and figures of the job; None if unknown.

    `ranks` hold equally many consecutive experts each, unless `placements` has the experts of each layer's slots.
    `tokens` are the token copies of a row, `exchange_seconds` the time of a step's exchanges with even loads.
    """

    ranks: int
    nodes: int | None = None
    tokens: float | None = None
    placements: Sequence[LoadRow] = ()
    exchange_seconds: float | None = None
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LayerSkew:
    """The skew of a layer, its windows of time added up; `persistence` is NaN with fewer than two windows."""

    layer: str
    windows: int
    ranks: Unevenness
    nodes: Unevenness | None
    persistence: float


@dataclass(frozen=True, slots=True)
class SkewReport:
    """The skew of all layers; `rails` are those of all layers together, `mean_penalty` is the mean of the layers.

    `counted` is whether loads are whole numbers, and so taken for token copies. `added` is the greatest number of
    seconds per step that uneven loads add, None if unknown: (mean of maximum over mean - 1) x the time of exchanges,
    because each layer's exchange waits for its own most loaded rank. One that is hidden behind compute costs nothing.
    """

    inputs: SkewInputs
    experts: int
    counted: bool
    layers: tuple[LayerSkew, ...]
    rails: tuple[RailLoads, ...]
    mean_penalty: float
    added: float | None

    @property
    def worst(self) -> LayerSkew:
        """The layer with the most uneven ranks."""
        return max(self.layers, key=lambda layer: layer.ranks.penalty)


def describe_skew(rows: Sequence[LoadRow], inputs: SkewInputs) -> SkewReport:
    """The skew of a table.

    Raises:
        ValueError: experts do not divide by ranks, ranks do not divide by nodes, or a placement does not fit.
    """
    counted = all(load.is_integer() for row in rows for load in row.loads)
    layers: dict[str, list[LoadRow]] = {}
    for row in rows:
        layers.setdefault(row.layer, []).append(row)
    placements = _placements([*layers], inputs.placements)
    found = tuple(_layer_skew(each, placements.get(name), inputs, counted) for name, each in layers.items())
    together = [math.fsum(column) for column in zip(*(layer.ranks.loads for layer in found), strict=True)]
    mean_penalty = math.fsum(layer.ranks.penalty for layer in found) / len(found)
    return SkewReport(
        inputs=inputs,
        experts=len(rows[0].loads),
        counted=counted,
        layers=found,
        rails=rail_loads(together, inputs.nodes) if inputs.nodes and inputs.nodes > 1 else (),
        mean_penalty=mean_penalty,
        added=None if inputs.exchange_seconds is None else (mean_penalty - 1) * inputs.exchange_seconds,
    )


def _placements(names: Sequence[str], rows: Sequence[LoadRow]) -> Mapping[str, list[int]]:
    """The experts of the slots of each layer; the rows of a placement are in the order of the layers."""
    if rows and len(rows) != len(names):
        raise ValueError(f"the placement has {len(rows)} rows for {len(names)} layers; give one for each")
    for name, row in zip(names, rows, strict=False):
        if not all(slot.is_integer() for slot in row.loads):
            raise ValueError(f"the placement of layer {name} has numbers that are not whole; give numbers of experts")
    return {name: [int(slot) for slot in row.loads] for name, row in zip(names, rows, strict=False)}


def _layer_skew(
    rows: Sequence[LoadRow], placement: Sequence[int] | None, inputs: SkewInputs, counted: bool
) -> LayerSkew:
    windows = [
        rank_loads(row.loads, inputs.ranks) if placement is None else placed_loads(row.loads, placement, inputs.ranks)
        for row in rows
    ]
    loads = [math.fsum(column) for column in zip(*windows, strict=True)]
    tokens = inputs.tokens * len(rows) if inputs.tokens else math.fsum(loads) if counted else None
    nodes = None
    if inputs.nodes and inputs.nodes > 1:
        if len(loads) % inputs.nodes:
            raise ValueError(f"{len(loads)} ranks do not divide by {inputs.nodes} nodes; give nodes that divide them")
        nodes = describe_loads(rank_loads(loads, inputs.nodes), tokens)
    steady = persistence([row.loads for row in rows])
    return LayerSkew(rows[0].layer, len(rows), describe_loads(loads, tokens), nodes, steady)
