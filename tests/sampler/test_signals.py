"""Signals in the full and in the short tick: turns, records, and what a slow, failing or hanging driver loses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.sampler.plan import PlannedPort, PlannedSignals
from ibpulse.agent.sampler.signals import HUNG_REST_NS
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader, read_signals
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import MISSING, SignalReadings
from tests.sampler.moved_clock import INTERVAL_NS, PER_SECOND, MovedLoop
from tests.sampler.tree import Tree
from tests.sysfs.rdma_kernel import RdmaKernel
from tests.tables import for_each

HW = ("rp_cnp_handled", "packet_seq_err")
OWN = ("port_xmit_wait", "symbol_error")
SIGNALS = (
    Signal("rp_cnp_packets_handled", 64),
    Signal("packet_sequence_errors", 32, stops=True),
    Signal("port_transmit_wait", 32, stops=True),
    Signal("symbol_error", 16, stops=True),
)


class Sampled(MovedLoop):
    """Ports with four signals each; a read of a file, or a message of a device, takes what `takes_ns` says."""

    def __init__(self, path: Path, tree: Tree, ports: int = 2, ticks: int = 10, netlink: bool = False) -> None:
        self.kernel = RdmaKernel(asked=lambda device: self.pass_time(device))  # noqa: PLW0108
        super().__init__(path, self.kernel.connect, signal_capacity=1000)
        self.path, self.tree, self.netlink, self.signal_ticks = path, tree, netlink, ticks
        self.takes_ns: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.read_files: list[str] = []
        self.start(*(self.plan(f"mlx5_{number}") for number in range(ports)))

    def plan(self, name: str, stride: int = 1) -> PlannedPort:
        self.tree.write(name, 1000, 2000)
        folder = self.path / name
        files = [*(f"hw_counters/{file}" for file in HW), *(f"counters/{file}" for file in OWN)]
        for value, file in enumerate([*files, "hw_counters/rx_write_requests"]):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(f"{10 + value}\n")
        self.kernel.add(name, {"rx_write_requests": 1, "packet_seq_err": 21, "rp_cnp_handled": 20})
        planned = self.tree.planned(self.ring, name, stride)
        number = self.ring.assign_signals(planned.slot, SIGNALS, 2)
        paths = tuple(str(folder / file) for file in files)
        refresh = "" if self.netlink else str(folder / "hw_counters/rx_write_requests")
        return planned._replace(signals=PlannedSignals(number, paths, 2, int(self.netlink), refresh))

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name not in ("port_xmit_data", "port_rcv_data"):
            self.read_files.append(path.name)
            self.pass_time(path.name)
            if path.name in self.errors:
                raise OSError(self.errors[path.name], "failed")
        return os.pread(descriptor, length, offset)

    def pass_time(self, name: str) -> None:
        self.clock.now_ns += self.takes_ns.get(name, 0)

    def run(self, ticks: int) -> None:
        """At least as many ticks, up to the end of a second; short ones where nothing is unusual."""
        last = self.ticks.tick + ticks
        while self.ticks.tick < last:
            self.full()
            self.steadily()

    def readings(self, port: int = 0) -> SignalReadings:
        return read_signals(RingReader(self.ring), self.ports[port].slot, 0, 2**50)[1]

    def ticks_of(self, port: int = 0) -> list[int]:
        return (self.readings(port).wall_ns // INTERVAL_NS).tolist()

    def signal_word(self, which: int, port: int = 0) -> int:
        return self.ring.words[self.ring.signals_at(self.ports[port].slot) + which]


Make = Callable[..., Sampled]


@pytest.fixture
def make(tmp_path: Path, tree: Tree) -> Iterator[Make]:
    made: list[Sampled] = []

    def build(**options: object) -> Sampled:
        made.append(Sampled(tree.root, tree, **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for sampled in made:
        sampled.close()


@for_each([(2, 10, 10), (12, 10, 12), (3, 25, 25), (5, 1, 1), (5, 2, 2)])
def test_ports_take_turns(ports: int, setting: int, every: int, tmp_path: Path) -> None:
    """With 100 ms or more, one port at a tick; below that, as many as it takes."""
    sampled = Sampled(tmp_path / f"{ports}-{setting}", Tree(tmp_path / f"{ports}-{setting}"), ports, setting)
    sampled.run(100)
    ticks = [sampled.ticks_of(port) for port in range(ports)]
    assert all({after - before for before, after in pairwise(one)} == {every} for one in ticks)
    together = max(sum(tick in one for one in ticks) for tick in range(min(ticks[0]), sampled.ticks.tick))
    assert together == (1 if every >= ports else -(-ports // every))
    sampled.close()


def test_a_reading_has_the_counters_of_its_files(make: Make) -> None:
    sampled = make()
    sampled.run(PER_SECOND)
    assert len(sampled.readings().counters) == 20
    assert sampled.readings().counters[0].tolist() == [10, 11, 12, 13]
    assert sampled.readings().signals == SIGNALS
    assert sampled.read_files[:5] == ["rx_write_requests", *HW, *OWN]
    assert sampled.kernel.sockets == 0


def test_a_reading_has_those_of_one_message_and_two_files(make: Make) -> None:
    sampled = make(netlink=True)
    sampled.takes_ns = {"mlx5_0": 400, "port_xmit_wait": 200}
    sampled.run(PER_SECOND)
    found = sampled.readings()
    assert found.counters[-1].tolist() == [20, 21, 12, 13]
    assert set(sampled.read_files) == set(OWN)
    assert (found.time_ns[-1] - found.time_ns[-1][0]).tolist() == [0, 0, 300, 300]
    assert sampled.kernel.requests == 40


def test_bytes_are_read_before_signals(make: Make) -> None:
    sampled = make()
    sampled.takes_ns = {"port_xmit_wait": 100_000}
    sampled.run(PER_SECOND)
    block = RingReader(sampled.ring).read([1], sampled.ticks.tick - 50, sampled.ticks.tick)
    deadlines = (block.first_tick + np.arange(51)) * INTERVAL_NS - sampled.clock.ahead_ns
    assert (block.stamps()[0, :, 0] - deadlines < 100_000).all()


def test_a_plan_without_signals_reads_none(make: Make) -> None:
    sampled = make(ticks=0)
    sampled.run(20)
    assert sampled.loop.signals.turns == []
    assert sampled.read_files == []


def test_a_slow_driver_loses_signals_not_bytes(make: Make) -> None:
    sampled = make()
    sampled.takes_ns = {"packet_seq_err": 30_000_000}
    sampled.run(60 * PER_SECOND)
    # it rests for 0.6 s, 1.2 s, 2.4 s and so on, and each reading loses the ticks that it takes
    assert sampled.signal_word(at.N_SLOW) in (6, 7)
    assert len(sampled.ticks_of(0)) == sampled.signal_word(at.N_SLOW)
    assert sampled.ticks.missed < 60 * PER_SECOND / 100
    sampled.takes_ns.clear()
    sampled.run(64 * PER_SECOND)
    before = len(sampled.ticks_of(0))
    sampled.run(PER_SECOND)
    assert len(sampled.ticks_of(0)) - before in (10, 11)


def test_a_single_slow_reading_costs_no_other(make: Make) -> None:
    sampled = make(ports=1)
    sampled.run(20)
    sampled.takes_ns = {"packet_seq_err": 4_000_000}
    sampled.full()
    while not sampled.signal_word(at.N_SLOW):
        sampled.full()
    sampled.takes_ns.clear()
    sampled.run(PER_SECOND)
    assert {after - before for before, after in pairwise(sampled.ticks_of())} == {10}


@for_each([(8, 0, 10_000, 0), (300, 0, 10_000, 300), (8, 0, 20, 8), (8, 2, 10_000, 2)])
def test_a_few_slow_readings_of_many_are_not_reported(
    slow: int, hung: int, readings: int, found: int, tmp_path: Path
) -> None:
    ring = RingFile.create(tmp_path / "ring", INTERVAL_NS, 100, signal_capacity=10)
    head = ring.signals_at(0)
    for which, count in ((at.N_SLOW, slow), (at.N_HUNG, hung), (at.N_READINGS, readings)):
        ring.words[head + which] = count
    assert ring.slow_readings(0) == found


def test_a_reading_that_would_not_fit_into_the_tick_is_left_out(make: Make) -> None:
    sampled = make(ports=1)
    sampled.takes_ns = {"port_xmit_wait": 2_000_000}
    sampled.run(20)
    before = len(sampled.ticks_of())
    port = sampled.loop.signals.turns[sampled.ports[0].slot][0]
    now = sampled.clock.monotonic_ns()
    sampled.loop.signals.read([port], 1, now + 1_900_000)
    assert len(sampled.ticks_of()) == before
    sampled.loop.signals.read([port], 2, now + 2_100_000)
    assert len(sampled.ticks_of()) == before + 1


def test_a_port_whose_last_reading_took_too_long_is_tried_again(make: Make) -> None:
    sampled = make(ports=1)
    sampled.takes_ns = {"port_xmit_wait": 2_400_000}
    sampled.run(20)
    sampled.takes_ns.clear()
    before = len(sampled.ticks_of())
    port = sampled.loop.signals.turns[sampled.ports[0].slot][0]
    for turn in range(10):
        sampled.loop.signals.read([port], turn, sampled.clock.monotonic_ns() + 1_900_000)
    assert len(sampled.ticks_of()) - before == 8


def test_a_file_that_fails_is_missing_in_its_readings(make: Make) -> None:
    sampled = make()
    sampled.errors = {"port_xmit_wait": errno.EINVAL}
    sampled.run(PER_SECOND)
    assert sampled.readings().counters[-1].tolist() == [10, 11, int(MISSING), 13]
    # read once; refused three times for each port, once more for the one that was read before; then left alone
    assert sampled.read_files.count("port_xmit_wait") == 1 + 2 * 3 + 1
    assert sampled.ticks.missed == 0


def test_a_kernel_that_refuses_leaves_the_files(make: Make) -> None:
    sampled = make(netlink=True)
    sampled.kernel.error = errno.EOPNOTSUPP
    sampled.run(PER_SECOND)
    assert sampled.readings().counters[-1].tolist() == [int(MISSING), int(MISSING), 12, 13]


def test_a_device_with_a_new_index_is_found_again(make: Make) -> None:
    sampled = make(netlink=True, ports=1)
    sampled.run(20)
    counters = sampled.kernel.devices.pop("mlx5_0").counters
    sampled.kernel.add("mlx5_0", {**counters, "rp_cnp_handled": 77})
    sampled.run(PER_SECOND)
    assert sampled.readings().counters[-1].tolist() == [77, 21, 12, 13]


def test_nothing_is_read_without_any_counter(make: Make) -> None:
    sampled = make()
    sampled.errors = dict.fromkeys((*HW, *OWN, "rx_write_requests"), errno.EIO)
    before = len(sampled.ticks_of())
    sampled.run(PER_SECOND)
    assert len(sampled.ticks_of()) == before


def test_a_sampler_that_was_killed_while_it_read_them_is_not_repeated(make: Make) -> None:
    sampled = make()
    head = sampled.ring.signals_at(sampled.ports[0].slot)
    for times, rest_ns in ((1, HUNG_REST_NS), (2, 2 * HUNG_REST_NS)):
        sampled.ring.words[head + at.N_READING] = 1
        sampled.start(*sampled.ports)
        assert (sampled.signal_word(at.N_HUNG), sampled.signal_word(at.N_READING)) == (times, 0)
        before, begun = len(sampled.ticks_of()), sampled.clock.now_ns
        while len(sampled.ticks_of()) == before:
            sampled.run(10)
        assert abs(sampled.clock.now_ns - begun - rest_ns) < 2 * SECOND_NS
    assert sampled.signal_word(at.N_READINGS, 1) > 1700


def test_the_device_is_named_while_its_signals_are_read(make: Make) -> None:
    sampled = make()
    named: set[int] = set()
    sampled.pass_time = lambda name: named.add(sampled.ring.words[at.lane_at(0) + at.L_DEVICE])  # type: ignore[method-assign]
    sampled.run(20)
    assert named == {1, 2}
    assert sampled.ring.words[at.lane_at(0) + at.L_DEVICE] == 0


def test_a_port_that_is_sampled_less_often_has_fewer_readings(make: Make) -> None:
    sampled = make()
    sampled.apply(sampled.ports[0], sampled.plan("mlx5_1", stride=5))
    sampled.run(3 * PER_SECOND)
    ticks = sampled.ticks_of(1)
    assert {after - before for before, after in pairwise(ticks)} == {30}


def test_ports_that_remain_keep_their_files(make: Make) -> None:
    sampled = make()
    sampled.run(20)
    opened = {port: port.files[0].descriptors[0] for turn in sampled.loop.signals.turns for port in turn}
    sampled.apply(*sampled.ports[1:])
    (kept,) = (port for turn in sampled.loop.signals.turns for port in turn)
    assert kept.files[0].descriptors == [opened.pop(kept)]
    assert all(not file.descriptors for port in opened for file in port.files)
