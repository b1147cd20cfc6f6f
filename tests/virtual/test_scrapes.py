"""Series of virtual nodes as Prometheus takes them, and the rates between scrapes at any phase."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import HALF_LINE, Constant
from tests.virtual.node import Node
from tests.virtual.openmetrics import INTERVAL_SECONDS, Scrapes
from tests.virtual.rates import RATE, WORD
from tests.virtual.world import SECOND, START_NS


def test_a_counter_grows_by_the_traffic_between_two_scrapes(folder: Path) -> None:
    with Node(folder, rails=1, workload=Constant(RATE)) as node:
        # half a second after a second, when its samples are counted
        node.run(0.5)
        series = Scrapes()
        series.follow([node], 4)
        series.write(folder / "series")
    lines = (folder / "series").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("# TYPE up gauge", "# EOF")
    # all samples of a series follow each other, by time
    (begin,) = (place for place, line in enumerate(lines) if line == "# TYPE ibpulse_port_transmit_bytes counter")
    series, values, times = zip(*(line.rsplit(" ", 2) for line in lines[begin + 1 : begin + 5]), strict=True)
    labels = 'device="mlx5_0",instance="node-0",job="ibpulse",port="1"'
    assert {*series} == {f"ibpulse_port_transmit_bytes_total{{{labels}}}"}
    assert [float(time) for time in times] == [
        START_NS / SECOND + 0.5 + INTERVAL_SECONDS * count for count in range(1, 5)
    ]
    growths = [float(later) - float(earlier) for earlier, later in pairwise(values)]
    assert growths == pytest.approx([RATE * INTERVAL_SECONDS] * 3, abs=WORD)


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
