"""Ports that are read by netlink, in the full tick and in the short one: records, failures, and what is closed."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.sampler.adaptive import measure_reads
from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.agent.sampler.source import REST_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import read_rates
from ibpulse.core.statistics.plausible import UNLIMITED
from tests.sampler.moved_clock import INTERVAL_NS, PER_SECOND, MovedLoop
from tests.sysfs.rdma_kernel import RdmaKernel


class Messages(MovedLoop):
    """Devices with a port each, which a kernel on the moved clock answers for; a request takes `takes_ns`."""

    def __init__(self, path: Path, devices: int = 2, stride: int = 1, double: bool = False) -> None:
        self.kernel = RdmaKernel(asked=self._ask)
        super().__init__(path, self.kernel.connect)
        self.path, self.takes_ns, self.stride = path, 40_000, stride
        self.names = (("tx_bytes", "tx_mcast"), ("rx_bytes", "rx_mcast")) if double else (("tx_bytes",), ("rx_bytes",))
        names = [f"rdmap{number}" for number in range(devices)]
        for number, name in enumerate(names):
            self.add(name, 1000 + number, 2000 + number)
        self.start(*map(self.planned, names))

    def add(self, name: str, transmit: int, receive: int) -> None:
        self.kernel.add(name, {"tx_pkts": 5, "tx_bytes": transmit, "tx_mcast": 3, "rx_mcast": 4, "rx_bytes": receive})
        (self.path / name).mkdir(exist_ok=True)

    def planned(self, name: str) -> PlannedPort:
        slot = self.ring.assign(f"{name}:1", 1, self.stride)
        files = ((f"/x/hw_counters/{each}" for each in names) for names in self.names)
        transmit, receive = map(tuple, files)
        folder = self.path / name
        return PlannedPort(slot, name, transmit, receive, self.stride, str(folder), folder.stat().st_ino, 1)

    def follow(self, *names: str) -> None:
        """Follow a plan of these devices."""
        self.apply(*map(self.planned, names))

    def _ask(self, device: str) -> None:
        self.clock.now_ns += self.takes_ns


@pytest.fixture
def messages(tmp_path: Path) -> Messages:
    return Messages(tmp_path)


def test_both_counters_are_those_of_one_instant(messages: Messages) -> None:
    messages.steadily()
    block = RingReader(messages.ring).read(
        [port.slot for port in messages.ports], messages.ticks.tick - PER_SECOND + 1, messages.ticks.tick
    )
    present = block.present[0]
    assert np.count_nonzero(present) == PER_SECOND
    assert (block.counters()[:, :, present] == np.array([[[1000], [2000]], [[1001], [2001]]])).all()
    times, stamps = block.time_ns()[:, :, present], block.stamps()[:, present]
    # the middle of the time in which the request was sent
    assert (times == (stamps[:, None, :, 0] + messages.takes_ns // 2)).all()
    assert (np.abs(np.diff(stamps, axis=2)) == messages.takes_ns).all()
    assert (stamps[1, :, 0] - stamps[0, :, 0] == messages.takes_ns).all()


def test_the_hot_loop_samples_whole_seconds(messages: Messages) -> None:
    assert messages.loop.fast == messages.loop.slow == []
    assert len(messages.loop.messages[0]) == 2
    before = messages.kernel.requests
    assert messages.steadily() == PER_SECOND - 1
    assert messages.kernel.requests - before == 2 * (PER_SECOND - 1)
    messages.kernel.devices["rdmap1"].counters["rx_bytes"] = 77
    messages.full()
    assert messages.last(1) == [1001, 77]


def test_ports_with_several_counters_are_summed(tmp_path: Path) -> None:
    messages = Messages(tmp_path, double=True)
    assert len(messages.loop.slow) == 2
    messages.full()
    assert [messages.last(port) for port in (0, 1)] == [[1003, 2004], [1004, 2005]]


def test_ports_with_a_longer_interval_are_asked_at_its_multiples(tmp_path: Path) -> None:
    messages = Messages(tmp_path, stride=5)
    before = messages.kernel.requests
    for _ in range(20):
        messages.full()
    assert messages.kernel.requests - before == 2 * 20 // 5


def test_a_slow_request_is_missing_data(messages: Messages) -> None:
    messages.takes_ns = INTERVAL_NS // 10 + 1
    messages.steadily()
    assert messages.last() is None or messages.last() == [at.ABSENT, at.ABSENT]
    assert messages.slot_word(at.S_UNCERTAIN) > 0
    assert messages.slot_word(at.S_ERRORS) == 0
    messages.takes_ns = INTERVAL_NS // 10
    messages.full()
    messages.full()
    assert messages.last() == [1000, 2000]


def test_the_cost_of_a_reading_is_counted_once(messages: Messages) -> None:
    for _ in range(4):
        messages.steadily()
        messages.full()
    found = measure_reads(RingReader(messages.ring), messages.ports, messages.ticks.tick - 1)
    cost = found["rdmap0"].highest
    assert (cost.read_ns, cost.tick_ns) == (messages.takes_ns, messages.takes_ns)


def test_rates_use_the_common_instant(messages: Messages) -> None:
    counters = messages.kernel.devices["rdmap0"].counters

    def flow(device: str) -> None:
        # requests that take ever longer; the counters are those of their middle
        messages.clock.now_ns += messages.takes_ns // 2
        counters["tx_bytes"] = counters["rx_bytes"] = messages.clock.now_ns
        messages.clock.now_ns += messages.takes_ns - messages.takes_ns // 2
        messages.takes_ns += 2_000

    messages.kernel.asked = flow
    messages.steadily()
    reader = RingReader(messages.ring)

    found = read_rates(reader, [0], [1], messages.ticks.tick - 50, messages.ticks.tick - 5, [UNLIMITED])
    assert np.allclose(found.bytes_per_second, 1e9, rtol=1e-6)


def test_a_renamed_device_is_found_gone_and_scanned_for(messages: Messages) -> None:
    messages.kernel.rename("rdmap0", "rdmap7")
    (messages.path / "rdmap0").rename(messages.path / "rdmap7")
    scans = messages.ring.words[at.H_RESCAN]
    # the first reply with the new name ends the short tick
    assert messages.steadily() == 1
    assert messages.last() is None
    for _ in range(4):
        messages.full()
    assert messages.last() is None
    assert messages.last(1) == [1001, 2001]
    assert messages.slot_word(at.S_STATUS) == at.GONE
    assert messages.ring.words[at.H_RESCAN] > scans
    messages.follow("rdmap7", "rdmap1")
    messages.full()
    assert messages.last() == [1000, 2000]


def test_a_device_that_took_the_name_is_not_sampled_under_it(messages: Messages) -> None:
    messages.kernel.rename("rdmap0", "rdmap7")
    (messages.path / "rdmap0").rename(messages.path / "rdmap7")
    messages.add("rdmap0", 9, 9)
    for _ in range(4):
        messages.steadily()
        messages.full()
    assert messages.last() is None
    assert messages.slot_word(at.S_STATUS) == at.GONE


def test_a_new_index_of_the_same_device_is_found(messages: Messages) -> None:
    messages.kernel.devices["rdmap0"].index = 40
    messages.steadily()
    for _ in range(3):
        messages.full()
    assert messages.last() == [1000, 2000]
    assert messages.slot_word(at.S_STATUS) == at.OK


def test_a_plan_resolves_every_index_with_one_list(messages: Messages) -> None:
    messages.kernel.devices["rdmap0"].index, messages.kernel.devices["rdmap1"].index = 5, 6
    messages.follow("rdmap0", "rdmap1")
    errors = messages.slot_word(at.S_ERRORS)
    messages.full()
    assert [messages.last(port) for port in (0, 1)] == [[1000, 2000], [1001, 2001]]
    assert messages.slot_word(at.S_ERRORS) == errors


def test_a_refusal_rests_the_port_and_asks_for_a_scan(messages: Messages) -> None:
    scans = messages.ring.words[at.H_RESCAN]
    messages.kernel.error = errno.EPERM
    for _ in range(6):
        messages.full()
    assert messages.slot_word(at.S_STATUS) == at.LEFT_ALONE
    assert messages.slot_word(at.S_LAST_ERRNO) == errno.EPERM
    assert messages.ring.words[at.H_RESCAN] == scans + 2
    messages.kernel.error = 0
    messages.clock.now_ns += REST_NS
    messages.full()
    messages.full()
    assert messages.last() == [1000, 2000]
    assert messages.slot_word(at.S_STATUS) == at.OK


@pytest.mark.parametrize("ticks", [0, 1])
def test_stale_replies_are_never_taken_for_fresh_ones(tmp_path: Path, ticks: int) -> None:
    messages = Messages(tmp_path, devices=1)
    # the last request has either sequence number
    for _ in range(ticks):
        messages.full()
    for _ in range(4):
        messages.loop.link.send(messages.loop.messages[messages.ticks.tick & 1][0][2])
    counters = messages.kernel.devices["rdmap0"].counters

    def count(device: str) -> None:
        counters["tx_bytes"] = messages.clock.now_ns

    messages.kernel.asked = count
    assert messages.steadily() == PER_SECOND - 1 - ticks
    block = RingReader(messages.ring).read([messages.ports[0].slot], messages.ticks.tick - 50, messages.ticks.tick)
    assert (block.counters()[0, 0] == block.stamps()[0, :, 0]).all()


def test_the_connection_is_closed_with_the_last_port(messages: Messages) -> None:
    assert messages.kernel.sockets == 1
    messages.follow()
    assert messages.kernel.sockets == 0
    messages.follow("rdmap0")
    messages.full()
    assert messages.kernel.sockets == 1


def test_without_netlink_the_port_fails_with_its_reason(tmp_path: Path) -> None:
    messages = Messages(tmp_path)
    messages.follow()
    messages.kernel.refuses = errno.EPROTONOSUPPORT
    messages.follow("rdmap0")
    messages.full()
    assert messages.slot_word(at.S_LAST_ERRNO) == errno.EPROTONOSUPPORT
