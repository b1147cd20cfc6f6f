"""Reads that take long: the interval becomes longer where it must, and no sample is false."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ibpulse.agent.sampler import adaptive, kernel
from ibpulse.agent.sampler.adaptive import PATIENCE_SECONDS
from ibpulse.agent.sampler.supervisor import STARVED
from ibpulse.core.ring import layout as at
from ibpulse.workbench.simulate.workloads import Constant
from tests.running import Metrics
from tests.virtual.node import Node
from tests.virtual.rates import DEVICES, RATE, WORD, assert_no_false_rate, runs

SLOW, OTHERS = "mlx5_1", ("mlx5_0", "mlx5_2", "mlx5_3")
BYTE_COUNTERS = ("port_xmit_data", "port_rcv_data")
INTERVAL, LENGTHENED = "sampling_interval_seconds", "ibpulse_device_interval_lengthened"
READ_P99 = "ibpulse_device_read_p99_seconds"

Window = dict[str, list[float | None]]


@dataclass
class Look:
    """What a node says at one moment, with the last two seconds of its samples."""

    metrics: Metrics
    window: Window

    @classmethod
    def at(cls, node: Node) -> Look:
        assert_no_false_rate(node, "2s")
        return cls(node.metrics(), node.window("2s", direction="transmit"))

    def samples(self, device: str) -> int:
        return sum(value is not None for value in self.window[f"{device}:1 transmit"])


@dataclass
class Story:
    """A device that is quick, slow and quick again: `lost` while nothing was done about it.

    `patient` is before the interval becomes shorter.
    """

    quick: Look
    lost: Look
    lengthened: Look
    patient: Look
    again: Look
    log: list[str]


@contextmanager
def logged_by(logger: logging.Logger) -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


@pytest.fixture(scope="module")
def story(shared_folder: Path) -> Iterator[Story]:
    with Node(shared_folder, rails=4, workload=Constant(RATE)) as node, logged_by(adaptive.log) as log:
        node.run(3.5)
        quick = Look.at(node)
        node.slow(SLOW, 0.008, *BYTE_COUNTERS)
        node.run(2.2)
        lost = Look.at(node)
        node.run(10)
        lengthened = Look.at(node)
        node.answer()
        # the reads of the last seconds count, too
        node.run(PATIENCE_SECONDS)
        patient = Look.at(node)
        node.run(15)
        assert_no_false_rate(node, f"{PATIENCE_SECONDS + 30:g}s")
        yield Story(quick, lost, lengthened, patient, Look.at(node), log)


def test_a_slow_device_costs_the_others_samples_until_it_is_sampled_less_often(story: Story) -> None:
    for device in OTHERS:
        assert story.quick.samples(device) == story.lengthened.samples(device) == 200
        # a tick takes 16 ms, so every second one is missed, and no two samples are one interval apart
        assert story.lost.samples(device) == 0
    assert story.lost.samples(SLOW) == 0
    # one in 100 ms, whose rate holds for ten ticks
    assert story.lengthened.samples(SLOW) == 200


def test_it_alone_has_a_longer_interval_and_says_so(story: Story) -> None:
    metrics = story.lengthened.metrics
    # a read may take a tenth of the interval; 100 ms is the shortest one that is long enough and divides a second
    assert {device: metrics.port(INTERVAL, device) for device in DEVICES} == {**dict.fromkeys(DEVICES, 0.01), SLOW: 0.1}
    assert {dict(labels)["device"]: value for labels, value in metrics.find(LENGTHENED).items()} == {SLOW: 1}
    assert metrics.value(READ_P99, device=SLOW) == pytest.approx(0.008)
    assert metrics.value("ibpulse_device_quarantined", device=SLOW) == 0


def test_it_is_logged_once(story: Story) -> None:
    longer, shorter = story.log
    assert longer.startswith(f"device {SLOW}: reads take 8 ms")
    assert "too long for sampling every 10 ms; sampling it every 100 ms" in longer
    assert shorter.endswith("sampling it every 10 ms from now on")


def test_it_returns_to_the_interval_of_the_others_when_it_is_quick_again(story: Story) -> None:
    assert story.patient.metrics.port(INTERVAL, SLOW) == 0.1
    assert story.again.metrics.port(INTERVAL, SLOW) == 0.01
    assert story.again.metrics.find(LENGTHENED, device=SLOW) == {}
    assert runs(story.again.window[f"{SLOW}:1 transmit"]) == [(RATE, 200)]


def test_the_totals_of_each_device_are_exact_over_all_of_it(story: Story) -> None:
    # both looks are four samples of one interval after the newest decided one
    seconds = 2.2 + 10 + PATIENCE_SECONDS + 15
    for device in DEVICES:
        looks = (story.again.metrics, story.quick.metrics)
        after, before = (metrics.port("transmit_bytes_total", device) for metrics in looks)
        assert after - before == pytest.approx(RATE * seconds, abs=WORD)


def test_a_node_that_is_slow_as_a_whole_is_sampled_at_a_longer_interval(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Node(folder, rails=6, workload=Constant(RATE)) as node:
        for number in range(6):
            node.slow(f"mlx5_{number}", 0.0006, *BYTE_COUNTERS)
        node.run(15.5)
        look = Look.at(node)
        # twelve reads take 7.2 ms, and may take half of the interval
        assert set(look.metrics.find(f"ibpulse_port_{INTERVAL}").values()) == {0.02}
        assert len(look.metrics.find(LENGTHENED)) == 6
        assert {look.samples(f"mlx5_{number}") for number in range(6)} == {200}
        assert "which with the other devices is too long for sampling every 10 ms" in caplog.text


@pytest.mark.parametrize("starved", [True, False])
def test_an_interval_stays_while_reads_wait_for_the_processor(
    folder: Path, caplog: pytest.LogCaptureFixture, starved: bool
) -> None:
    with Node(folder, rails=4, workload=Constant(RATE)) as node:
        node.run(3.5)
        begun_ns = node.world.monotonic_ns
        # of each second, as the kernel measures it; the reads take four fifths
        share = 0.75 if starved else 0.2
        node.world.patch(kernel, "runqueue_wait_ns", lambda _: round(share * (node.world.monotonic_ns - begun_ns)))
        node.daemon.node.reader.ring.words[at.lane_at(0) + at.L_PID] = 1
        node.slow(SLOW, 0.008, *BYTE_COUNTERS)
        node.run(12)
        metrics = node.metrics()
        assert metrics.port(INTERVAL, SLOW) == (0.01 if starved else 0.1)
        assert len(node.events("interval-change")) == (not starved)
        assert len(node.events("starved")) == starved
        if starved:
            assert node.events("starved")[0].text == STARVED
            assert [message for message in caplog.messages if SLOW in message] == []
