"""The cost of `ibpulse top` in terminals of two sizes, with and without a daemon, and its cost to the daemon."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.bench import PORTS, Bench
from bench.report import Budget, Section, Table, percent
from ibpulse.base.errors import DaemonError
from ibpulse.core.client.connection import DaemonConnection

SIZES = ((80, 24), (160, 50))
LIMIT = 0.02
SETTLE_SECONDS = 4.0
WORKLOAD = "dense"
METHOD = f"""\
`ibpulse top` in pseudo-terminals of two sizes, with the simulated {WORKLOAD} run on {PORTS} rails at 10 ms. With a
daemon: CPU of its single process, and the additional load of the daemon's main process. Alone: its main process and its
sampler."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Shares of a core: the process that draws, its sampler if any, and the additional load of the daemon."""

    drawing: float
    sampler: float | None = None
    daemon: float | None = None

    def cells(self) -> list[str]:
        """All three as text."""
        return ["-" if share is None else percent(share) for share in (self.drawing, self.sampler, self.daemon)]


def run(bench: Bench) -> Section:
    """Measure both ways at both sizes."""
    folder, seconds = bench.new_folder("top"), bench.seconds(20.0)
    tree, port = folder / "sys", processes.free_port()
    ibpulse = [sys.executable, "-m", "ibpulse"]
    fabric = [*ibpulse, "simulate", str(tree), f"--workload={WORKLOAD}", f"--ports={PORTS}"]
    serve = [
        *(*ibpulse, "serve", f"--path.sysfs={tree}", f"--ring.dir={folder / 'ring'}"),
        *(f"--capture.dir={folder / 'captures'}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with processes.running(fabric, folder / "fabric.log"):
        processes.wait_for((tree / f"class/infiniband/mlx5_{PORTS - 1}").exists, "the simulated fabric")
        with processes.running(serve, folder / "daemon.log") as daemon:
            url = f"http://127.0.0.1:{port}"
            processes.wait_for(lambda: _answers(url), "ibpulse serve becoming ready")
            time.sleep(SETTLE_SECONDS)
            [idle] = _shares([daemon.pid], seconds)
            watched = [_of_daemon([*ibpulse, "top", f"--url={url}"], size, daemon.pid, idle, seconds) for size in SIZES]
        alone = [_alone([*ibpulse, "top", f"--path.sysfs={tree}"], size, seconds) for size in SIZES]
    ways = {"with a daemon": watched, "alone": alone}
    rows = [
        [f"{way}, {columns} x {lines}", *cost.cells()]
        for way, costs in ways.items()
        for (columns, lines), cost in zip(SIZES, costs, strict=True)
    ]
    worst = {way: max(cost.drawing for cost in costs) for way, costs in ways.items()}
    budgets = [
        Budget(f"`ibpulse top` {way}, {PORTS} rails", "< 2 % of one core", percent(share), share < LIMIT)
        for way, share in worst.items()
    ]
    heading = ["CPU, of one core", "`ibpulse top`", "its sampler", "additional load of the daemon"]
    return Section("The view in a terminal", METHOD, [Table(heading, rows)], (), budgets)


def _of_daemon(words: list[str], size: tuple[int, int], pid: int, idle: float, seconds: float) -> Cost:
    with _shown(words, size) as mine:
        drawing, daemon = _shares([mine, pid], seconds)
    return Cost(drawing, daemon=max(0.0, daemon - idle))


def _alone(words: list[str], size: tuple[int, int], seconds: float) -> Cost:
    with _shown(words, size) as mine:
        [sampler] = [int(pid) for task in _tasks(mine) for pid in (task / "children").read_text().split()]
        return Cost(*_shares([mine, sampler], seconds))


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _shares(pids: Sequence[int], seconds: float) -> list[float]:
    begun, before = time.monotonic_ns(), [processes.cpu_ns(pid) for pid in pids]
    time.sleep(seconds)
    elapsed = time.monotonic_ns() - begun
    return [(processes.cpu_ns(pid) - cpu) / elapsed for pid, cpu in zip(pids, before, strict=True)]


@contextmanager
def _shown(words: list[str], size: tuple[int, int]) -> Iterator[int]:
    """The process ID of a command on a terminal of this size, once it has drawn a rail."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "NO_COLOR": ""}
    drawn = threading.Event()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        threading.Thread(target=_read_all, args=(ours, drawn)).start()
        try:
            processes.wait_for(drawn.is_set, " ".join(words))
            time.sleep(SETTLE_SECONDS)
            yield process.pid
        finally:
            process.terminate()
            process.wait(10)


def _read_all(terminal: int, drawn: threading.Event) -> None:
    """Read the output like a terminal until the command stops drawing."""
    # the program has ended
    with suppress(OSError):
        while text := os.read(terminal, 1 << 16):
            if b"duty cycle" in text:
                drawn.set()
    os.close(terminal)


def _answers(url: str) -> bool:
    connection = DaemonConnection(url)
    try:
        return bool(connection.get("/-/ready"))
    except DaemonError:
        return False
    finally:
        connection.close()
