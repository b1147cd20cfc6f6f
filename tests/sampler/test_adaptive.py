"""When the adaptive interval of a device changes, when it does not, and its log messages, with the test's clock."""

from __future__ import annotations

import logging

import pytest

from ibpulse.agent.sampler.adaptive import (
    LENGTHENED_SOON_PATIENCES,
    PATIENCE_SECONDS,
    PATIENCE_SECONDS_MAX,
    AdaptiveInterval,
)
from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.core.model import DeviceReads
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.sampler.reads import planned, write_reads

FAST, SLOW = (0.05, 0.05), (8.2, 8.2)
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2")


class Node:
    """A ring that the test fills: each device has one port, whose reads take what the test says, in ms."""

    def __init__(self, ring: RingFile, *devices: str, least: int = 1) -> None:
        self.ring = ring
        self.adaptive = AdaptiveInterval(RingReader(ring))
        self.least = dict.fromkeys(devices or DEVICES, least)
        self.adaptive.follow(self.least)
        self.reads = dict.fromkeys(self.least, FAST)
        self.tick = 0
        self.changes = 0

    def ports(self) -> list[PlannedPort]:
        return [planned(self.ring, f"{device}:1", self.adaptive.stride(device)) for device in self.least]

    def run(self, seconds: int) -> None:
        """Sample for so long and look each second, as the supervisor does."""
        for _ in range(seconds):
            for port in self.ports():
                reads = self.reads[port.device]
                write_reads(self.ring, port, self.tick + 1, self.tick + 100, lambda tick, reads=reads: reads)
            self.tick += 100
            self.changes += self.adaptive.refresh(self.ports(), self.tick / 100)

    def take(self, seconds: int, reads: tuple[float, float], device: str = "mlx5_1") -> None:
        """Sample for so long, while the reads of a device take so long."""
        self.reads[device] = reads
        self.run(seconds)

    def strides(self) -> list[int]:
        return [self.adaptive.stride(device) for device in self.least]


