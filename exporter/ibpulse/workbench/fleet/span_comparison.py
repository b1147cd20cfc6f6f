"""Compares the steps of two spans or of two jobs, with intervals from resampled steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.statistics.bootstrap import find_interval, resample
from ibpulse.core.statistics.lateness import match_steps
from ibpulse.workbench.fleet.peer_groups import PeerGroup
from ibpulse.workbench.fleet.report_source import FleetNode

RESAMPLES, LEVEL, SEED = 2000, 0.95, 0
# the sums of a step: nodes, seconds of them, bytes, silent seconds
NODES, SECONDS, BYTES, SILENT = range(4)


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A number before and after, in SI units, and after over before with its interval; NaN if unknown."""

    key: str
    label: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes no change."""
        return not math.isnan(self.low) and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """The changes, the numbers of steps before and after, and the level of each interval."""

    changes: tuple[FleetChange, ...]
    before_steps: int
    after_steps: int
    level: float


def step_sums(peers: Sequence[PeerGroup], nodes: Mapping[str, FleetNode]) -> Floats:
    """Sums over the nodes for each step of the largest group of peers: (steps, 4), those of `NODES` to `SILENT`.

    Steps that lost data are left out on that node.
    """
    if not peers:
        return np.zeros((0, 4))
    groups = max(peers, key=lambda each: sum(len(one.columns["step"]) for one in each.groups.values())).groups
    with_steps = {
        name: group for name, group in groups.items() if np.count_nonzero(~np.isnan(group.columns["begin"])) > 1
    }
    if not with_steps:
        return np.zeros((0, 4))
    places = match_steps([group.columns["begin"] - nodes[name].offset_ns for name, group in with_steps.items()])
    sums = np.zeros((places.shape[1], 4))
    for own, group in zip(places, with_steps.values(), strict=True):
        columns = group.columns
        lengths = columns["length"] / SECOND_NS
        moved = columns["transmit_bytes"] + columns["receive_bytes"]
        values = np.stack([np.ones(len(lengths)), lengths, moved, columns["silent_ratio"] * lengths], axis=1)
        usable = (own >= 0) & ~np.isnan(values[own]).any(axis=1) & ~(columns["missing_ratio"][own] > 0)
        sums[usable] += values[own[usable]]
    return np.asarray(sums[sums[:, NODES] > 0])


def compare_spans(before: Floats, after: Floats) -> FleetChanges:
    """The changes from the steps of one span to those of another."""
    rng = np.random.default_rng(SEED)
    drawn = [resample(each, RESAMPLES, rng) for each in (before, after)]
    level = 1 - (1 - LEVEL) / len(_STATISTICS)
    found = []
    for key, label, unit, statistic in _STATISTICS:
        values = [float(statistic(each.sum(axis=0))) if len(each) else math.nan for each in (before, after)]
        low = high = math.nan
        if drawn[0] is not None and drawn[1] is not None:
            ratios = np.asarray(statistic(drawn[1].sums) / statistic(drawn[0].sums))
            low, high = find_interval(ratios, min(drawn[0].groups, drawn[1].groups), level)
        ratio = values[1] / values[0] if values[0] > 0 else math.nan
        found.append(FleetChange(key, label, unit, values[0], values[1], ratio, low, high))
    return FleetChanges(tuple(found), len(before), len(after), level)


def _quotient(over: int, under: int, less: int | None = None) -> Callable[[Floats], Floats]:
    def statistic(sums: Floats) -> Floats:
        below = sums[..., under] - (0.0 if less is None else sums[..., less])
        return np.asarray(np.divide(sums[..., over], below, out=np.full(below.shape, np.nan), where=below > 0))

    return statistic


_STATISTICS = (
    ("step_seconds", "step", "seconds", _quotient(SECONDS, NODES)),
    ("step_bytes", "bytes of a step and node", "bytes", _quotient(BYTES, NODES)),
    ("active_bytes_per_second", "bandwidth of a node while active", "rate", _quotient(BYTES, SECONDS, SILENT)),
    ("silent_ratio", "silent share of a step", "ratio", _quotient(SILENT, SECONDS)),
)
