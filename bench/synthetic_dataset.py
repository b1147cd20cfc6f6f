"""Datasets of synthetic fleets, written by the program's own per-node stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.synthetic_fleet import INTERVAL_MS, LINE, START_NS, SyntheticFleet
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, save
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.workbench.fleet.dataset import RAW, DatasetStore, Part
from ibpulse.workbench.fleet.tiers import PartOrigin, finish_part

TICK_NS = round(INTERVAL_MS * MILLISECOND_NS)


@dataclass(frozen=True)
class RailPlan:
    """What rails carry: `hot` rails of all nodes and `ports` (node, rail) by a factor.

    `failover` is (node, silent rail, rail that takes over, first sample).
    """

    hot: Mapping[int, float] = field(default_factory=dict)
    ports: Mapping[tuple[int, int], float] = field(default_factory=dict)
    failover: tuple[int, int, int, int] | None = None

    def weights(self, node: int, rails: int, samples: int) -> Floats:
        """Factors of the rails of a node: (rails, samples)."""
        found = np.ones((rails, samples))
        for rail, factor in self.hot.items():
            found[rail] *= factor
        for (at, rail), factor in self.ports.items():
            if at == node:
                found[rail] *= factor
        if self.failover is not None and self.failover[0] == node:
            _, silent, doubled, first = self.failover
            found[doubled, first:] += found[silent, first:]
            found[silent, first:] = 0.0
        return found


def write_dataset(
    folder: Path,
    fleets: Sequence[SyntheticFleet],
    rails: RailPlan | None = None,
    *,
    job: str = "1001",
    clocks: Mapping[str, ClockOffset] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    start_ns: int = START_NS,
) -> Path:
    """A dataset of nodes whose rails belong to the fleets in turn: two fleets are two pipelines on every node."""
    store = DatasetStore(str(folder))
    store.begin()
    plan, chosen = fleets[0].plan, rails or RailPlan()
    measured = fleets[0].clocks() if clocks is None else clocks
    for node, name in enumerate(fleets[0].names):
        rates = np.concatenate(
            [np.repeat(each.rates[name][np.newaxis] / each.plan.rails, each.plan.rails, axis=0) for each in fleets]
        )
        rates *= chosen.weights(node, len(rates), plan.samples)[:, np.newaxis]
        stride = plan.stride.get(node, 1)
        ports = tuple(
            RecordedPort(f"mlx5_{rail}", 1, 2 * LINE, state="ACTIVE", stride=stride) for rail in range(len(rates))
        )
        meta = RecordingMeta(name, TICK_NS, ports, "record", simulated=True)
        seconds = np.where(np.isnan(rates), 0.0, TICK_NS / 1e9)
        recording = Recording(meta, start_ns + TICK_NS, rates, seconds)
        part = Part(job, name, recording.start_ns)
        path = store.local_path(RAW, part)
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, recording)
        origin = PartOrigin("synthetic", (labels or {}).get(name, {}), measured.get(name), True, start_ns)
        finish_part(str(folder), part, origin)
    return folder
