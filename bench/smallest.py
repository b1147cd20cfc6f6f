"""The smallest loop: what any sampler in pure Python must do. `smallest.py INTERVAL_NS PHASE_NS SECONDS FILE...`

It sleeps until the next multiple of the interval on the wall clock, plus the phase, and reads each file through a
descriptor that stays open as an integer. It stores nothing, reads no clock around the reads, and handles no failure. It
prints one JSON object when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import time

NS_PER_SECOND = 1_000_000_000
READ_BYTES = 24


def main(interval: int, phase: int, seconds: float, paths: list[str]) -> dict[str, float]:
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    now, sleep, pread = time.monotonic_ns, time.sleep, os.pread
    wanted, ticks = int(seconds * NS_PER_SECOND / interval), 0
    deadline = first = now() + interval - (time.time_ns() - phase) % interval
    cpu = time.process_time_ns()
    while deadline < first + wanted * interval:
        ahead = deadline - now()
        if ahead > 0:
            sleep(ahead / NS_PER_SECOND)
            for descriptor in descriptors:
                int(pread(descriptor, READ_BYTES, 0))
            ticks += 1
        deadline += interval
    return {"ticks": ticks, "wanted": wanted, "cpu_ns_per_tick": (time.process_time_ns() - cpu) / max(1, ticks)}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])))
