"""What is done to a running fabric is told by the daemon, and how soon, in the time of the samples."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fabrics import simulated
from tests.running import Metrics, Running, eventually

log = logging.getLogger(__name__)

WINDOW_SECONDS = 20
DENSE_STEP_SECONDS = 0.315


class Watched:
    """A daemon over a fabric that can be told things."""

    def __init__(self, tree: Path, daemon: Running) -> None:
        self._tree = tree
        self._daemon = daemon
        self.told = time.time()

    def tell(self, **document: object) -> None:
        """Put a new control file into the place of the old one."""
        fresh = self._tree / "faults.new"
        fresh.write_text(json.dumps({name.replace("_", "-"): value for name, value in document.items()}))
        fresh.rename(self._tree / "faults.json")
        self.told = time.time()

    def seconds_until(self, seen: Callable[[Metrics], bool], limit: float = 90.0) -> float:
        """Seconds of samples between the last telling and the first numbers in which something is seen."""

        def look() -> float:
            metrics = self._daemon.metrics()
            return metrics.value("ibpulse_aggregated_until_timestamp_seconds") if seen(metrics) else 0.0

        took = eventually(look, limit, 0.2) - self.told
        log.info("seen after %.1f s", took)
        return took


@pytest.fixture
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    window = f"--analysis.traffic-window={WINDOW_SECONDS}s"
    with simulated(tmp_path / "sys", request.param) as tree, Running(tree, tmp_path / "ring", window) as daemon:
        yield Watched(tree, daemon)


def fairness(metrics: Metrics) -> float:
    return sum(metrics.find("ibpulse_node_rail_fairness_ratio").values())


def named(metrics: Metrics, state: str) -> set[str]:
    found = metrics.find(f"ibpulse_port_rail_{state}")
    return {dict(key)["device"] for key, value in found.items() if value == 1}


def signature(metrics: Metrics) -> str:
    found = metrics.find("ibpulse_node_workload_signature")
    return next(dict(key)["signature"] for key, value in found.items() if value == 1)


def step_is(metrics: Metrics, seconds: float) -> bool:
    found = metrics.find("ibpulse_node_step_period_seconds").values()
    return any(value == pytest.approx(seconds, rel=0.01) for value in found)


@pytest.mark.parametrize("watched", ["expert-parallel"], indirect=True)
@pytest.mark.parametrize("death", ["idle_rail", "link_flap"])
def test_a_rail_that_dies_is_named_within_five_seconds(watched: Watched, death: str) -> None:
    watched.seconds_until(lambda metrics: fairness(metrics) > 0.999)
    watched.tell(**{death: ["mlx5_3"]})
    took = watched.seconds_until(
        lambda metrics: fairness(metrics) == pytest.approx(7 / 8, abs=1e-3) and named(metrics, "idle") == {"mlx5_3"}
    )
    assert took <= 5


@pytest.mark.parametrize("watched", ["expert-parallel"], indirect=True)
def test_a_slow_rail_is_named_within_fifteen_seconds(watched: Watched) -> None:
    watched.seconds_until(lambda metrics: fairness(metrics) > 0.999)
    watched.tell(slow_rail={"mlx5_2": 0.5})
    took = watched.seconds_until(lambda metrics: named(metrics, "slow") == {"mlx5_2"})
    assert took <= 15


@pytest.mark.parametrize("watched", ["dense"], indirect=True)
def test_a_longer_step_and_another_workload_are_seen_within_a_few_windows(watched: Watched) -> None:
    watched.seconds_until(lambda metrics: signature(metrics) == "dense_like")
    watched.seconds_until(lambda metrics: step_is(metrics, DENSE_STEP_SECONDS))
    watched.tell(workload={"name": "dense", "stretch": 1.1})
    assert watched.seconds_until(lambda metrics: step_is(metrics, 1.1 * DENSE_STEP_SECONDS)) <= 3 * WINDOW_SECONDS
    watched.tell(workload="moe")
    assert watched.seconds_until(lambda metrics: signature(metrics) == "moe_like") <= 2 * WINDOW_SECONDS
    watched.tell(workload="idle")
    assert watched.seconds_until(lambda metrics: signature(metrics) == "idle") <= 2 * WINDOW_SECONDS
