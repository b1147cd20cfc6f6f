"""Ports read by netlink on a real kernel: a fast square wave, exact bytes, other readers, and devices that change."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator

import pytest

from tests.campaigns.vm.daemon import UNPRIVILEGED, Daemon
from tests.campaigns.vm.hw_counters import WAVE_HERTZ, count_bytes, send_wave, serving, wait_for_interval
from tests.campaigns.vm.link import RECEIVER, SENDER, Link
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def asking(machine: Machine, link_of_module: Link) -> Iterator[Daemon]:
    with serving(machine) as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        yield daemon


def test_a_square_wave_of_40_ms_is_seen_by_netlink(asking: Daemon, link_of_module: Link) -> None:
    wait_for_interval(asking, 0.01)
    shown, true = send_wave(link_of_module, asking)
    assert shown.strongest_hertz == pytest.approx(WAVE_HERTZ, abs=0.5)
    assert shown.mean == pytest.approx(true.mean, rel=0.2)
    assert shown.duty == pytest.approx(true.duty, abs=0.2)
    assert shown.cv == pytest.approx(true.cv, abs=0.3)


def test_bytes_are_the_kernels(asking: Daemon, link_of_module: Link) -> None:
    kernel, daemon = count_bytes(link_of_module, asking)
    assert daemon == kernel


def test_a_second_reader_changes_nothing(asking: Daemon, machine: Machine) -> None:
    command = f"for i in $(seq 200); do rdma statistic show link {SENDER}/1 >/dev/null || exit 1; done"
    machine.run(command, timeout_seconds=120)
    assert asking.read_metric("ibpulse_sampler_read_errors_total", device=SENDER) == 0


def test_a_full_socket_answers_after_all(asking: Daemon, machine: Machine) -> None:
    command = f"{' '.join(UNPRIVILEGED)} python3 /guest/netlink_socket.py {SENDER}"
    answer = json.loads(machine.run(command, timeout_seconds=120).stdout)
    assert answer["values"][0] > 0
    assert answer["error"] == errno.ENOBUFS


def test_a_renamed_device_is_asked_under_its_new_name(asking: Daemon, machine: Machine) -> None:
    machine.run(f"rdma dev set {SENDER} name mlx5_0")
    asking.wait_for_samples("mlx5_0", RECEIVER)
    wait_for_interval(asking, 0.01, "mlx5_0")
    assert asking.read_metric("ibpulse_port_up", device=SENDER) is None
    events = asking.fetch_json("/api/v1/events")["events"]
    changes = [event for event in events if event["kind"] in ("appeared", "disappeared")]
    print("uncertainties of a renaming:", [(event["kind"], event["uncertainty_ms"]) for event in changes])
    machine.run(f"rdma dev set mlx5_0 name {SENDER}")
    asking.wait_for_samples(SENDER, RECEIVER)


def test_a_device_made_anew_has_another_index_and_no_false_rate(asking: Daemon, link_of_module: Link) -> None:
    before = asking.read_total("transmit", SENDER)
    asking.machine.run(f"rdma link delete {SENDER}")
    link_of_module.add_sender()
    asking.wait_for_samples(SENDER, RECEIVER)
    rates = asking.read_rates(SENDER, last="1s")
    assert max(rate for rate in rates if rate is not None) == 0
    assert asking.read_total("transmit", SENDER) == before
