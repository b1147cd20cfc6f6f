"""Series of virtual nodes as Prometheus takes them, and the rates between scrapes at any phase."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import HALF_LINE
from tests.virtual.node import Node

PHASES = random.Random(4)


@pytest.mark.parametrize(
    "pauses",
    [[1.4] * 35, [PHASES.uniform(0.02, 1.4) for _ in range(70)], [PHASES.choice([0.1, 4.9, 14.9]) for _ in range(12)]],
    ids=["every 1.4 s", "at any time", "in pairs and seldom"],
)
def test_rates_of_a_constant_flow_are_right_at_any_phase(folder: Path, pauses: Sequence[float]) -> None:
    scrapes = []
    with Node(folder, rails=2, workload="constant") as node:
        node.run(3)
        for pause in pauses:
            node.run(pause)
            metrics = node.metrics()
            found = metrics.port("transmit_bytes_total", "mlx5_0"), metrics.port("observed_seconds_total", "mlx5_0")
            scrapes.append((node.world.true_ns / 1e9, *found))
    checked = 0
    for span in (5, 15):
        for old in scrapes:
            # the last scrape within a window that begins with this one
            new = [scrape for scrape in scrapes if scrape[0] <= old[0] + span][-1]
            if new[0] < old[0] + 3:
                continue
            elapsed, moved, observed = (after - before for before, after in zip(old, new, strict=True))
            assert moved / elapsed == pytest.approx(HALF_LINE, rel=0.005)
            # both end at the same sample
            assert moved / observed == pytest.approx(HALF_LINE, rel=1e-6)
            checked += 1
    assert checked > len(scrapes)
