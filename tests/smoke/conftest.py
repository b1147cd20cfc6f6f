"""Real processes for the smoke tests: started, told, ended. A test asserts that something holds, never how fast.

Every wait has the same deadline, which only a hang reaches.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from tests.running import HANG_SECONDS, Running, eventually

ROOT = Path(__file__).resolve().parents[2]
IBPULSE = (sys.executable, "-m", "ibpulse")
# names of a program on other systems
ALSO_CALLED = {"alertmanager": "prometheus-alertmanager", "chromium": "chromium-browser"}
# what distinguishes the processes of a test from all others
MARK = "SMOKE_TEST"
PORT_FILES = {
    "../../node_type": "1: CA",
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    "counters/port_xmit_data": "1000000",
    "counters/port_rcv_data": "1000000",
}
WORD_BYTES = 4


def find(program: str) -> str | None:
    """The path of a program, under either of its names."""
    return shutil.which(program) or shutil.which(ALSO_CALLED.get(program, program))


@functools.cache
def is_root() -> bool:
    """Whether this user may make namespaces and mount file systems in them."""
    if os.geteuid() or not shutil.which("unshare"):
        return False
    mount = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing, before any fixture starts something."""
    for program in (name for mark in item.iter_markers("needs") for name in mark.args):
        if not (is_root() if program == "root" else find(program)):
            pytest.skip(f"no {program}")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of a test outlives it."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    try:
        eventually(lambda: not processes(tmp_path))
    finally:
        for pid in processes(tmp_path):
            os.kill(pid, signal.SIGKILL)


def processes(mark: Path) -> list[int]:
    """All processes that the test with this directory started, and theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has ended, or belongs to another user
    return found


def ibpulse(*words: object, status: int = 0) -> str:
    """What a verb prints; it must end with this status."""
    command = [*IBPULSE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == status, done.stderr
    return done.stdout


class Program:
    """A program that runs, and its output."""

    def __init__(self, log: Path, words: tuple[object, ...]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen([*map(str, words)], stdout=output, stderr=output)

    def said(self, pattern: str) -> str:
        """The first group of a pattern, once the program has printed it."""

        def search() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.log.read_text())
            assert found or not ended, self.log.read_text()
            return found

        return eventually(search)[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, even if it is stopped; its exit status."""
        for each in (number, signal.SIGCONT):
            self.process.send_signal(each)
        return self.process.wait(HANG_SECONDS)


@contextmanager
def program(log: Path, *words: object, status: int = 0) -> Iterator[Program]:
    """A program at work, which must end with this status."""
    made = Program(log, words)
    try:
        yield made
    finally:
        ended = made.end() if made.process.returncode is None else made.process.returncode
    assert ended == status, log.read_text()


@contextmanager
def simulated(tree: Path, *flags: str, ports: int = 2) -> Iterator[Program]:
    """`ibpulse simulate` at work; the tree is complete when the block begins."""
    with program(tree.with_name(f"{tree.name}.log"), *IBPULSE, "simulate", tree, f"--ports={ports}", *flags) as made:
        made.said(f"(in {re.escape(str(tree))})")
        eventually((tree / f"class/infiniband/mlx5_{ports - 1}/ports/1/counters/port_rcv_data").exists)
        yield made


def plain_tree(root: Path, count: int = 2) -> Path:
    """Devices `mlx5_0` and so on whose counters move only when a test moves them."""
    for number in range(count):
        for name, text in PORT_FILES.items():
            path = port_path(root, number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    return root


def port_path(root: Path, number: int) -> Path:
    return root / f"class/infiniband/mlx5_{number}/ports/1"


def set_counters(root: Path, number: int, millions: int) -> None:
    """Both data counters become 1 to 9 million words: a change of one byte, which no reader sees half of."""
    for name in ("port_xmit_data", "port_rcv_data"):
        with (port_path(root, number) / "counters" / name).open("r+b", buffering=0) as file:
            file.write(b"%d" % millions)


def recorded(ring: Path, number: int) -> list[list[int]]:
    """All counter values in a ring of one port, oldest first: those of transmit, those of receive."""
    file = RingFile(ring / "ring", writable=False)
    reader = RingReader(file)
    newest = reader.newest_tick()
    block = reader.read([file.slots()[f"mlx5_{number}:1"]], reader.oldest_tick(), newest)
    counters, valid = block.counters()[0], block.valid()[0]
    found = [way[there].tolist() for way, there in zip(counters, valid, strict=True)]
    file.close()
    return found


def take_capture(daemon: Running, before: str = "1s") -> str:
    """The name of a new capture, once its file is complete."""
    path = "/api/v1/captures"
    asked = httpx.post(daemon.url + path, json={"before": before, "after": "10ms"}, timeout=HANG_SECONDS)
    assert asked.status_code == 202, asked.text
    name: str = asked.json()["name"]
    eventually(lambda: name in [each["name"] for each in daemon.ask(path).json()["captures"]])
    return name


def get(url: str) -> Any:
    """The JSON at a URL."""
    answer = httpx.get(url, timeout=HANG_SECONDS, verify=False)
    assert answer.status_code == 200, answer.text
    return answer.json()
