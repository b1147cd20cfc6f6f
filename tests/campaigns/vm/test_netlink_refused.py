"""Ports whose netlink is refused, by the setting or by a real kernel: they are read from sysfs, less often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaigns.vm.daemon import UNPRIVILEGED, Daemon
from tests.campaigns.vm.hw_counters import send_wave, serving, wait_for_interval
from tests.campaigns.vm.link import RECEIVER, SENDER, Link
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture
def reading(machine: Machine) -> Iterator[tuple[Daemon, Link]]:
    """A daemon that reads the files."""
    pair = Link(machine)
    pair.create()
    with serving(machine, "--ports.sources=sysfs=*") as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        yield daemon, pair


def test_a_square_wave_of_40_ms_aliases_in_sysfs(reading: tuple[Daemon, Link]) -> None:
    daemon, pair = reading
    wait_for_interval(daemon, 0.05)
    shown, _ = send_wave(pair, daemon)
    assert shown.strongest_hertz < 20


@pytest.fixture(scope="module")
def exclusive(machine: Machine) -> Iterator[None]:
    """Two devices that belong to the first network namespace alone, and another namespace."""
    machine.run("ip link del veth0; ip netns del far", check=False)
    machine.wait_until(lambda: not machine.run("ls /sys/class/infiniband").stdout, "the devices are gone")
    machine.wait_until(lambda: not machine.run("rdma system set netns exclusive", check=False).status, "exclusive mode")
    for number in (0, 1):
        machine.run(f"ip link add left{number} type veth peer name right{number}")
        machine.run(f"ip link set left{number} up && ip link set right{number} up")
        machine.run(f"rdma link add rxe{number} type rxe netdev left{number}")
    machine.run("ip netns add far && ip netns exec far ip link set lo up")
    yield
    machine.run("ip netns del far; ip link del left0; ip link del left1", check=False)
    machine.wait_until(lambda: not machine.run("rdma system set netns shared", check=False).status, "shared mode")


def test_a_device_moved_to_another_namespace_leaves_the_others(exclusive: None, machine: Machine) -> None:
    with serving(machine) as daemon:
        daemon.wait_for_samples("rxe0", "rxe1")
        machine.run("rdma dev set rxe1 netns far")
        daemon.wait_for_samples("rxe0")
        wait_for_interval(daemon, 0.01, "rxe0")


def test_devices_of_another_namespace_are_read_from_sysfs(exclusive: None, machine: Machine) -> None:
    """Its /sys is that of the first namespace, as in a pod; netlink shows only the devices of its own."""
    doctor = f"env PYTHONPATH=/guest/hw_only {' '.join(UNPRIVILEGED)} ibpulse doctor --no-look --check resolution"
    said = {
        "not read by netlink: the device belongs to another network namespace": f"unshare --net {doctor}",
        "read by netlink, which asks the device at each request": doctor,
    }
    for text, command in said.items():
        outcome = machine.run(command, check=False, timeout_seconds=240)
        assert text in " ".join(outcome.stdout.split()), outcome
