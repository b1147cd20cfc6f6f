"""When the files of a tree are written, so that a sampler sees exact values. It must not know what is written.

A plain file changes only when it is written. So a writer keeps a phase: half an interval before each wall-clock
multiple of the interval it writes the value that stands at that multiple. A sampler that reads at the multiples then
sees exact values; that is why the interval must be the sampler's. A writer that wakes late writes the newest value
only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Stop(Protocol):
    """Tells the writer to end: a `threading.Event`, or anything with its `is_set`."""

    def is_set(self) -> bool:
        """True once the writer is to end."""
        ...


def keep_phase(
    write: Callable[[int], None],
    interval_ns: int,
    stop: Stop,
    wall: Callable[[], int] = time.time_ns,
    monotonic: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Calls `write` with each multiple of the interval, half an interval ahead, until told to stop.

    Both clocks are in ns. When the wall clock is set, `write` is told times that go on as if it had not been.
    """
    half = interval_ns // 2
    done, stepped, offset = -1, 0, wall() - monotonic()
    while not stop.is_set():
        now = wall()
        drift, offset = now - monotonic() - offset, now - monotonic()
        if abs(drift) > half:
            stepped += drift
        tick = (now + half) // interval_ns
        if tick != done:
            write(tick * interval_ns - stepped)
            done = tick
        sleep(max(0, (tick + 1) * interval_ns - half - wall()) / 1e9)
