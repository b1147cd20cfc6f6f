"""Real processes for the smoke tests, and a node whose counters a test moves.

Every wait has the same deadline, which only a hang reaches.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from tests.running import HANG_SECONDS, Running, end, eventually

T = TypeVar("T")
IBPULSE = (sys.executable, "-m", "ibpulse")
# a variable that distinguishes the processes of a test from all others
MARK = "SMOKE_TEST"
WAYS = {"transmit": "port_xmit_data", "receive": "port_rcv_data"}
WORD_BYTES = 4
BEGIN_WORDS, STEP_WORDS = 1_000_000, 1_000
# a step of the receive counter is twice as long, so that directions are not mistaken for each other
LENGTH = {"transmit": 1, "receive": 2}
PORT_FILES = {
    "../../node_type": "1: CA",
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    **{f"counters/{name}": str(BEGIN_WORDS) for name in WAYS.values()},
}


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
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def becomes(ask: Callable[[], T], wanted: T) -> None:
    """Wait until the answer is the one that is wanted; fails with both."""
    try:
        eventually(lambda: ask() == wanted)
    except AssertionError:
        raise AssertionError(f"{ask()!r} instead of {wanted!r} after {HANG_SECONDS:.0f} s") from None


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

    def pause(self) -> None:
        """Stop it; it does nothing more until it is continued."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, even if it is stopped; its exit status."""
        return end(self.process, number, signal.SIGCONT)


@contextmanager
def program(log: Path, *words: object) -> Iterator[Program]:
    """A program at work, which must end with 0."""
    made = Program(log, words)
    try:
        yield made
    finally:
        status = made.end()
    assert status == 0, log.read_text()


@contextmanager
def simulated(tree: Path, *flags: str) -> Iterator[Program]:
    """`ibpulse simulate` at work with two ports; the tree is complete when the block begins."""
    with program(tree.with_name(f"{tree.name}.log"), *IBPULSE, "simulate", tree, "--ports=2", *flags) as made:
        # a device is in its class once all of its files exist
        eventually((tree / "class/infiniband/mlx5_1").exists)
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


def set_counters(root: Path, number: int, steps: int) -> None:
    """The data counters are so many steps from their beginning, up to 4: one byte changes, so no reader sees half."""
    for way, name in WAYS.items():
        with (port_path(root, number) / "counters" / name).open("r+b", buffering=0) as file:
            file.seek(3)
            file.write(b"%d" % (LENGTH[way] * steps))


def bytes_of(steps: int, way: str) -> int:
    return steps * LENGTH[way] * STEP_WORDS * WORD_BYTES


def totals(daemon: Running, number: int) -> dict[str, float]:
    """The byte totals of a port."""
    metrics = daemon.metrics()
    return {way: metrics.port(f"{way}_bytes_total", f"mlx5_{number}") for way in WAYS}


def later(before: dict[str, float], steps: int) -> dict[str, float]:
    """The totals of a port after so many steps more."""
    return {way: total + bytes_of(steps, way) for way, total in before.items()}


def recorded(ring: Path, number: int) -> list[list[float]]:
    """All samples in a ring of one port, oldest first, in steps: those of transmit, those of receive."""
    file = RingFile(ring / "ring", writable=False)
    reader = RingReader(file)
    newest = reader.newest_tick()
    block = reader.read([file.slots()[f"mlx5_{number}:1"]], reader.oldest_tick(), newest)
    words, valid = block.counters()[0].astype(float), block.valid()[0]
    found = [
        ((words[row][valid[row]] - BEGIN_WORDS) / STEP_WORDS / length).tolist()
        for row, length in enumerate(LENGTH.values())
    ]
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
