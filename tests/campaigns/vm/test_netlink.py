"""Ports read by netlink on a real kernel: a fast square wave, exact bytes, devices that change, and refusals.

The daemon here reads `hw_counters`, as on kernels before 7.2. `guest/truth.py` reads the same traffic from `counters/`,
which this kernel computes at every read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from tests.campaigns.vm.daemon import OTHER_WEB_PORT, UNPRIVILEGED, Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900)]

ON_MS, OFF_MS, CYCLES = 20, 20, 150
WAVE_SECONDS = (ON_MS + OFF_MS) * CYCLES / 1000
ACTIVE_BYTES_PER_SECOND = 1e6
HW_ONLY = ("env", "PYTHONPATH=/guest/hw_only")
OPTIONS = ("--sampler.scheduler=fifo", "--slow.interval=2s", "--analysis.active-threshold=1MB/s", "--ring.dir=/run/hw")


@contextmanager
def serving(machine: Machine, *options: str) -> Iterator[Daemon]:
    """A daemon that reads `hw_counters`."""
    machine.run("rm -rf /run/hw && install -d -o 65534 -g 65534 /run/hw")
    daemon = Daemon(machine, [*OPTIONS, *options], OTHER_WEB_PORT, HW_ONLY)
    try:
        yield daemon
    finally:
        assert daemon.program.stop() == 0, daemon.program.output()


@pytest.fixture(scope="module")
def asking(machine: Machine, link_of_module: Link) -> Iterator[Daemon]:
    with serving(machine) as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        yield daemon


@dataclass(frozen=True, slots=True)
class Wave:
    """What samples of 10 ms show of a square wave."""

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
        active = rates > ACTIVE_BYTES_PER_SECOND
        points = 8 * len(rates)
        spectrum = np.abs(np.fft.rfft(np.nan_to_num(rates - known.mean()), points))
        return cls(
            mean=float(known.mean()),
            duty=float((known > ACTIVE_BYTES_PER_SECOND).mean()),
            cv=float(known.std() / known.mean()),
            burst_ms=10 * float(np.mean([len(list(run)) for key, run in groupby(active) if key])),
            strongest_hertz=float(np.fft.rfftfreq(points, 0.01)[spectrum.argmax()]),
            missing=float(np.isnan(rates).mean()),
            repeated=float((np.diff(rates) == 0).mean()),
        )


def bin_truth(read: list[tuple[int, int]], first_ms: int, ticks: int) -> npt.NDArray[np.float64]:
    """The rate of each tick of 10 ms, NaN without a read at both ends."""
    rates = np.full(ticks, np.nan)
    for (before_ns, before), (now_ns, now) in pairwise(read):
        tick = now_ns // 10_000_000 - first_ms // 10
        if 0 <= tick < ticks and now_ns - before_ns < 15_000_000:
            rates[tick] = (now - before) / (now_ns - before_ns) * 1e9
    return rates


def send_wave(link: Link, daemon: Daemon) -> tuple[Wave, Wave]:
    """What a daemon shows of a square wave, and what is true of it."""
    machine = daemon.machine
    receiver, sender = link.start(Traffic(messages=10_000_000, message_bytes=4096), options=("-t", "16"))
    machine.wait_until(lambda: link.read_counter(SENDER, "port_xmit_data") > 100_000, "traffic flows")
    counter = f"/sys/class/infiniband/{SENDER}/ports/1/counters/port_xmit_data"
    read = f"python3 /guest/truth.py {counter} 4 {WAVE_SECONDS + 6} > /tmp/truth.json"
    pulse = f"python3 /guest/pulse.py {sender.pid} {ON_MS} {OFF_MS} {CYCLES}"
    runs = json.loads(machine.run(f"{read} & {pulse}; wait", timeout_seconds=240).stdout)
    sender.kill()
    receiver.kill()
    first_ms, last_ms = (runs[place][0] // 10_000_000 * 10 for place in (0, -1))
    rates = daemon.read_rates(SENDER, **{"from": str(first_ms), "to": str(last_ms)})
    truth = json.loads(machine.run("cat /tmp/truth.json").stdout)
    shown = Wave.of(np.array([np.nan if rate is None else rate for rate in rates]))
    true = Wave.of(bin_truth(truth, first_ms, (last_ms - first_ms) // 10))
    print(f"shown {shown}\ntrue  {true}")
    return shown, true


def test_a_square_wave_of_40_ms_is_seen_by_netlink(asking: Daemon, link_of_module: Link) -> None:
    assert asking.read_metric("ibpulse_port_sampling_interval_seconds", device=SENDER) == 0.01
    shown, true = send_wave(link_of_module, asking)
    assert shown.strongest_hertz == pytest.approx(1000 / (ON_MS + OFF_MS), abs=0.5)
    assert shown.mean == pytest.approx(true.mean, rel=0.2)
    assert shown.duty == pytest.approx(true.duty, abs=0.2)
    assert shown.cv == pytest.approx(true.cv, abs=0.3)


def test_bytes_are_the_kernels(asking: Daemon, link_of_module: Link) -> None:
    before = asking.read_total("transmit", SENDER), asking.read_total("receive", SENDER)
    path = f"/sys/class/infiniband/{SENDER}/ports/1/hw_counters"
    read = f"cat {path}/sent_bytes {path}/rcvd_bytes"
    first = [int(text) for text in asking.machine.run(read).stdout.split()]
    link_of_module.send(Traffic(messages=300, message_bytes=65536))
    asking.wait_for_totals(SENDER)
    last = [int(text) for text in asking.machine.run(read).stdout.split()]
    moved = [asking.read_total(way, SENDER) - old for way, old in zip(("transmit", "receive"), before, strict=True)]
    assert moved == [new - old for new, old in zip(last, first, strict=True)]
    assert moved[0] >= Traffic(messages=300, message_bytes=65536).data_bytes()


def test_a_second_reader_changes_nothing(asking: Daemon, machine: Machine) -> None:
    command = f"for i in $(seq 200); do rdma statistic show link {SENDER}/1 >/dev/null || exit 1; done"
    machine.run(command, timeout_seconds=120)
    assert asking.read_metric("ibpulse_sampler_read_errors_total", device=SENDER) == 0


def test_a_full_socket_answers_after_all(asking: Daemon, machine: Machine) -> None:
    command = f"{' '.join(UNPRIVILEGED)} python3 /guest/netlink_socket.py {SENDER}"
    answer = json.loads(machine.run(command, timeout_seconds=120).stdout)
    assert answer["values"][0] > 0
    print("requests without room for a reply:", answer["failed"])


def test_a_renamed_device_is_asked_under_its_new_name(asking: Daemon, machine: Machine) -> None:
    machine.run(f"rdma dev set {SENDER} name mlx5_0")
    asking.wait_for_samples("mlx5_0", RECEIVER)
    assert asking.read_metric("ibpulse_port_sampling_interval_seconds", device="mlx5_0") == 0.01
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


@pytest.fixture(scope="module")
def reading(machine: Machine) -> Iterator[tuple[Daemon, Link]]:
    """A daemon that reads the files."""
    pair = Link(machine)
    pair.create()
    with serving(machine, "--ports.sources=sysfs=*") as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        yield daemon, pair


def test_a_square_wave_of_40_ms_aliases_in_sysfs(reading: tuple[Daemon, Link]) -> None:
    daemon, pair = reading
    assert daemon.read_metric("ibpulse_port_sampling_interval_seconds", device=SENDER) == 0.05
    shown, true = send_wave(pair, daemon)
    assert true.strongest_hertz == pytest.approx(1000 / (ON_MS + OFF_MS), abs=0.5)
    assert shown.strongest_hertz < 20


@pytest.fixture(scope="module")
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
