"""Forwards TCP connections from the machine's network into a network namespace. It runs inside the machine.

`relay.py PORT NAMESPACE TARGET_PORT` listens on PORT and connects to TARGET_PORT of the namespace's loopback address.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def copy(source: socket.socket, target: socket.socket) -> None:
    """Forward one direction up to its end."""
    while data := source.recv(1 << 16):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def forward(client: socket.socket, port: int) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        threading.Thread(target=copy, args=(client, server), daemon=True).start()
        copy(server, client)


def relay(port: int, namespace: str, target: int) -> None:
    listener = socket.create_server(("0.0.0.0", port))
    # The listener stays where it was made; connections are made in the namespace. Python 3.12 and later, as here.
    os.setns(os.open(f"/run/netns/{namespace}", os.O_RDONLY))  # type: ignore[attr-defined]
    while True:
        client, _ = listener.accept()
        threading.Thread(target=forward, args=(client, target), daemon=True).start()


if __name__ == "__main__":
    relay(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
