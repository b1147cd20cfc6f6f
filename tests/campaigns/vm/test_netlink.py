"""Ports read by netlink on a real kernel: a fast square wave, exact bytes, devices that change, and refusals.

The daemon here reads `hw_counters`, as on kernels before 7.2; that of the other tests reads `counters/`, which this
kernel computes at every read, and so tells the truth about the same traffic at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pytest

from tests.campaigns.vm.daemon import OTHER_WEB_PORT, UNPRIVILEGED, Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900)]

ON_MS, OFF_MS, CYCLES = 20, 20, 150
ACTIVE_BYTES_PER_SECOND = 1e6
HW_ONLY = ("env", "PYTHONPATH=/guest/hw_only")
OPTIONS = ("--sampler.scheduler=fifo", "--slow.interval=2s", "--analysis.active-threshold=1MB/s", "--ring.dir=/run/hw")


@contextmanager
def serving(machine: Machine, *options: str, within: tuple[str, ...] = ()) -> Iterator[Daemon]:
    """A daemon that reads `hw_counters`."""
    machine.run("rm -rf /run/hw && install -d -o 65534 -g 65534 /run/hw")
    daemon = Daemon(machine, [*OPTIONS, *options], OTHER_WEB_PORT, [*within, *HW_ONLY])
    try:
        yield daemon
    finally:
        assert daemon.program.stop() == 0, daemon.program.output()


@pytest.fixture
def asking(machine: Machine, link: Link) -> Iterator[Daemon]:
    with serving(machine) as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        yield daemon


@dataclass(frozen=True, slots=True)
class Wave:
    """What the samples of a square wave show."""

    mean: float
    duty: float
    cv: float
    burst_ms: float
    strongest_hertz: float
    missing: float
    repeated: float

    @classmethod
    def of(cls, rates: npt.NDArray[np.float64]) -> Wave:
        known = rates[~np.isnan(rates)]
        active = known > ACTIVE_BYTES_PER_SECOND
        spectrum = np.abs(np.fft.rfft(np.nan_to_num(rates - np.nanmean(rates)), 8 * len(rates)))
        bursts = [len(list(run)) for key, run in groupby(rates > ACTIVE_BYTES_PER_SECOND) if key]
        return cls(
            mean=float(known.mean()),
            duty=float(active.mean()),
            cv=float(known.std() / known.mean()),
            burst_ms=10 * float(np.mean(bursts)),
            strongest_hertz=float(np.fft.rfftfreq(8 * len(rates), 0.01)[spectrum.argmax()]),
            missing=float(np.isnan(rates).mean()),
            repeated=float((np.diff(rates) == 0).mean()),
        )


def send_wave(link: Link, daemons: dict[str, Daemon]) -> dict[str, Wave]:
    """What each daemon shows of one square wave."""
    machine = next(iter(daemons.values())).machine
    receiver, sender = link.start(Traffic(messages=10_000_000, message_bytes=4096), options=("-t", "16"))
    machine.wait_until(lambda: link.read_counter(SENDER, "port_xmit_data") > 100_000, "traffic flows")
    runs = json.loads(machine.run(f"python3 /guest/pulse.py {sender.pid} {ON_MS} {OFF_MS} {CYCLES}").stdout)
    sender.kill()
    receiver.kill()
    machine.run("sleep 2")
    span = {"from": str(runs[0][0] // 1_000_000), "to": str(runs[-1][0] // 1_000_000)}
    shown = {}
    for name, daemon in daemons.items():
        rates = np.array([np.nan if rate is None else rate for rate in daemon.read_rates(SENDER, **span)])
        shown[name] = Wave.of(rates)
        print(f"{name}: {shown[name]}")
    return shown


def test_a_square_wave_of_40_ms_is_seen_by_netlink(daemon: Daemon, asking: Daemon, link: Link) -> None:
    """Two daemons sample the same traffic: one of them asks the kernel, the other reads fresh files."""
    assert asking.read_metric("ibpulse_port_sampling_interval_seconds", device=SENDER) == 0.01
    daemon.wait_for_samples(SENDER, RECEIVER)
    shown = send_wave(link, {"netlink": asking, "counters/": daemon})
    asked, truth = shown["netlink"], shown["counters/"]
    assert asked.strongest_hertz == pytest.approx(1000 / (ON_MS + OFF_MS), abs=0.5)
    assert asked.mean == pytest.approx(truth.mean, rel=0.15)
    assert asked.duty == pytest.approx(truth.duty, abs=0.15)
    assert asked.cv == pytest.approx(truth.cv, abs=0.2)


def test_a_square_wave_of_40_ms_aliases_in_sysfs(machine: Machine, link: Link) -> None:
    with serving(machine, "--ports.sources=sysfs=*") as reading:
        reading.wait_for_samples(SENDER, RECEIVER)
        assert reading.read_metric("ibpulse_port_sampling_interval_seconds", device=SENDER) == 0.05
        shown = send_wave(link, {"sysfs": reading})
    assert shown["sysfs"].strongest_hertz < 20


def test_bytes_are_the_kernels(asking: Daemon, link: Link) -> None:
    before = asking.read_total("transmit", SENDER), asking.read_total("receive", SENDER)
    path = f"/sys/class/infiniband/{SENDER}/ports/1/hw_counters"
    read = f"cat {path}/sent_bytes {path}/rcvd_bytes"
    first = [int(text) for text in asking.machine.run(read).stdout.split()]
    link.send(Traffic(messages=300, message_bytes=65536))
    asking.wait_for_totals(SENDER)
    last = [int(text) for text in asking.machine.run(read).stdout.split()]
    moved = [asking.read_total(way, SENDER) - old for way, old in zip(("transmit", "receive"), before, strict=True)]
    assert moved == [new - old for new, old in zip(last, first, strict=True)]
    assert moved[0] >= Traffic(messages=300, message_bytes=65536).data_bytes()


def test_a_renamed_device_is_asked_under_its_new_name(asking: Daemon, link: Link) -> None:
    asking.machine.run(f"rdma dev set {SENDER} name mlx5_0")
    asking.wait_for_samples("mlx5_0", RECEIVER)
    assert asking.read_metric("ibpulse_port_sampling_interval_seconds", device="mlx5_0") == 0.01
    assert asking.read_metric("ibpulse_port_up", device=SENDER) is None
    events = asking.fetch_json("/api/v1/events")["events"]
    changes = [event for event in events if event["kind"] in ("appeared", "disappeared")]
    print("uncertainties of a renaming:", [(event["kind"], event["uncertainty_ms"]) for event in changes])


def test_a_device_made_anew_has_another_index_and_no_false_rate(asking: Daemon, link: Link) -> None:
    link.send(Traffic(messages=100, message_bytes=65536))
    asking.machine.run(f"rdma link delete {SENDER}")
    link.add_sender()
    asking.wait_for_samples(SENDER, RECEIVER)
    rates = asking.read_rates(SENDER, last="1s")
    assert max(rate for rate in rates if rate is not None) == 0


def test_a_full_socket_answers_after_all(machine: Machine, link: Link) -> None:
    command = f"{' '.join(UNPRIVILEGED)} python3 /guest/netlink_socket.py {SENDER}"
    answer = json.loads(machine.run(command).stdout)
    assert answer["values"] == [0, 0]
    print("requests without room for a reply:", answer["failed"])


def test_two_daemons_ask_at_the_same_time(asking: Daemon, daemon: Daemon, machine: Machine) -> None:
    command = f"for i in $(seq 200); do rdma statistic show link {SENDER}/1 >/dev/null || exit 1; done"
    machine.run(command, timeout_seconds=120)
    assert asking.read_metric("ibpulse_sampler_read_errors_total", device=SENDER) == 0


@pytest.fixture
def exclusive(machine: Machine) -> Iterator[None]:
    """Two devices that belong to the first network namespace alone, and another namespace."""
    machine.run("ip link del veth0; ip netns del far", check=False)
    machine.wait_until(lambda: not machine.run("ls /sys/class/infiniband").stdout, "the devices are gone")
    machine.wait_until(lambda: not machine.run("rdma system set netns exclusive", check=False).status, "exclusive mode")
    for number in (0, 1):
        machine.run(f"ip link add dummy{number} type dummy && ip link set dummy{number} up")
        machine.run(f"rdma link add rxe{number} type rxe netdev dummy{number}")
    machine.run("ip netns add far && ip netns exec far ip link set lo up")
    yield
    machine.run("ip netns del far; ip link del dummy0; ip link del dummy1", check=False)
    machine.wait_until(lambda: not machine.run("rdma system set netns shared", check=False).status, "shared mode")


def test_a_device_moved_to_another_namespace_leaves_the_others(exclusive: None, machine: Machine) -> None:
    with serving(machine) as daemon:
        daemon.wait_for_samples("rxe0", "rxe1")
        machine.run("rdma dev set rxe1 netns far")
        daemon.wait_for_samples("rxe0")
        assert daemon.read_metric("ibpulse_port_sampling_interval_seconds", device="rxe0") == 0.01


def test_devices_of_another_namespace_are_read_from_sysfs(exclusive: None, machine: Machine) -> None:
    """Its /sys is that of the first namespace, as in a pod; netlink shows only the devices of its own."""
    doctor = f"env PYTHONPATH=/guest/hw_only {' '.join(UNPRIVILEGED)} ibpulse doctor --no-look --check resolution"
    there = machine.run(f"unshare --net {doctor}", check=False, timeout_seconds=240).stdout
    here = machine.run(doctor, check=False, timeout_seconds=240).stdout
    print(there, here)
    assert "not read by netlink: the device belongs to another network namespace" in there
    assert "read by netlink, which asks the device at each request" in here
