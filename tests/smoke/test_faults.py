"""What goes wrong on a node, done to a real daemon: the other ports go on, and no sample is false."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from tests.running import Running, eventually
from tests.smoke.parts import becomes, later, plain_tree, port_path, recorded, set_counters, totals


def check_that_the_other_port_counts(daemon: Running, tree: Path) -> None:
    before = totals(daemon, 0)
    set_counters(tree, 0, 1)
    becomes(lambda: totals(daemon, 0), later(before, 1))


def check_that_it_counts_again(daemon: Running, tree: Path, ring: Path) -> None:
    """The port of the fault is sampled as it is, and its totals move."""
    before = totals(daemon, 1)
    for steps in (1, 2):
        set_counters(tree, 1, steps)
        becomes(lambda steps=steps: [way[-1] for way in recorded(ring, 1)], [steps] * 2)
    eventually(lambda: all(total > before[way] for way, total in totals(daemon, 1).items()))
    assert [sorted(set(way)) for way in recorded(ring, 1)] == [[0, 1, 2]] * 2


def state_of(daemon: Running, number: int) -> str:
    ports = daemon.ask("/api/v1/ports").json()["ports"]
    return str(next(port["state"] for port in ports if port["device"] == f"mlx5_{number}"))


def test_a_counter_file_that_hangs_stops_no_other_port_and_is_sampled_again(tmp_path: Path) -> None:
    tree, ring = plain_tree(tmp_path / "sys"), tmp_path / "ring"
    file = port_path(tree, 1) / "counters/port_xmit_data"
    with Running(tree, ring, "--slow.interval=1s") as daemon:
        kept = file.rename(file.with_name("kept"))
        # opening a pipe without a writer hangs, and a new sampler opens all files
        os.mkfifo(file)
        for pid in daemon.sampler_pids():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: daemon.metrics().value("ibpulse_device_quarantined", device="mlx5_1") == 1)
        check_that_the_other_port_counts(daemon, tree)
        pipe = file.rename(file.with_name("pipe"))
        kept.replace(file)
        pipe.open("wb").close()
        check_that_it_counts_again(daemon, tree, ring)
        assert daemon.stop() == 0


def test_a_device_that_disappears_and_comes_back_is_sampled_again(tmp_path: Path) -> None:
    tree, ring = plain_tree(tmp_path / "sys"), tmp_path / "ring"
    device = tree / "class/infiniband/mlx5_1"
    with Running(tree, ring, "--slow.interval=1s") as daemon:
        device.rename(tmp_path / "away")
        becomes(lambda: state_of(daemon, 1), "disappeared")
        check_that_the_other_port_counts(daemon, tree)
        # its files are others: those that are still open say nothing of it
        shutil.copytree(tmp_path / "away", tmp_path / "back").rename(device)
        becomes(lambda: state_of(daemon, 1), "ACTIVE")
        eventually(lambda: daemon.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1"))
        check_that_it_counts_again(daemon, tree, ring)
        assert daemon.stop() == 0
