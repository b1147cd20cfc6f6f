"""The naive loop: open, read and close every file, then sleep for the interval. `naive.py INTERVAL_S SECONDS FILE...`

This is the simplest way to poll counters. It prints one JSON object when it ends.
"""

from __future__ import annotations

import json
import sys
import time


def main(interval: float, seconds: float, paths: list[str]) -> dict[str, float]:
    rows = []
    begun, cpu = time.time(), time.process_time()
    while time.time() - begun < seconds:
        row = [time.time()]
        for path in paths:
            with open(path) as file:
                row.append(int(file.read()))
        rows.append(row)
        time.sleep(interval)
    elapsed, cpu = time.time() - begun, time.process_time() - cpu
    return {
        "ticks": len(rows),
        "wanted": elapsed / interval,
        "cpu_ns_per_tick": cpu / len(rows) * 1e9,
    }


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
