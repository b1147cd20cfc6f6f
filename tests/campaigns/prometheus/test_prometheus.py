"""PromQL over the moment counters of a wave gives its closed form, as do the gauges of the node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ibpulse.workbench.simulate.timeline import Step, build_step, even_weights
from tests.grafana.stored import Stored
from tests.running import Metrics
from tests.virtual.node import Node
from tests.virtual.openmetrics import INTERVAL_SECONDS, Scrapes
from tests.virtual.world import SECOND, START_NS

pytestmark = pytest.mark.needs("prometheus", "promtool")

RATE, LINE = 20e9, 50e9
# shares of the time: at this rate, at half of it, silent
FULL, HALF, SILENT = 0.4, 0.2, 0.4
SCRAPES = 8
END = START_NS / SECOND + SCRAPES * INTERVAL_SECONDS
PORT = 'device="mlx5_0",port="1"'
MEAN = "rate(ibpulse_port_transmit_{}seconds_total{{%s}}[1m]) / rate(ibpulse_port_observed_seconds_total{{%s}}[1m])"
MEAN %= (PORT, PORT)
# counters count words of four bytes
NEAR = 1e-6
# a sample begins 50 µs after its tick, so 1 of 200 bytes is in the sample before an edge
AT_EDGES = 0.005


@dataclass(frozen=True)
class Stairs:
    """A wave of 200 ms with two levels."""

    name: str = "stairs"

    def step(self, rng: Any) -> Step:
        """One period."""
        half = (0.2 * FULL, 0.2 * (FULL + HALF), RATE / 2)
        return build_step([(0.0, 0.2 * FULL, RATE), half], 0.2)

    def weights(self, rails: int) -> Any:
        """All rails alike."""
        return even_weights(rails)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stored, Metrics]]:
    """Two minutes of the wave, and what the node says at their end."""
    folder, series = tmp_path_factory.mktemp("wave"), Scrapes()
    with Node(folder / "node", rails=1, workload=Stairs()) as node:
        series.follow([node], SCRAPES)
        metrics = node.metrics()
    series.write(folder / "series")
    made = Stored(folder)
    made.store(folder / "series")
    with made.running():
        yield made, metrics


def test_mean_duty_and_burstiness_in_promql_are_in_closed_form(stored: tuple[Stored, Metrics]) -> None:
    server, metrics = stored
    active, u, q = (MEAN.format(name) for name in ("active_", "active_utilization_", "active_utilization_squared_"))
    cv = f"sqrt(clamp_min(({q}) / ({active}) - (({u}) / ({active})) ^ 2, 0)) / (({u}) / ({active}))"
    duty = FULL + HALF
    burstiness = math.sqrt((FULL + HALF / 4) * duty / (FULL + HALF / 2) ** 2 - 1)
    assert server.value(active, END) == pytest.approx(duty, rel=NEAR)
    assert metrics.port("transmit_duty_cycle_ratio", "mlx5_0", window="1m") == pytest.approx(duty, rel=NEAR)
    assert server.value(cv, END) == pytest.approx(burstiness, rel=AT_EDGES)
    assert metrics.port("transmit_burstiness_cv", "mlx5_0", window="1m") == pytest.approx(burstiness, rel=AT_EDGES)
    mean = (FULL + HALF / 2) * RATE / LINE
    assert server.value(MEAN.format("utilization_"), END) == pytest.approx(mean, rel=NEAR)


def test_the_histogram_gives_the_share_of_time_below_a_rate(stored: tuple[Stored, Metrics]) -> None:
    server, _ = stored
    bucket = 'rate(ibpulse_port_transmit_utilization_ratio_bucket{%s,le="%s"}[1m])'
    for bound, share in (("0.1", SILENT), ("0.3", SILENT + HALF)):
        below = bucket % (PORT, bound) + " / ignoring(le) " + bucket % (PORT, "+Inf")
        assert server.value(below, END) == pytest.approx(share, rel=NEAR)
