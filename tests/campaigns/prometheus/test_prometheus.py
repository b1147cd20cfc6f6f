"""A real Prometheus scrapes the daemon, and PromQL over the moment counters tells what the gauges tell."""

from __future__ import annotations

import math
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fabrics import simulated
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("prometheus", "promtool")

PORT = 'device="mlx5_0",port="1"'
MEAN = (
    "rate(ibpulse_port_transmit_{0}seconds_total{{{1}}}[10s]) / rate(ibpulse_port_observed_seconds_total{{{1}}}[10s])"
)


class Prometheus:
    """A server with one target, asked by instant queries."""

    def __init__(self, directory: Path, target: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: ibpulse, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ]
        )

    def query(self, expression: str) -> float:
        """The one value of an expression, NaN while there is none."""
        try:
            answer = httpx.get(self.url + "/api/v1/query", params={"query": expression}).json()
        except (httpx.TransportError, ValueError):
            # while Prometheus starts, it refuses connections or answers without JSON
            return math.nan
        result = answer.get("data", {}).get("result", [])
        return float(result[0]["value"][1]) if result else math.nan


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Prometheus]]:
    """A daemon over a square wave of 200 ms, 40 % on at 20 GB/s, scraped every second for a while."""
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        simulated(directory / "sys", "square", period="200ms", duty=0.4, rate="20GB/s") as tree,
        Running(tree, directory / "ring") as daemon,
    ):
        server = Prometheus(directory, daemon.url.removeprefix("http://"))
        try:
            eventually(lambda: server.query(f"ibpulse_port_observed_seconds_total{{{PORT}}}") > 24, 60.0, 0.5)
            yield daemon, server
        finally:
            server.process.terminate()
            server.process.wait(10)


def test_mean_duty_and_burstiness_in_promql_agree_with_the_gauges(scraped: tuple[Running, Prometheus]) -> None:
    daemon, server = scraped
    active = MEAN.format("active_", PORT)
    u = MEAN.format("active_utilization_", PORT)
    q = MEAN.format("active_utilization_squared_", PORT)
    cv = f"sqrt(clamp_min(({q}) / ({active}) - (({u}) / ({active})) ^ 2, 0)) / (({u}) / ({active}))"

    def agree() -> bool:
        """Whether both say the same. The wave repeats fifty times in a window, but pauses on a busy machine."""
        metrics = daemon.metrics()
        duty = metrics.port("transmit_duty_cycle_ratio", "mlx5_0", window="10s")
        burstiness = metrics.port("transmit_burstiness_cv", "mlx5_0", window="10s")
        same_duty = server.query(active) == pytest.approx(duty, rel=0.02)
        return same_duty and server.query(cv) == pytest.approx(burstiness, abs=0.02)

    eventually(agree, 60.0, 0.5)
    # a pause inside a sample lowers it until the pause has left the window
    eventually(lambda: server.query(MEAN.format("utilization_", PORT)) == pytest.approx(0.4 * 20 / 50, rel=0.03), 90.0)


def test_the_histogram_gives_the_share_of_time_at_full_rate(scraped: tuple[Running, Prometheus]) -> None:
    _, server = scraped
    bucket = 'rate(ibpulse_port_transmit_utilization_ratio_bucket{%s,le="%s"}[10s])'
    below = bucket % (PORT, "0.1") + " / ignoring(le) " + bucket % (PORT, "+Inf")
    eventually(lambda: server.query(below) == pytest.approx(0.6, abs=0.06), 90.0)


def test_every_scrape_is_accepted(scraped: tuple[Running, Prometheus]) -> None:
    _, server = scraped
    assert server.query("min_over_time(up[10s])") == 1.0


def test_promtool_finds_nothing_to_say(scraped: tuple[Running, Prometheus]) -> None:
    daemon, _ = scraped
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=daemon.ask("/metrics").content, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
