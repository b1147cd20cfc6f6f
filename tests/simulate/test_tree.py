"""The tree of a simulated node, the notice of reads, and the wall clock of its processes."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ibpulse
from ibpulse.workbench.simulate import tree
from ibpulse.workbench.simulate.node_clock import node_environment
from ibpulse.workbench.simulate.tree import CounterReads, Device, list_device, make_devices, status_files

RAIL = Device("mlx5_3", 3, 3)
MANAGEMENT = Device("mlx5_an0", 8, None)


def test_down_ports_show_another_rate_and_no_two_devices_share_a_path() -> None:
    down = {"state": "1: DOWN\n", "phys_state": "2: Polling\n", "rate": "10 Gb/sec (4X SDR)\n"}
    assert status_files(RAIL, up=False) == down
    down = {"state": "1: DOWN\n", "phys_state": "3: Disabled\n", "rate": "40 Gb/sec (4X QDR)\n"}
    assert status_files(MANAGEMENT, up=False) == down
    # the rate of a link that is down is never next to an ACTIVE state while the files are written
    assert [list(status_files(RAIL, up=up)).index("state") for up in (False, True)] == [0, 2]
    devices = make_devices(128, management=True)
    paths = [path for device in devices for path in list_device(device).files]
    assert len(paths) == len(set(paths))
    assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:00\.0", d.pci_path.rpartition("/")[2]) for d in devices)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[CounterReads]:
    monkeypatch.setattr(tree, "SETTLE_SECONDS", 0)
    reads = CounterReads()
    yield reads
    reads.close()


def test_only_reads_end_the_pause(tmp_path: Path, reads: CounterReads) -> None:
    watched, other = tmp_path / "port_rcv_data", tmp_path / "port_xmit_data"
    for path in (watched, other):
        path.write_text("1\n")
    reads.watch(watched)
    other.read_text()
    watched.write_text("2\n")
    assert not reads.pause(0.01)
    threading.Timer(0.01, watched.read_text).start()
    # longer than any test may take
    assert reads.pause(3600)
    assert not reads.pause(0)


def test_reads_name_their_files_and_forget_removed(tmp_path: Path, reads: CounterReads) -> None:
    paths = [tmp_path / f"mlx5_{rail}" for rail in range(3)]
    for path in paths:
        path.write_text("1\n")
        reads.watch(path)
    seen = []
    for read in ((0,), (1,), (2, 0), (1, 1, 1)):
        for which in read:
            paths[which].read_text()
        seen.append(reads.pause(60))
    first, second, third, fourth = seen
    assert first != second == fourth
    assert third > first
    assert len(third) == 2
    assert second.isdisjoint(third)
    paths[0].unlink()
    # the kernel reports the end of a watch, too
    assert not reads.pause(1)


def test_without_inotify_it_sleeps(tmp_path: Path, reads: CounterReads, caplog: pytest.LogCaptureFixture) -> None:
    reads.watch(tmp_path / "missing")
    assert caplog.messages == [f"inotify: {tmp_path / 'missing'}: No such file or directory"]
    reads.close()
    reads.watch(tmp_path / "missing")
    assert not reads.pause(0)
    assert len(caplog.messages) == 1


def test_reads_are_noticed_above_descriptor_1023(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SETTLE_SECONDS", 0)
    path = tmp_path / "port_rcv_data"
    path.write_text("1\n")
    with contextlib.ExitStack() as stack:
        for _ in range(1024):
            stack.enter_context(open(os.devnull, "rb"))
        reads = stack.enter_context(contextlib.closing(CounterReads()))
        reads.watch(path)
        path.read_text()
        assert len(reads.pause(60)) == 1


PACKAGE = Path(ibpulse.__file__).parent
HOUR_NS = 3_600_000_000_000
ASK = """
import subprocess, sys, time
def ask():
    wall = (time.time(), time.time_ns() / 1e9, time.clock_gettime(time.CLOCK_REALTIME),
            time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9)
    return [*wall, time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC)]
print(*ask())
if len(sys.argv) == 1:
    print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.real("process")
def test_only_wall_clocks_are_shifted(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    environ = node_environment(dict(os.environ), tmp_path / "python", -HOUR_NS)
    true, shifted = (
        [
            float(word)
            for word in subprocess.run(
                [sys.executable, str(script)], env=env, capture_output=True, text=True, check=True
            ).stdout.split()
        ]
        for env in (dict(os.environ), environ)
    )
    ahead = [round((ours - theirs) / 60) for ours, theirs in zip(shifted, true, strict=True)]
    assert ahead == [-60, -60, -60, -60, 0, 0] * 2


def test_modules_read_wall_clock_through_time() -> None:
    """Functions without arguments that take the time from the kernel themselves would not be shifted."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name, given = node.func.attr, len(node.args) + len(node.keywords)
            of_time = isinstance(node.func.value, ast.Name) and node.func.value.id == "time"
            if name in ("utcnow", "today") or (name == "now" and "datetime" in ast.unparse(node.func.value)):
                found.append(f"{path.name}:{node.lineno}")
            if of_time and given < {"gmtime": 1, "localtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}.get(name, 0):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
