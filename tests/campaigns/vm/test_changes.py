"""Real devices that go, come back and change their names under a running daemon."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic

pytestmark = [pytest.mark.timeout(600)]

TRAFFIC = Traffic(messages=300, message_bytes=65536)
TICKS_PER_SECOND = 100


def longest_hole(rates: list[float | None]) -> int:
    """Most ticks in a row without a value."""
    holes = [len(list(ticks)) for is_hole, ticks in groupby(rates, lambda rate: rate is None) if is_hole]
    return max(holes, default=0)


def test_a_device_that_is_deleted_goes_and_is_reported(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    daemon.machine.run(f"rdma link delete {SENDER}")
    daemon.wait_for_samples(RECEIVER)
    assert f"port {SENDER}:1: its device disappeared (ENODEV" in daemon.program.output()


def test_the_other_device_is_sampled_while_one_is_deleted(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    begin_ms = daemon.machine.run("date +%s%3N").stdout.strip()
    daemon.machine.run(f"rdma link delete {SENDER}")
    daemon.wait_for_samples(RECEIVER)
    rates = daemon.read_rates(RECEIVER, **{"from": begin_ms})
    assert longest_hole(rates) < TICKS_PER_SECOND


def test_totals_go_on_over_a_device_made_anew(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    before = daemon.read_total("transmit", SENDER)
    link.send(TRAFFIC)
    daemon.wait_for_totals(SENDER)
    daemon.machine.run(f"rdma link delete {SENDER}")
    daemon.wait_for_samples(RECEIVER)
    link.add_sender()
    daemon.wait_for_samples(SENDER, RECEIVER)
    link.send(TRAFFIC)
    daemon.wait_for_totals(SENDER)
    moved = daemon.read_total("transmit", SENDER) - before
    assert moved == pytest.approx(2 * TRAFFIC.data_bytes(), rel=0.01)


def test_a_device_made_anew_shows_no_false_rate(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    link.send(TRAFFIC)
    daemon.machine.run(f"rdma link delete {SENDER}")
    link.add_sender()
    daemon.wait_for_samples(SENDER, RECEIVER)
    rates = daemon.read_rates(SENDER, last="1s")
    assert max(rate for rate in rates if rate is not None) == 0


def test_devices_that_go_with_their_interface_leave_a_ready_daemon(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    daemon.machine.run("ip link del veth0")
    daemon.wait_for_samples()
    assert daemon.is_ready()
    link.create()
    daemon.wait_for_samples(SENDER, RECEIVER)


def test_a_renamed_device_goes_on_under_its_new_name(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    daemon.machine.run(f"rdma dev set {SENDER} name mlx5_0")
    daemon.wait_for_samples("mlx5_0", RECEIVER)
    before = daemon.read_total("transmit", "mlx5_0")
    link.send(TRAFFIC, sender="mlx5_0")
    daemon.wait_for_totals("mlx5_0")
    assert daemon.read_total("transmit", "mlx5_0") - before == pytest.approx(TRAFFIC.data_bytes(), rel=0.01)
    assert daemon.read_metric("ibpulse_port_up", device=SENDER) is None
