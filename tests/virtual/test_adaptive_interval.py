"""Reads that take long: the interval becomes longer where it must, and no sample is false."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.sampler.adaptive import PATIENCE_SECONDS
from ibpulse.workbench.simulate.workloads import Constant
from tests.virtual.node import Node
from tests.virtual.rates import DEVICES, RATE, WORD, assert_no_false_rate

SLOW = "mlx5_1"
BYTE_COUNTERS = ("port_xmit_data", "port_rcv_data")
INTERVAL, LENGTHENED = "sampling_interval_seconds", "ibpulse_device_interval_lengthened"


def samples(node: Node) -> dict[str, int]:
    """The samples of each device in the last two seconds."""
    assert_no_false_rate(node, "2s")
    window = node.window("2s", direction="transmit")
    return {device: sum(value is not None for value in window[f"{device}:1 transmit"]) for device in DEVICES}


def test_a_slow_device_alone_has_a_longer_interval_until_it_is_quick_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Node(folder, rails=4, workload=Constant(RATE)) as node:
        node.run(3.5)
        before = node.metrics()
        node.slow(SLOW, 0.008, *BYTE_COUNTERS)
        node.run(2.2)
        # a tick takes 16 ms, so every second one is missed, and no two samples are one interval apart
        assert samples(node) == dict.fromkeys(DEVICES, 0)
        node.run(10)
        # a read may take a tenth of the interval: 100 ms is the shortest that divides a second; a rate holds for all
        assert samples(node) == dict.fromkeys(DEVICES, 200)
        metrics = node.metrics()
        intervals = {device: metrics.port(INTERVAL, device) for device in DEVICES}
        assert intervals == {**dict.fromkeys(DEVICES, 0.01), SLOW: 0.1}
        assert {dict(labels)["device"]: value for labels, value in metrics.find(LENGTHENED).items()} == {SLOW: 1}
        assert metrics.value("ibpulse_device_read_p99_seconds", device=SLOW) == pytest.approx(0.008)
        (said,) = (message for message in caplog.messages if SLOW in message)
        assert said.startswith(f"device {SLOW}: reads take 8 ms")
        assert "too long for sampling every 10 ms; sampling it every 100 ms" in said
        node.answer()
        # the reads of the last seconds count, too
        node.run(PATIENCE_SECONDS + 15)
        assert_no_false_rate(node, f"{PATIENCE_SECONDS + 30:g}s")
        assert samples(node) == dict.fromkeys(DEVICES, 200)
        after = node.metrics()
        assert (after.port(INTERVAL, SLOW), after.find(LENGTHENED, device=SLOW)) == (0.01, {})
        # both looks are four samples of one interval after the newest decided one
        seconds = 2.2 + 10 + PATIENCE_SECONDS + 15
        for device in DEVICES:
            moved = after.port("transmit_bytes_total", device) - before.port("transmit_bytes_total", device)
            assert moved == pytest.approx(RATE * seconds, abs=WORD)
