"""The simulator against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.congestion import scenarios
from tests.congestion.drivers import COUNTERS, MISSING, Observation, observe, read_run
from tests.congestion.network import ACKNOWLEDGED, PACKET, PORTS, STEP, TICK, Limit, Network, Run, Scenario
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
    "incast with marks": plain(4, "mlx5 RoCE", receiver=TO_ONE),
    "uplink": plain(5, crosses=np.ones((PORTS, 2), bool), background=np.full(TICKS, 0.75)),
    "drain": plain(6, drain=everywhere(RATE / 4)),
    "buffers": plain(7, posts=everywhere(RATE / 10)),
    "loss": plain(8, loss=everywhere(LOSSES * PACKET / RATE)),
    "damage": plain(11, damage=everywhere(LOSSES * PACKET / RATE) * (np.arange(PORTS) == 2)),
    "narrow": plain(9, width=everywhere(0.25)),
    "drain with marks": plain(10, "mlx5 RoCE", drain=everywhere(RATE / 4)),
}
NAMES = list(CASES)


@pytest.fixture(scope="module")
def ran() -> tuple[Network, Run]:
    """All cases together, as they are at the end."""
    network = Network(list(CASES.values()))
    return network, network.run()


@pytest.fixture(scope="module")
def observed(ran: tuple[Network, Run]) -> dict[str, Observation]:
    return dict(zip(CASES, read_run(list(CASES.values()), ran[1]), strict=True))


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


def test_marks_keep_the_receiver_busy_and_are_counted_at_both_ends(observed: dict[str, Observation]) -> None:
    seen = observed["incast with marks"]
    gained = {name: np.ptp(values[:, 2:], axis=1) for name, values in seen.counters.items()}
    assert gained["rp_cnp_handled"][1:].min() > 100
    assert gained["np_cnp_sent"][0] == pytest.approx(gained["rp_cnp_handled"][1:].sum(), rel=0.1)
    assert gained["np_ecn_marked_roce_packets"][0] > gained["np_cnp_sent"][0]
    assert gained["np_cnp_sent"][2:].max() == 0
    assert gained["port_xmit_wait"].max() == 0
    rate = np.ptp(seen.receive[0]) / np.ptp(seen.sample_times[0]) * 1e9
    assert 0.8 * RATE < rate <= 1.01 * RATE
    assert (seen.truth()[1:] == Limit.EGRESS).all()
    assert (observed["drain with marks"].truth()[:, 1:] == Limit.DRAIN).all()


def test_a_damaged_cable_is_the_link_of_its_port_and_a_loss_for_who_sends_to_it(
    observed: dict[str, Observation],
) -> None:
    truth = observed["damage"].truth()[:, 1:]
    assert (truth[2] == Limit.LINK).all()
    assert (truth[1] == Limit.LOSS).all()
    assert (truth[3:] == Limit.LINE).all()
    assert (np.flatnonzero(np.ptp(observed["damage"].counters["symbol_error"], axis=1)) == [2]).all()


def test_marks_replace_pauses(ran: tuple[Network, Run]) -> None:
    paused, marked = (ran[0].events["waited_bytes"][NAMES.index(name), 1:] for name in ("incast", "incast with marks"))
    assert marked.max() < 0.2 * paused.min()


def test_a_receiver_accepts_what_its_buffers_hold(ran: tuple[Network, Run], observed: dict[str, Observation]) -> None:
    seen = observed["buffers"]
    assert (seen.truth() == Limit.BUFFERS).all()
    assert np.ptp(seen.counters["rnr_nak_retry_err"], axis=1).min() > 100
    assert np.ptp(seen.counters["out_of_buffer"], axis=1).min() > 100
    network, this = ran[0], NAMES.index("buffers")
    sent_once = network.sent - ACKNOWLEDGED * network.received - network.events["resent_packets"] * PACKET
    missing = (network.again + network.in_uplink + network.in_egress).sum(axis=-1)
    # what was posted before and since
    np.testing.assert_allclose((sent_once - missing)[this], RATE * (2e-3 + SECONDS / 10), rtol=0.02)


def test_no_byte_is_lost_between_credits(ran: tuple[Network, Run]) -> None:
    network = ran[0]
    sent = (network.sent - ACKNOWLEDGED * network.received).sum(axis=-1)
    waiting = (network.in_uplink + network.in_egress).sum(axis=(1, 2))
    np.testing.assert_allclose(sent, network.received.sum(axis=-1) + waiting, rtol=1e-9)


def test_the_company_of_a_scenario_does_not_change_it(observed: dict[str, Observation]) -> None:
    (alone,) = observe([CASES["loss"]])
    together = observed["loss"]
    np.testing.assert_array_equal(alone.transmit, together.transmit)
    np.testing.assert_array_equal(alone.lost, together.lost)
    for name, values in alone.counters.items():
        np.testing.assert_array_equal(values, together.counters[name])


def test_counters_have_the_width_of_their_driver() -> None:
    runs = [scenarios.draw(seed, 0.3) for seed in range(40)]
    assert {run.family for run in runs} == set(scenarios.FAMILIES)
    for seen in observe(runs):
        for name, (_, bits, _) in COUNTERS[seen.scenario.family].items():
            values = seen.counters[name]
            assert values.min() >= MISSING
            assert values.max() < 2 ** min(bits, 63), name
        assert (np.diff(seen.transmit, axis=1) >= 0).all()
        assert (seen.lost.sum(axis=-1) <= seen.active + 1e-9).all()
        assert seen.active.max() <= 0.1 + 1e-9
