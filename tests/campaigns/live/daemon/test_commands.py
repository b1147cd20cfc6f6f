"""The commands as a user runs them: the demo, a second daemon, an address in use, a node without any device."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fabrics import simulated
from tests.running import Metrics, Running, eventually


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the tree and the ring of `empty_node`."""
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def empty_node(folder: Path) -> Iterator[Running]:
    """A daemon on a node without any RDMA device, which logs JSON."""
    (folder / "sys").mkdir()
    daemon = Running(folder / "sys", folder / "ring", "--log.format=json")
    daemon.launch()
    yield daemon
    daemon.stop()


def test_the_demo_serves_a_simulated_fabric_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "ibpulse",
        "demo",
        "--workload=square",
        "--period=100ms",
        "--duty=0.5",
        "--ports=2",
    ]
    with log.open("wb") as output:
        flags = ("--rate=20GB/s", "--management", "--web.listen-address=127.0.0.1:0")
        process = subprocess.Popen([*command, *flags], stdout=output, stderr=output)
    try:
        words = eventually(lambda: [word for word in log.read_text().split() if word.startswith("http://127")])

        def total() -> float:
            metrics = Metrics.parse(httpx.get(words[0] + "metrics").text)
            return sum(metrics.find("ibpulse_port_transmit_bytes_total", device="mlx5_1").values())

        eventually(lambda: total() > 1e9)
        assert "sampling 3 ports every 10 ms" in log.read_text()
        (scratch,) = re.findall(r"square on 2 ports, every 10ms, in (/\S+)/sys", log.read_text())
        assert Path(scratch).exists()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
    assert not Path(scratch).exists()


def test_a_demo_that_cannot_be_simulated_says_why() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "ibpulse",
            "demo",
            "--workload=idle",
            "--rate=1GB/s",
            "--web.listen-address=127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert 'workload "idle" has no option "rate' in ended.stderr
    assert "the simulated fabric failed to start; see the message above" in ended.stderr


def test_a_second_daemon_is_kept_out_of_the_ring(folder: Path, empty_node: Running) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "ibpulse", "serve", f"--path.sysfs={folder}", f"--ring.dir={folder / 'ring'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode == 1
    assert "is in use by another ibpulse; stop it, or choose another --ring.dir" in second.stderr


def test_an_address_in_use_is_named(tmp_path: Path, empty_node: Running) -> None:
    address = empty_node.url.removeprefix("http://")
    flags = (f"--path.sysfs={tmp_path}", f"--ring.dir={tmp_path / 'other'}", f"--web.listen-address={address}")
    second = subprocess.run(
        [sys.executable, "-m", "ibpulse", "serve", *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert second.returncode == 2
    assert f"web.listen-address: cannot listen on {address}: Address already in use" in second.stderr


def test_a_file_in_place_of_the_ring_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("")
    flags = (f"--path.sysfs={tmp_path}", f"--ring.dir={tmp_path / 'ring'}")
    ended = subprocess.run(
        [sys.executable, "-m", "ibpulse", "serve", *flags], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert f"ring.dir: {tmp_path / 'ring'} cannot be used: File exists; choose a directory" in ended.stderr


def test_a_node_without_devices_is_ready_and_says_so(empty_node: Running) -> None:
    ready = eventually(lambda: (answer := empty_node.ask("/-/ready")).status_code == 200 and answer)
    assert "no port of this node counts bytes" in ready.text
    assert empty_node.ask("/-/healthy").status_code == 200
    assert not empty_node.metrics().find("ibpulse_port_up")
    notices = [json.loads(line)["message"] for line in empty_node.log().splitlines()]
    assert any("/sys/class/infiniband does not exist: " in notice for notice in notices), notices


def test_a_port_that_appears_later_is_sampled(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with Running(tmp_path / "sys", tmp_path / "ring", "--slow.interval=1s", needs_ports=False) as daemon:
        with simulated(tmp_path / "sys", "constant", ports=2, rate="20GB/s"):
            eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1"))
        # the devices of a fabric appear one by one, and a scan may come in between
        told = " ".join(line for line in daemon.log().splitlines() if "now sampling: port " in line)
        assert all(name in told for name in ("mlx5_0:1", "mlx5_1:1"))
