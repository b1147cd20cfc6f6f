"""A real daemon: it counts every byte, survives the death of its sampler, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx

from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.conftest import WORD_BYTES, plain_tree, port_path, recorded, set_counters, simulated

WAYS = {"transmit": "port_xmit_data", "receive": "port_rcv_data"}


def totals(daemon: Running, number: int) -> dict[str, float]:
    """The byte totals of a port."""
    metrics = daemon.metrics()
    return {way: metrics.port(f"{way}_bytes_total", f"mlx5_{number}") for way in WAYS}


def kernel_words(tree: Path, number: int) -> dict[str, int]:
    """The data counters of a port as they are in their files."""
    return {way: int((port_path(tree, number) / "counters" / name).read_text()) for way, name in WAYS.items()}


def test_every_byte_of_a_simulated_fabric_is_counted(tmp_path: Path) -> None:
    tree = tmp_path / "sys"
    with simulated(tree, "--workload=dense") as fabric:
        fabric.process.send_signal(signal.SIGSTOP)
        begin = [kernel_words(tree, number) for number in range(2)]
        daemon = Running(tree, tmp_path / "ring")
        with daemon:
            before = [totals(daemon, number) for number in range(2)]
            fabric.process.send_signal(signal.SIGCONT)
            eventually(
                lambda: all(totals(daemon, number)["receive"] > before[number]["receive"] for number in range(2))
            )
            fabric.process.send_signal(signal.SIGSTOP)
            for number in range(2):
                words = kernel_words(tree, number)
                moved = {way: WORD_BYTES * (words[way] - begin[number][way]) for way in WAYS}
                eventually(
                    lambda number=number, moved=moved: (
                        {way: total - before[number][way] for way, total in totals(daemon, number).items()} == moved
                    )
                )
            for path in ("/-/healthy", "/-/ready", "/", "/api/v1/ports", "/api/v1/summary"):
                assert daemon.ask(path).status_code == 200
            assert daemon.window("5s").keys() == {f"mlx5_{number}:1 {way}" for number in range(2) for way in WAYS}
            assert daemon.stop() == 0
        assert "ERROR" not in daemon.log()


def test_a_restarted_daemon_keeps_the_samples_of_its_ring(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring") as daemon:
        set_counters(tree, 0, 2)
        eventually(lambda: totals(daemon, 0) == dict.fromkeys(WAYS, 1_000_000 * WORD_BYTES))
        assert daemon.stop() == 0
        set_counters(tree, 0, 5)
        daemon.start()
        # what moved in between has no sample; the counters of a new process begin anew
        before = totals(daemon, 0)
        set_counters(tree, 0, 6)
        eventually(lambda: totals(daemon, 0) == {way: total + 1_000_000 * WORD_BYTES for way, total in before.items()})
        assert daemon.stop() == 0
    for values in recorded(tmp_path / "ring", 0):
        assert sorted(set(values)) == [1_000_000, 2_000_000, 5_000_000, 6_000_000]
        assert values == sorted(values)


def test_a_killed_sampler_is_restarted_and_loses_no_byte(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring") as daemon:
        before = totals(daemon, 0)
        set_counters(tree, 0, 2)
        os.kill(daemon.sampler_pids()[0], signal.SIGKILL)
        set_counters(tree, 0, 3)
        eventually(lambda: daemon.metrics().value("ibpulse_sampler_restarts_total") == 1)
        set_counters(tree, 0, 4)
        moved = {way: before[way] + 3_000_000 * WORD_BYTES for way in WAYS}
        eventually(lambda: totals(daemon, 0) == moved)
        assert totals(daemon, 1) == before
        assert daemon.stop() == 0
    for values in recorded(tmp_path / "ring", 0):
        assert set(values) <= {1_000_000, 2_000_000, 3_000_000, 4_000_000}
        assert values == sorted(values)


def test_requests_leave_no_descriptor_open(tmp_path: Path) -> None:
    paths = ("/metrics", "/", "/api/v1/ports", "/api/v1/window?last=1s", "/api/v1/summary", "/api/v1/captures", "/none")
    with Running(plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:

        def ask_everything() -> None:
            for path in paths:
                daemon.ask(path)
            with httpx.stream("GET", f"{daemon.url}/api/v1/stream", timeout=HANG_SECONDS) as stream:
                next(stream.iter_lines())

        def descriptors() -> int:
            return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))

        ask_everything()
        eventually(lambda: daemon.metrics().value("ibpulse_http_stream_viewers") == 0)
        before = descriptors()
        for _ in range(10):
            ask_everything()
        eventually(lambda: descriptors() <= before)
