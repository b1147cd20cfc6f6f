"""A loop like that of Azure/Moneo's network exporter. `moneo.py INTERVAL_S SECONDS FILE...`

Written anew from a description of net_exporter.py (Moneo 0.3.5, commit 891fc3e): seven files of each port stay open and
are read as text from their beginning, the rate is the difference divided by the nominal interval and is put into a
gauge of the Prometheus client library, and then the loop sleeps for the interval. Moneo's own interval is 0.1 s. The
seven files of a port are given one after another, the two data counters first. It prints one JSON object when it ends.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

from prometheus_client import CollectorRegistry, Gauge

FILES = 7
WORD_BYTES = 4


def main(interval: float, seconds: float, paths: list[str]) -> dict[str, float]:
    registry = CollectorRegistry()
    gauges = [Gauge(f"value_{number}", "-", ["port"], registry=registry) for number in range(FILES)]
    before = [0] * len(paths)
    with ExitStack() as opened:
        files = [opened.enter_context(open(path)) for path in paths]
        ticks, begun, cpu = 0, time.monotonic(), time.process_time_ns()
        while time.monotonic() - begun < seconds:
            for number, file in enumerate(files):
                file.seek(0)
                value = int(file.readline())
                port, which = divmod(number, FILES)
                moved = WORD_BYTES * (value - before[number]) / interval if which < 2 else value
                gauges[which].labels(str(port)).set(moved)
                before[number] = value
            ticks += 1
            time.sleep(interval)
        cpu_ns, elapsed = time.process_time_ns() - cpu, time.monotonic() - begun
    return {"ticks": ticks, "wanted": elapsed / interval, "cpu_ns_per_tick": cpu_ns / ticks}


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
