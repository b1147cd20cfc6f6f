"""Series of virtual nodes with their times, as Prometheus takes them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import Constant
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
