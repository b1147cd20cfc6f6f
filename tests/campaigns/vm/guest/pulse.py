"""Lets a process run and stand still in turns, and prints when it really did. It runs inside the machine.

`pulse.py PID ON_MS OFF_MS CYCLES` prints a JSON list with one [started, stopped] per cycle, in epoch nanoseconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

NS_PER_MS = 1_000_000


def sleep_until(deadline_ns: int) -> None:
    time.sleep(max(0, deadline_ns - time.monotonic_ns()) / 1e9)


def pulse(pid: int, on_ms: int, off_ms: int, cycles: int) -> list[tuple[int, int]]:
    os.kill(pid, signal.SIGSTOP)
    runs = []
    begin_ns = time.monotonic_ns() + 500 * NS_PER_MS
    for cycle in range(cycles):
        start_ns = begin_ns + cycle * (on_ms + off_ms) * NS_PER_MS
        sleep_until(start_ns)
        os.kill(pid, signal.SIGCONT)
        started_ns = time.time_ns()
        sleep_until(start_ns + on_ms * NS_PER_MS)
        os.kill(pid, signal.SIGSTOP)
        runs.append((started_ns, time.time_ns()))
    os.kill(pid, signal.SIGCONT)
    return runs


if __name__ == "__main__":
    os.nice(-10)
    sys.stdout.write(json.dumps(pulse(*map(int, sys.argv[1:]))))
