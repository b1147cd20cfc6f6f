"""The skew of a table of expert loads: of each layer, over time, on the rails, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ibpulse.workbench.models.expert_load import rank_loads
from ibpulse.workbench.models.expert_skew import Unevenness, added_seconds, describe_loads, persistence, placed_loads
from ibpulse.workbench.models.load_table import LoadRow
from ibpulse.workbench.models.rail_skew import RailLoads, rail_loads


@dataclass(frozen=True, slots=True)
class SkewInputs:
    """How experts are placed, and what is known of the job; None if unknown.

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
    """The skew of all layers; `rails` are those of all layers together.

    `counted` is whether loads are whole numbers, and so taken for token copies. `added` are seconds per step, from 0,
    because an exchange that is hidden behind compute costs nothing, to what an exposed one costs; None if unknown.
    """

    inputs: SkewInputs
    experts: int
    counted: bool
    layers: tuple[LayerSkew, ...]
    rails: tuple[RailLoads, ...]
    added: float | None

    @property
    def worst(self) -> LayerSkew:
        """The layer with the most uneven ranks."""
        return max(self.layers, key=lambda layer: layer.ranks.penalty)

    @property
    def mean_penalty(self) -> float:
        """Maximum over mean, as the mean of all layers: what exchanges of equal length pay."""
        return math.fsum(layer.ranks.penalty for layer in self.layers) / len(self.layers)


def describe_skew(rows: Sequence[LoadRow], inputs: SkewInputs) -> SkewReport:
    """The skew of a table.

    Raises:
        ValueError: experts do not divide by ranks, ranks do not divide by nodes, or a placement does not fit.
    """
    counted = all(load.is_integer() for row in rows for load in row.loads)
    placements = _placements(rows, inputs)
    layers: dict[str, list[list[float]]] = {}
    for row in rows:
        layers.setdefault(row.layer, []).append(_over_ranks(row, placements.get(row.layer), inputs.ranks))
    experts: dict[str, list[Sequence[float]]] = {}
    for row in rows:
        experts.setdefault(row.layer, []).append(row.loads)
    found = tuple(_layer(name, loads, experts[name], inputs, counted) for name, loads in layers.items())
    together = [math.fsum(column) for column in zip(*(layer.ranks.loads for layer in found), strict=True)]
    exchange = inputs.exchange_seconds
    return SkewReport(
        inputs=inputs,
        experts=len(rows[0].loads),
        counted=counted,
        layers=found,
        rails=rail_loads(together, inputs.nodes) if inputs.nodes and inputs.nodes > 1 else (),
        added=None if exchange is None else added_seconds([layer.ranks.penalty for layer in found], exchange),
    )


def _placements(rows: Sequence[LoadRow], inputs: SkewInputs) -> Mapping[str, list[int]]:
    """The experts of the slots of each layer; the rows of a placement are in the order of the layers."""
    if not inputs.placements:
        return {}
    names = list(dict.fromkeys(row.layer for row in rows))
    if len(inputs.placements) != len(names):
        raise ValueError(f"the placement has {len(inputs.placements)} rows for {len(names)} layers; give one for each")
    found = {}
    for name, row in zip(names, inputs.placements, strict=True):
        if not all(slot.is_integer() for slot in row.loads):
            raise ValueError(f"the placement of layer {name} has numbers that are not whole; give numbers of experts")
        found[name] = [int(slot) for slot in row.loads]
    return found


def _over_ranks(row: LoadRow, placement: Sequence[int] | None, ranks: int) -> list[float]:
    return rank_loads(row.loads, ranks) if placement is None else placed_loads(row.loads, placement, ranks)


def _layer(
    name: str, windows: Sequence[Sequence[float]], experts: Sequence[Sequence[float]], inputs: SkewInputs, counted: bool
) -> LayerSkew:
    loads = [math.fsum(column) for column in zip(*windows, strict=True)]
    total = math.fsum(loads)
    tokens = inputs.tokens * len(windows) if inputs.tokens else total if counted else None
    nodes = None
    if inputs.nodes and inputs.nodes > 1:
        if len(loads) % inputs.nodes:
            raise ValueError(f"{len(loads)} ranks do not divide by {inputs.nodes} nodes; give nodes that divide them")
        nodes = describe_loads(rank_loads(loads, inputs.nodes), tokens)
    return LayerSkew(name, len(windows), describe_loads(loads, tokens), nodes, persistence(experts))
