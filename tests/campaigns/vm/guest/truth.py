"""Reads a counter that the kernel computes at every read, every 10 ms, and prints what it was. Runs inside the machine.

`truth.py FILE BYTES_PER_COUNT SECONDS` prints a JSON list with one [epoch nanoseconds, bytes] per read.
"""

from __future__ import annotations

import json
import os
import sys
import time

TICK_NS = 10_000_000


def read(path: str, scale: int, seconds: float) -> list[tuple[int, int]]:
    descriptor = os.open(path, os.O_RDONLY)
    found = []
    end_ns = time.time_ns() + round(seconds * 1e9)
    while (now_ns := time.time_ns()) < end_ns:
        time.sleep((TICK_NS - now_ns % TICK_NS) / 1e9)
        found.append((time.time_ns(), scale * int(os.pread(descriptor, 24, 0))))
    return found


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    sys.stdout.write(json.dumps(read(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
