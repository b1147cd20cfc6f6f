"""Sends raw frames through a network interface at a known pace.

`python -m tests.campaigns.live.daemon.traffic INTERFACE BYTES_PER_SECOND SECONDS ON_SECONDS OFF_SECONDS`

Prints one JSON list of [wall ns, bytes handed to the interface so far] per batch. The log is the test's truth.
"""

from __future__ import annotations

import json
import socket
import sys
import time

FRAME = 60_000
BATCH_SECONDS = 0.002


def send(interface: str, bytes_per_second: float, seconds: float, on: float, off: float) -> list[tuple[int, int]]:
    """Send for `on` seconds, pause for `off`, and so forth; `off` may be 0."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    frame = b"\xff" * 12 + b"\x88\xb5" + bytes(FRAME - 14)
    log = [(time.time_ns(), 0)]
    sent, earned, begin = 0, 0.0, time.monotonic()
    before = begin
    while (now := time.monotonic()) - begin < seconds:
        if (now - begin) % (on + off) < on:
            earned += (now - before) * bytes_per_second
            while earned >= FRAME:
                sent += link.send(frame)
                earned -= FRAME
            log.append((time.time_ns(), sent))
        before = now
        time.sleep(BATCH_SECONDS)
    log.append((time.time_ns(), sent))
    return log


if __name__ == "__main__":
    json.dump(send(sys.argv[1], *map(float, sys.argv[2:6])), sys.stdout)
