"""A real daemon counts every byte, survives the death of its sampler, and keeps nothing open."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx

from ibpulse.agent.daemon import SERVING_NICENESS
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke import parts


def test_every_byte_of_a_simulated_fabric_is_counted(tmp_path: Path) -> None:
    tree = tmp_path / "sys"

    def words() -> list[int]:
        files = [
            parts.port_path(tree, number) / "counters" / name for number in range(2) for name in parts.WAYS.values()
        ]
        return [int(file.read_text()) for file in files]

    def counted() -> list[float]:
        return [total for number in range(2) for total in parts.totals(daemon, number).values()]

    with parts.simulated(tree, "--workload=dense") as fabric:
        fabric.pause()
        begin = words()
        with Running(tree, tmp_path / "ring") as daemon:
            before = counted()
            fabric.process.send_signal(signal.SIGCONT)
            eventually(lambda: all(now > then for now, then in zip(counted(), before, strict=True)))
            fabric.pause()
            moved = [parts.WORD_BYTES * (now - then) for now, then in zip(words(), begin, strict=True)]
            parts.becomes(lambda: [now - then for now, then in zip(counted(), before, strict=True)], moved)
            for path in ("/-/healthy", "/-/ready", "/", "/api/v1/ports", "/api/v1/summary"):
                assert daemon.ask(path).status_code == 200
            assert daemon.window("5s").keys() == {f"mlx5_{number}:1 {way}" for number in range(2) for way in parts.WAYS}
            assert daemon.stop() == 0


def test_a_restarted_daemon_keeps_the_samples_of_its_ring(tmp_path: Path) -> None:
    tree = parts.plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring") as daemon:
        parts.set_counters(tree, 0, 1)
        parts.becomes(lambda: parts.totals(daemon, 0), parts.later(dict.fromkeys(parts.WAYS, 0), 1))
        assert daemon.stop() == 0
        parts.set_counters(tree, 0, 3)
        daemon.start()
        # nothing was sampled in between, and the counters of a new process begin anew
        before = parts.totals(daemon, 0)
        parts.set_counters(tree, 0, 4)
        parts.becomes(lambda: parts.totals(daemon, 0), parts.later(before, 1))
        assert daemon.stop() == 0
    for steps in parts.recorded(tmp_path / "ring", 0):
        assert sorted(set(steps)) == [0, 1, 3, 4]
        assert steps == sorted(steps)


def test_a_killed_sampler_is_restarted_and_no_byte_is_lost(tmp_path: Path) -> None:
    tree = parts.plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring") as daemon:
        before = parts.totals(daemon, 0)
        parts.set_counters(tree, 0, 1)
        for pid in daemon.sampler_pids():
            os.kill(pid, signal.SIGKILL)
        parts.set_counters(tree, 0, 2)
        eventually(lambda: daemon.metrics().value("ibpulse_sampler_restarts_total"))
        parts.set_counters(tree, 0, 3)
        parts.becomes(lambda: parts.totals(daemon, 0), parts.later(before, 3))
        assert parts.totals(daemon, 1) == before
        assert daemon.stop() == 0
    for steps in parts.recorded(tmp_path / "ring", 0):
        assert set(steps) <= {0, 1, 2, 3}
        assert steps == sorted(steps)


def test_requests_are_served_below_the_sampler_also_after_it_was_killed(tmp_path: Path) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with Running(parts.plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:
        for _ in range(3):
            (sampler,) = daemon.sampler_pids()
            assert os.getpriority(os.PRIO_PROCESS, sampler) == usual
            assert os.getpriority(os.PRIO_PROCESS, daemon.pid) == min(19, usual + SERVING_NICENESS)
            # niceness counts between processes of one session only
            assert os.getsid(sampler) == os.getsid(daemon.pid)
            os.kill(sampler, signal.SIGKILL)
            eventually(lambda killed=sampler: daemon.sampler_pids() not in ([], [killed]))


def test_requests_leave_no_descriptor_open(tmp_path: Path) -> None:
    paths = ("/metrics", "/", "/api/v1/ports", "/api/v1/window?last=1s", "/api/v1/summary", "/api/v1/captures", "/none")
    with Running(parts.plain_tree(tmp_path / "sys"), tmp_path / "ring") as daemon:

        def ask_everything() -> None:
            for path in paths:
                daemon.ask(path)
            with httpx.stream("GET", f"{daemon.url}/api/v1/stream", timeout=HANG_SECONDS, verify=False) as stream:
                assert stream.status_code == 200
                next(stream.iter_lines())

        def descriptors() -> int:
            return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))

        ask_everything()
        eventually(lambda: daemon.metrics().value("ibpulse_http_stream_viewers") == 0)
        before = descriptors()
        for _ in range(10):
            ask_everything()
        eventually(lambda: descriptors() <= before)
