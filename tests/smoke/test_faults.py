"""What goes wrong on a node, done to a real daemon: the other ports go on, and no sample is false."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import Running, eventually
from tests.smoke.conftest import WORD_BYTES, plain_tree, port_path, recorded, set_counters


def transmitted(daemon: Running, number: int) -> float:
    return daemon.metrics().port("transmit_bytes_total", f"mlx5_{number}")


def check_that_it_counts(daemon: Running, tree: Path, number: int, millions: int) -> None:
    """Another million words of a port show in its total."""
    before = transmitted(daemon, number)
    set_counters(tree, number, millions)
    eventually(lambda: transmitted(daemon, number) == before + 1_000_000 * WORD_BYTES)


def state_of(daemon: Running, number: int) -> str:
    ports = daemon.ask("/api/v1/ports").json()["ports"]
    return str(next(port["state"] for port in ports if port["device"] == f"mlx5_{number}"))


def test_a_counter_file_that_hangs_stops_no_other_port_and_is_sampled_again(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    file = port_path(tree, 1) / "counters/port_xmit_data"

    def is_quarantined() -> bool:
        return daemon.metrics().value("ibpulse_device_quarantined", device="mlx5_1") == 1

    with Running(tree, tmp_path / "ring", "--slow.interval=1s") as daemon:
        kept = file.rename(file.with_name("kept"))
        # opening a pipe without a writer hangs, and a new sampler opens all files
        os.mkfifo(file)
        os.kill(daemon.sampler_pids()[0], signal.SIGKILL)
        eventually(is_quarantined)
        check_that_it_counts(daemon, tree, 0, 2)
        pipe = file.rename(file.with_name("pipe"))
        kept.replace(file)
        pipe.open("wb").close()
        eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1"))
        check_that_it_counts(daemon, tree, 1, 2)
        assert daemon.stop() == 0
    for values in recorded(tmp_path / "ring", 1):
        assert sorted(set(values)) == [1_000_000, 2_000_000]


def test_a_device_that_disappears_and_comes_back_is_sampled_again(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    device = tree / "class/infiniband/mlx5_1"
    with Running(tree, tmp_path / "ring", "--slow.interval=1s") as daemon:
        device.rename(tmp_path / "away")
        eventually(lambda: state_of(daemon, 1) == "disappeared")
        check_that_it_counts(daemon, tree, 0, 2)
        (tmp_path / "away").rename(device)
        eventually(lambda: state_of(daemon, 1) == "ACTIVE")
        eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1"))
        check_that_it_counts(daemon, tree, 1, 2)
        assert daemon.stop() == 0
    for values in recorded(tmp_path / "ring", 1):
        assert sorted(set(values)) == [1_000_000, 2_000_000]


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with space for the ring of one port, but not of two."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1900k,mode=750", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.needs("root")
def test_a_port_without_space_in_the_ring_is_named_and_the_others_are_sampled(
    small_file_system: Path, tmp_path: Path
) -> None:
    tree = plain_tree(tmp_path / "sys")
    daemon = Running(tree, small_file_system / "ring", f"--capture.dir={tmp_path / 'captures'}")
    daemon.log_path = tmp_path / "log"
    with daemon:
        check_that_it_counts(daemon, tree, 0, 2)
        (notice,) = daemon.ask("/api/v1/ports").json()["notices"]
        assert "has no space for port mlx5_1:1" in notice
        assert not daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1")
        assert daemon.stop() == 0
