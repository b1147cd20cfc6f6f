"""Bursts of real traffic, stopped and continued at known instants, as the raw window shows them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic

pytestmark = [pytest.mark.timeout(600)]

ON_MS, OFF_MS, CYCLES = 100, 300, 30
TICKS_PER_SECOND = 100
ACTIVE_BYTES_PER_SECOND = 1e6
MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Bursts:
    """Rates at every tick of some whole periods, and the duty cycle of the last seconds beside their rates."""

    rates: npt.NDArray[np.float64]
    recent_rates: npt.NDArray[np.float64]
    duty_gauge: float


@pytest.fixture(scope="module")
def bursts(daemon: Daemon, link_of_module: Link) -> Bursts:
    daemon.wait_for_samples(SENDER, RECEIVER)
    # A short queue: what was posted before the stop still leaves after it.
    endless = Traffic(messages=10_000_000, message_bytes=MESSAGE_BYTES)
    receiver, sender = link_of_module.start(endless, options=("-t", "16"))
    daemon.machine.wait_until(lambda: link_of_module.read_counter(SENDER, "port_xmit_data") > 100_000, "traffic flows")
    pulse = f"python3 /guest/pulse.py {sender.pid} {ON_MS} {OFF_MS} {CYCLES}"
    runs = json.loads(daemon.machine.run(pulse).stdout)
    # the machine is slow: a window up to now would begin seconds after that of the gauge
    gauge, until_ms = daemon.read_metric_until("ibpulse_port_transmit_duty_cycle_ratio", device=SENDER, window="10s")
    recent = daemon.read_rates(SENDER, **{"from": str(until_ms - 10_000), "to": str(until_ms)})
    sender.kill()
    receiver.kill()
    begin_ns, end_ns = runs[0][0], runs[-1][0]
    span = {"from": str(begin_ns // 1_000_000), "to": str(end_ns // 1_000_000)}
    return Bursts(fill(daemon.read_rates(SENDER, **span)), fill(recent), gauge)


def fill(rates: list[float | None]) -> npt.NDArray[np.float64]:
    """The rates as numbers, with NaN for each hole."""
    return np.array([np.nan if rate is None else rate for rate in rates])


def test_the_period_of_bursts_is_the_strongest_line(bursts: Bursts) -> None:
    # Padded to eight times its length, the spectrum also shows lines between those of the span.
    points = 8 * len(bursts.rates)
    spectrum = np.abs(np.fft.rfft(np.nan_to_num(bursts.rates - np.nanmean(bursts.rates)), points))
    strongest_hertz = np.fft.rfftfreq(points, 1 / TICKS_PER_SECOND)[spectrum.argmax()]
    assert strongest_hertz == pytest.approx(1000 / (ON_MS + OFF_MS), abs=0.1)


def test_the_duty_gauge_is_the_active_share_of_the_samples(bursts: Bursts) -> None:
    known = bursts.recent_rates[~np.isnan(bursts.recent_rates)]
    assert bursts.duty_gauge == pytest.approx((known > ACTIVE_BYTES_PER_SECOND).mean(), abs=0.05)