@pytest.fixture
def node(ring: RingFile) -> Node:
    made = Node(ring)
    made.run(5)
    return made


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_a_healthy_node_is_not_changed(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.run(20)
    assert (node.changes, node.strides(), node.adaptive.own_process_devices) == (0, [1, 1, 1], frozenset())
    assert said(caplog) == []
    assert node.adaptive.reads() == tuple(DeviceReads(device, 0.00005) for device in DEVICES)


def test_a_slow_device_is_lengthened_after_three_seconds_and_said_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.take(2, SLOW)
    assert node.changes == 0
    node.run(1)
    assert (node.changes, node.strides(), node.adaptive.own_process_devices) == (1, [1, 10, 1], frozenset({"mlx5_1"}))
    node.run(60)
    assert node.changes == 1
    assert said(caplog) == [
        "device mlx5_1: reads take 8.2 ms (p99, at worst 8.2 ms), too long for sampling every 10 ms; sampling it every "
        "100 ms from now on, in a separate process that does not delay other devices. Check its firmware and other "
        "programs that query it; set sampler.scheduler=fifo if this machine is busy"
    ]
    assert node.adaptive.reads()[1] == DeviceReads("mlx5_1", pytest.approx(0.0082), interval_lengthened=True)


@pytest.mark.parametrize(
    ("reads", "stride", "apart", "words"),
    [
        ((1.2, 0.1), 2, False, "sampling it every 20 ms from now on. Check its firmware"),
        (
            (123.4, 180.0),
            100,
            True,
            "sampling it every 1000 ms from now on, in a separate process that does not delay ",
        ),
        ((123.4, 180.0), 100, True, ", but even so most of its samples are missing. Check"),
    ],
)
def test_how_a_slow_device_is_sampled_is_said(
    node: Node, caplog: pytest.LogCaptureFixture, reads: tuple[float, float], stride: int, apart: bool, words: str
) -> None:
    node.take(4, reads, "mlx5_2")
    assert (node.strides(), bool(node.adaptive.own_process_devices)) == ([1, 1, stride], apart)
    (line,) = said(caplog)
    assert line.startswith(
        f"device mlx5_2: reads take {max(reads):g} ms (p99, at worst {max(reads):g} ms), too long for"
    )
    assert words in line


def test_a_node_that_is_slow_as_a_whole_has_longer_intervals(ring: RingFile, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(ring, *(f"mlx5_{number}" for number in range(8)))
    node.reads = dict.fromkeys(node.reads, (0.4, 0.4))
    node.run(4)
    assert (node.changes, node.strides(), node.adaptive.own_process_devices) == (1, [2] * 8, frozenset())
    assert len([line for line in said(caplog) if "which with the other devices is too long for" in line]) == 8


def test_a_device_that_is_fast_again_gets_its_interval_back_after_minutes(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.take(4, SLOW)
    node.reads["mlx5_1"] = FAST
    caplog.clear()
    node.run(int(PATIENCE_SECONDS))
    assert node.strides() == [1, 10, 1]
    node.run(10)
    assert (node.strides(), node.adaptive.own_process_devices) == ([1, 1, 1], frozenset())
    assert said(caplog) == ["device mlx5_1: reads now take 0.05 ms (p99); sampling it every 10 ms from now on"]
    assert not node.adaptive.reads()[1].interval_lengthened


def test_it_is_shortened_only_as_far_as_twice_the_time_would_allow(node: Node) -> None:
    node.take(4, SLOW)
    node.take(int(PATIENCE_SECONDS) + 10, (0.6, 0.2))
    assert node.strides() == [1, 2, 1]
    node.run(3 * int(PATIENCE_SECONDS))
    assert node.changes == 2


def test_one_slow_span_restarts_the_wait(node: Node) -> None:
    node.take(4, SLOW)
    for _ in range(3):
        node.take(int(PATIENCE_SECONDS) - 10, FAST)
        node.take(1, SLOW)
    assert node.changes == 1


@pytest.mark.parametrize("spans", [((0.9, 0.9), FAST), (FAST, (0.9, 0.9))])
def test_a_wait_that_had_worse_spans_ends_at_the_pace_that_fits_all_of_it(
    node: Node, spans: tuple[tuple[float, float], ...]
) -> None:
    node.take(4, SLOW)
    for span in spans:
        node.take(int(PATIENCE_SECONDS / 2) + 5, span)
    assert node.strides() == [1, 2, 1]


def test_a_device_that_relapses_keeps_its_interval_for_twice_as_long(node: Node) -> None:
    patience = PATIENCE_SECONDS
    for _ in range(3):
        node.take(5, SLOW)
        node.take(int(patience) - 10, FAST)
        assert node.strides() == [1, 10, 1]
        node.run(25)
        assert node.strides() == [1, 1, 1]
        patience = min(PATIENCE_SECONDS_MAX, 2 * patience)
    assert node.changes == 6


def test_a_device_that_was_well_for_long_is_not_held_to_its_past(node: Node) -> None:
    node.take(5, SLOW)
    node.take(int((2 + LENGTHENED_SOON_PATIENCES) * PATIENCE_SECONDS), FAST)
    node.take(5, SLOW)
    node.take(int(PATIENCE_SECONDS) + 15, FAST)
    assert node.strides() == [1, 1, 1]


def test_a_device_of_a_cached_source_returns_to_the_process_of_all(ring: RingFile) -> None:
    node = Node(ring, *DEVICES, least=4)
    node.run(5)
    node.take(5, (3.0, 3.0), "mlx5_0")
    assert (node.strides(), node.adaptive.own_process_devices) == ([4, 4, 4], frozenset({"mlx5_0"}))
    assert not node.adaptive.reads()[0].interval_lengthened
    node.take(int(PATIENCE_SECONDS) + 10, FAST, "mlx5_0")
    assert (node.strides(), node.adaptive.own_process_devices) == ([4, 4, 4], frozenset())


def test_unmeasured_devices_are_neither_changed_nor_reported(node: Node) -> None:
    node.take(4, SLOW)
    node.ring.words[at.lane_at(0) + at.L_TICK] += 1000
    assert not node.adaptive.refresh(node.ports(), 1000.0)
    assert node.adaptive.reads() == (DeviceReads("mlx5_1", None, interval_lengthened=True),)
    assert node.strides() == [1, 10, 1]


def test_it_measures_every_two_seconds(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    node.take(2, SLOW)
    write_reads(node.ring, node.ports()[1], node.tick + 1, node.tick + 100, lambda tick: SLOW)
    assert not node.adaptive.refresh(node.ports(), node.tick / 100 + 0.9)
    assert node.adaptive.refresh(node.ports(), node.tick / 100 + 1.0)


def test_a_device_that_comes_back_or_changes_its_source_starts_over(node: Node) -> None:
    node.take(4, SLOW)
    node.adaptive.follow({"mlx5_0": 1, "mlx5_1": 4})
    assert [node.adaptive.stride(device) for device in ("mlx5_0", "mlx5_1")] == [1, 4]
    node.adaptive.follow({"mlx5_0": 1})
    node.adaptive.follow({"mlx5_0": 1, "mlx5_1": 1})
    assert node.adaptive.stride("mlx5_1") == 1


def test_a_device_that_relapses_after_twice_its_patience_still_relapses_soon(node: Node) -> None:
    node.take(5, SLOW)
    node.take(int(3 * PATIENCE_SECONDS) + 10, FAST)
    node.take(5, SLOW)
    node.take(int(PATIENCE_SECONDS) + 15, FAST)
    assert node.strides() == [1, 10, 1]
    node.run(int(PATIENCE_SECONDS))
    assert node.strides() == [1, 1, 1]
