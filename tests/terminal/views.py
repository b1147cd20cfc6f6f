"""Views for the tests, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ibpulse.core.answers.summary import DirectionStatistics, NodeSummary, PortSummary, RunSummary, Summary
from ibpulse.core.events import Event
from ibpulse.workbench.top.view import RailView, SamplerView, View

NONE = DirectionStatistics(**dict.fromkeys(DirectionStatistics.model_fields))
WALL_NS = 1_763_683_200 * 10**9


def rail(
    name: str,
    *,
    active: bool = True,
    state: str = "ACTIVE",
    rate: float | None = 50e9,
    level: float = 0.5,
    down: tuple[int, ...] = (),
    since: int | None = None,
) -> RailView:
    """A rail whose peaks rise from nothing to its data rate, twice, and whose mean is `level` of 50 GB/s.

    The bins `down` have no traffic because the link was down; the state began `since` seconds ago.
    """
    ramp = np.tile(np.linspace(0, 50e9, 20, dtype=np.float32), 2)
    peaks = np.array([ramp, ramp / 2], dtype=np.float32)
    peaks[:, 3] = np.nan
    marked = np.zeros(40, dtype=np.bool_)
    marked[list(down)] = True
    peaks[:, marked] = 0
    since_ns = None if since is None else WALL_NS - since * 10**9
    return RailView(name, active, state, rate, peaks, (level * 50e9, level * 25e9), marked, since_ns, WALL_NS)


def event(seconds_ago: int, text: str, kind: str = "link-down") -> Event:
    """An event of a port."""
    return Event(WALL_NS - seconds_ago * 10**9, kind, "mlx5_0:1", text)


def summary(ports: int = 8, *, idle: tuple[int, ...] = (), slow: tuple[int, ...] = (), **changes: Any) -> Summary:
    """The summary of a dense run on so many rails."""
    node = {
        "rails": ports,
        "active_rails": ports - len(idle),
        "observed_seconds": 10.0,
        "transmit_bytes_per_second": 115e9,
        "receive_bytes_per_second": 116.4e9,
        "line_rate_bytes_per_second": 800e9,
        "bandwidth_peak_bytes_per_second": 615.2e9,
        "bandwidth_peak_utilization_ratio": 615.2 / 800,
        "bandwidth_active_mean_bytes_per_second": 310.1e9,
        "peak_to_mean_ratio": 2.6,
        "duty_cycle_ratio": 0.7468,
        "burstiness_cv": {"10ms": 0.205, "50ms": 0.297, "100ms": 0.385, "1s": None},
        "bursts": RunSummary(count=30, mean_seconds=0.23, mean_bytes=36e9),
        "gaps": RunSummary(count=30, mean_seconds=0.08, mean_bytes=None),
        "rail_fairness_ratio": 1.0,
        "step_period_seconds": 0.3149,
        "step_period_score": 0.998,
        "workload_signature": "dense_like",
        "workload_signature_confidence": 0.587,
        **changes,
    }
    rails = [
        PortSummary(
            port=f"mlx5_{n}:1",
            state="ACTIVE",
            rail=True,
            observed_seconds=10.0,
            transmit=NONE,
            receive=NONE,
            bursts=30,
            burst_seconds=0.2,
            rail_share_ratio=0.125,
            rail_idle=n in idle,
            rail_slow=n in slow,
        )
        for n in range(ports)
    ]
    return Summary(window_seconds=10, start_ms=0, end_ms=10_000, node=NodeSummary(**node), ports=rails)


def view(count: int = 8, **changes: Any) -> View:
    given: dict[str, Any] = {
        "place": "http://node7:10055",
        "wall_ns": WALL_NS,
        "interval_ns": 10_000_000,
        "bin_ns": 100_000_000,
        "rails": tuple(rail(f"mlx5_{number}:1") for number in range(count)),
        "others": 1,
        "summary": summary(count),
        "sampler": SamplerView(9998, 2, 0, 1, 0.00012),
    }
    return View(**{**given, **changes})
