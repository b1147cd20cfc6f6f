"""Asks the machine's kernel over a socket that is full, and prints one JSON object. It runs inside the machine."""

from __future__ import annotations

import json
import socket
import sys

from ibpulse.agent.sysfs.netlink import Link, PortMessage, connect


def fill(device: str) -> dict[str, object]:
    """Ask ever again without taking a reply, until the socket has no room; then ask as the sampler does."""
    opened = connect()
    assert isinstance(opened, socket.socket)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
    link = Link(lambda: opened)
    port = PortMessage(device, 1, ("sent_bytes",), ("rcvd_bytes",))
    port.resolve(link)
    failed = 0
    for _ in range(200):
        try:
            link.send(port.request)
        except OSError:
            failed += 1
    port.ask(link)
    return {"values": port.take(link), "failed": failed, "uncounted": len(port.request)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fill(sys.argv[1])))
