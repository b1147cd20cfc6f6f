"""Asks the machine's kernel over a socket that is full, and prints one JSON object. It runs inside the machine."""

from __future__ import annotations

import json
import socket
import sys

from ibpulse.agent.sysfs.netlink import Link, PortMessage, connect


def fill(device: str) -> dict[str, object]:
    """Ask ever again without taking a reply, until the socket has no room; then ask as the sampler does."""
    opened = connect()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
    link = Link(lambda: opened)
    port = PortMessage(device, 1, ("sent_bytes",), ("rcvd_bytes",))
    port.resolve(link)
    error = 0
    for _ in range(2):
        for _ in range(200):
            link.send(port.request)
        try:
            link.receive(link.reply)
        except OSError as refused:
            error = refused.errno or 0
    port.ask(link)
    return {"values": port.take(link), "error": error}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fill(sys.argv[1])))
