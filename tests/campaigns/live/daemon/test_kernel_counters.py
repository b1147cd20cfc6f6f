"""Counters that a real kernel counts: a tree whose files are links to the statistics of real network interfaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.campaigns.live.daemon.links import link_tree
from tests.running import Running, eventually

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2 to make interfaces"
    ),
]


@pytest.fixture
def interfaces() -> Iterator[tuple[str, str]]:
    """Two ends of a virtual cable that nobody else uses, with frames of up to 65 kB."""
    names = ("ibpt0", "ibpt1")
    subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
    for name in names:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", name, "mtu", "65000", "up"], check=True)
    yield names
    subprocess.run(["ip", "link", "delete", names[0]], check=True)


def kernel_bytes(interface: str, which: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/{which}_bytes").read_text())


def send(interface: str, rate: float, seconds: float, on: float = 1.0, off: float = 0.0) -> list[list[int]]:
    command = [
        sys.executable,
        "-m",
        "tests.campaigns.live.daemon.traffic",
        interface,
        *map(str, (rate, seconds, on, off)),
    ]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.parametrize("interval", ["10ms", "1ms"])
def test_totals_are_the_kernels_and_rates_are_the_truth(
    tmp_path: Path, interfaces: tuple[str, str], interval: str
) -> None:
    sender, receiver = interfaces
    tree = link_tree(tmp_path / "sys", {"mlx5_0": sender, "mlx5_1": receiver})
    with Running(tree, tmp_path / "ring", "--sampler.history=1m", interval=interval) as daemon:
        before = {name: kernel_bytes(name, which) for name, which in ((sender, "tx"), (receiver, "rx"))}
        totals = daemon.metrics()
        log = np.array(send(sender, 0.4e9, 6.0))
        moved = kernel_bytes(sender, "tx") - before[sender]
        assert moved == log[-1, 1]

        def counted() -> float:
            # the tree has the interface's bytes where a port has words
            now = daemon.metrics().port("transmit_bytes_total", "mlx5_0")
            return (now - totals.port("transmit_bytes_total", "mlx5_0")) / 4

        eventually(lambda: abs(counted() / moved - 1) < 1e-3, 5.0)
        received = daemon.metrics().port("receive_bytes_total", "mlx5_1") - totals.port("receive_bytes_total", "mlx5_1")
        assert received / 4 == pytest.approx(kernel_bytes(receiver, "rx") - before[receiver], rel=1e-3)

        # three whole seconds within the traffic, mean of all samples against the sender's log
        begin_ns, end_ns = (int(log[0, 0] + 1.5e9), int(log[0, 0] + 4.5e9))
        truth = np.diff(np.interp([begin_ns, end_ns], log[:, 0], log[:, 1]))[0] / 3.0
        span = {"from": begin_ns // 1_000_000, "to": end_ns // 1_000_000}
        series = {"port": "mlx5_0:1", "direction": "transmit", "statistic": "mean"}
        answer = daemon.ask("/api/v1/window", **span, **series).json()
        values = np.array([value for value in answer["series"][0]["values"] if value is not None])
        assert len(values) > 0.9 * 3.0 / {"10ms": 0.01, "1ms": 0.001}[interval]
        assert np.mean(values) / 4 == pytest.approx(truth, rel=0.01)


def test_a_pulse_train_shows_its_duty_cycle(tmp_path: Path, interfaces: tuple[str, str]) -> None:
    tree = link_tree(tmp_path / "sys", {"mlx5_0": interfaces[0], "mlx5_1": interfaces[1]})
    with Running(tree, tmp_path / "ring") as daemon:
        log = np.array(send(interfaces[0], 0.5e9, 13.0, on=0.3, off=0.7))
        time.sleep(0.2)
        measured = daemon.metrics().port("transmit_duty_cycle_ratio", "mlx5_0", window="10s")
        sending = np.diff(log[:, 1]) > 0
        assert sending.any()
        assert measured == pytest.approx(0.3, abs=0.03)
