"""Viewers of a stream that discard what they read. `viewers.py PORT VIEWERS [PATH]` runs until it is terminated."""

from __future__ import annotations

import http.client
import json
import selectors
import signal
import sys
import threading
import time

STREAM = "/api/v1/stream"


def main(port: int, viewers: int, path: str = STREAM) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    waiting = selectors.DefaultSelector()
    for number in range(viewers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"viewer {number}: status {response.status}")
        waiting.register(connection.sock, selectors.EVENT_READ, connection)
    received, begun = 0, time.monotonic()
    print("watching", flush=True)
    while not stop.is_set():
        for key, _ in waiting.select(0.5):
            received += len(key.data.sock.recv(65_536))
    print(json.dumps({"seconds": time.monotonic() - begun, "bytes": received}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
