"""The simulator against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.congestion import scenarios
from tests.congestion.drivers import Observation, observe
from tests.congestion.network import PACKET, PORTS, STEP, TICK, Limit, Scenario
from tests.tables import for_each

SECONDS = 0.6
TICKS = round(SECONDS / TICK)
RATE = 50e9


def plain(seed: int, family: str = "mlx5 InfiniBand", **changes: Any) -> Scenario:
    """All ports send to their neighbours as fast as they can."""
    random = np.random.default_rng(seed)
    offered = np.zeros((TICKS, PORTS, 2))
    offered[:, :, 0] = 1.2 * RATE * TICK
    quiet = {
        "rate": RATE, "offered": offered, "stray_wait": 0.0, "stray_losses": 0.0, "stray_marks": 0.0,
        "failing": 0.0, "cleared": 0,
        "egress_buffer": RATE * 500e-6, "uplink_rate": RATE * PORTS, "drain": np.full((TICKS, PORTS), RATE * 1.2),
        "posts": np.full((TICKS, PORTS), RATE * 4.0), "nak_pause": 1e-3, "window": 1e6, "rnr_timer": 1e-3,
        "crosses": np.zeros((PORTS, 2), bool), "recover": 5e-3, "tail": 0.0, "mark_at": RATE * 20e-6,
        "posted_buffers": RATE * 2e-3,
    }  # fmt: skip
    return replace(scenarios.healthy(random, seed, family, TICKS), **(quiet | changes))


def everywhere(value: float) -> Any:
    return np.full((TICKS, PORTS), value)


TO_ONE = np.array([[1, 1]] + [[0, 0]] * (PORTS - 1))
LOSSES = 500.0
# seconds of sending until a step with a loss ends
BETWEEN = STEP / -math.expm1(-LOSSES * STEP)
CASES = {
    "line": plain(1),
    "source": plain(2, offered=plain(2).offered / 2.4),
    "incast": plain(3, receiver=TO_ONE),
    "uplink": plain(5, crosses=np.ones((PORTS, 2), bool), background=np.full(TICKS, 0.75)),
    "drain": plain(6, drain=everywhere(RATE / 4)),
    "loss": plain(8, loss=everywhere(LOSSES * PACKET / RATE)),
    "narrow": plain(9, width=everywhere(0.25)),
}


@pytest.fixture(scope="module")
def observed() -> dict[str, Observation]:
    return dict(zip(CASES, observe(list(CASES.values())), strict=True))


# The rate of the senders, of the line's; the share of time that a port waits; the limit.
@for_each(
    [
        ("line", 1.0, 0.0, Limit.LINE),
        ("source", 0.5, 0.0, Limit.SOURCE),
        ("incast", 1 / (PORTS - 1), 1 - 1 / (PORTS - 1), Limit.EGRESS),
        ("uplink", 0.25, 0.75, Limit.UPLINK),
        ("drain", 0.25, 0.75, Limit.DRAIN),
        # each loss costs a pause, and the line's time of the bytes sent again is in the rate
        ("loss", BETWEEN / (BETWEEN + 1e-3), 0.0, Limit.LOSS),
        ("narrow", 0.25, 0.0, Limit.LINK),
    ]
)
def test_rates_waits_and_limits_are_those_of_the_closed_form(
    name: str, rate: float, waiting: float, limit: Limit, observed: dict[str, Observation]
) -> None:
    seen = observed[name]
    port = slice(1, None)
    elapsed = np.ptp(seen.sample_times, axis=1) / 1e9
    rates = np.ptp(seen.transmit, axis=1) / elapsed / RATE
    np.testing.assert_allclose(rates[port], rate, rtol=0.05 if name == "loss" else 0.02)
    waits = seen.counters["port_xmit_wait"]
    ticks = np.diff(waits[:, :4], axis=1)[port]
    if not (waits[port, :4] == 2**32 - 1).any():
        np.testing.assert_allclose(ticks * 8 / RATE / 0.1, waiting, atol=0.02)
    lost = seen.lost[port, 2:].sum(axis=(0, 1)) / seen.active[port, 2:].sum()
    assert lost[limit] == pytest.approx(1 - rate, abs=0.03)
    assert (seen.truth()[port, 2:] == limit).mean() > (0.9 if name == "loss" else 0.999)
