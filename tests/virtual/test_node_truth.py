"""What a node says of an exact square wave, against its closed form: with slow reads, and with missing samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ibpulse.simulate.workloads import Square
from tests.running import Metrics
from tests.virtual.node import Node

PERIOD, DUTY, RATE, RAILS = 0.1873, 0.37, 40e9, 4
SCALES = (10, 50, 100)
BUSY = PERIOD * DUTY


def wave() -> Square:
    return Square(round(PERIOD * 1e9), DUTY, RATE)


def square_duty(sample: float) -> float:
    """The part of samples that a busy time overlaps, at any phase."""
    return (BUSY + sample) / PERIOD


def square_cv(bin_seconds: float) -> float:
    """Over the bins that a busy time overlaps, at any phase; a silence is longer than a bin."""
    if bin_seconds <= BUSY:
        return math.sqrt((BUSY - bin_seconds / 3) * (BUSY + bin_seconds) / BUSY**2 - 1)
    return math.sqrt((BUSY + bin_seconds) * (1 - BUSY / (3 * bin_seconds)) / bin_seconds - 1)


def node_value(metrics: Metrics, name: str, **labels: str) -> float:
    (value,) = metrics.find(f"ibpulse_node_{name}", window="1m", **labels).values()
    return value


@pytest.mark.parametrize(("read_seconds", "sample", "scales_ms"), [(0.00045, 0.01, SCALES), (0.0009, 0.02, (100,))])
def test_slow_reads_do_not_spread_the_edges_of_the_sum(
    folder: Path, read_seconds: float, sample: float, scales_ms: Sequence[int]
) -> None:
    with Node(folder, workload=wave(), rails=RAILS) as node:
        for rail in range(RAILS):
            # both counters of all rails take up to 72 % of an interval, which is lengthened then
            node.slow(f"mlx5_{rail}", read_seconds)
        node.run(70)
        found = node.metrics()
        assert set(found.find("ibpulse_port_sampling_interval_seconds").values()) == {sample}
        told = {
            scale: found.find("ibpulse_node_burstiness_cv", window="1m", timescale=f"{scale}ms") for scale in SCALES
        }
        variations = {scale: value for scale, values in told.items() for value in values.values()}
        assert node_value(found, "duty_cycle_ratio") == pytest.approx(square_duty(sample), rel=0.01)
        assert variations == pytest.approx({scale: square_cv(scale / 1000) for scale in scales_ms}, rel=0.02)
        assert sum(found.find("ibpulse_node_rail_fairness_ratio").values()) == pytest.approx(1, abs=1e-4)


def test_means_are_exact_while_a_sampler_is_frozen_for_40_percent_of_the_time(folder: Path) -> None:
    random, late, tick = np.random.default_rng(1), {}, 0
    with Node(folder, workload=wave(), rails=RAILS) as node:
        begin = node.clock.time_ns() // node.interval_ns
        while tick < 6400:
            frozen = int(random.integers(3, 9))
            late[begin + tick] = frozen * node.interval_ns
            tick += frozen + int(random.integers(5, 16))
        node.late_by(late)
        node.run(61.5)
        found = node.metrics()
        assert 0.5 < node_value(found, "observed_ratio") < 0.65
        for way in ("transmit", "receive"):
            assert node_value(found, f"{way}_bytes_per_second") == pytest.approx(DUTY * RAILS * RATE, rel=0.005)
        # half of the bursts begin unseen: the others are found in half of the time
        began, watched = (
            sum(found.find(f"ibpulse_node_{name}_total").values()) for name in ("bursts", "burst_watched_seconds")
        )
        assert began < 0.6 * 61 / PERIOD
        assert began / watched == pytest.approx(1 / PERIOD, rel=3 / math.sqrt(began))
