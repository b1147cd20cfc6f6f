"""Generates load on the daemon: clients that request 60 s windows and scrape, as fast as they get responses.

`clients.py PORT CLIENTS [PATH...]` runs until it is terminated, and then prints how many responses it got, by path and
status.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

# At 10 ms this is every sample of 60 s; at 1 ms each point is the maximum of ten samples.
WINDOW = "/api/v1/window?last=60s&max_points=6000&format="
PATHS = (WINDOW + "json", "/metrics", WINDOW + "npy", "/metrics")
REFUSED_PAUSE_SECONDS = 0.1
# a server bounds the connections of one address
CLIENTS_PER_ADDRESS = 16


def pull(port: int, paths: Sequence[str], number: int, stop: threading.Event, answers: Counter[str]) -> None:
    """One client: requests each path in turn over a persistent connection, with a pause after a refused request."""
    source = (f"127.0.1.{number // CLIENTS_PER_ADDRESS + 1}", 0)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=source)
    turn = number
    while not stop.is_set():
        path = paths[turn % len(paths)]
        turn += 1
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            connection.close()
            status = 0
        answers[f"{path.partition('?')[0]} {status or 'no answer'}"] += 1
        if status != 200:
            time.sleep(REFUSED_PAUSE_SECONDS)
    connection.close()


def main(port: int, clients: int, paths: Sequence[str]) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    counts = [Counter[str]() for _ in range(clients)]
    threads = [
        threading.Thread(target=pull, args=(port, paths, number, stop, counts[number]), daemon=True)
        for number in range(clients)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    while not stop.is_set():
        stop.wait(0.5)
    seconds = time.monotonic() - begun
    total = sum(counts, Counter[str]())
    print(json.dumps({"seconds": seconds, "answers": dict(sorted(total.items()))}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or PATHS)
