"""Runs the complete daemon as an operator does, and provides the process IDs of its two processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench import processes
from bench.bench import MILLISECOND_NS, Bench
from bench.history import filled_ring
from bench.trees import write_tree
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon: its TCP port, its processes, its ring."""

    port: int
    main_pid: int
    reader: RingReader

    @property
    def sampler_pid(self) -> int:
        """The id of the process that reads the counters."""
        return self.reader.ring.words[at.lane_at(0) + at.L_PID]

    def get(self, path: str) -> bytes:
        """The body of one response, over a new connection like Prometheus' first scrape.

        Raises:
            OSError: there is no answer, or its status is not 200.
        """
        return processes.get(self.port, path)

    def answers(self) -> bool:
        """Whether the daemon is ready."""
        try:
            return bool(self.get("/-/ready"))
        except OSError:
            return False


@contextmanager
def running_daemon(
    bench: Bench, name: str, *, ports: int, interval_ms: int = 10, history_seconds: int = 0
) -> Iterator[Daemon]:
    """`ibpulse serve` on a tree with `ports` ports and a ring with `history_seconds` of history."""
    folder = bench.new_folder(name)
    tree, ring = write_tree(folder / "sys", ports), folder / "ring"
    if history_seconds:
        filled_ring(ring / "ring", interval_ms * MILLISECOND_NS, ports, history_seconds)
    port = processes.free_port()
    command = [
        *(sys.executable, "-m", "ibpulse", "serve", f"--path.sysfs={tree}", f"--ring.dir={ring}"),
        *(f"--sampler.interval={interval_ms}ms", f"--web.listen-address=127.0.0.1:{port}"),
        f"--capture.dir={folder / 'captures'}",
    ]
    log = folder / "daemon.log"
    with processes.running(command, log) as process:
        daemon: Daemon | None = None

        def ready() -> bool:
            nonlocal daemon
            if process.poll() is not None:
                raise ChildProcessError(f"ibpulse serve ended with {process.returncode}: {log.read_text()[-2000:]}")
            if daemon is None and (ring / "ring").exists():
                daemon = Daemon(port, process.pid, RingReader(RingFile(ring / "ring")))
            return daemon is not None and daemon.answers()

        processes.wait_for(ready, "ibpulse serve becoming ready")
        # the daemon creates a new ring if the existing one does not match its settings
        yield Daemon(port, process.pid, RingReader(RingFile(ring / "ring")))
