"""Runs `ibpulse gateway` as an operator does, and asks it."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway: its TCP port, and its only process."""

    port: int
    pid: int

    def get(self, path: str) -> Any:
        """An answer in JSON.

        Raises:
            OSError: there is no answer, or its status is not 200.
        """
        return json.loads(processes.get(self.port, path))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as of their last answers; none while it starts."""
        try:
            found: list[dict[str, Any]] = self.get("/api/v1/nodes")["nodes"]
        except OSError:
            return []
        return found

    def descriptors(self) -> int:
        """The number of its open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """The name and the data of each event of a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(f"GET {path}: status {response.status}")
            name = ""
            while line := response.readline():
                field, _, text = line.rstrip(b"\n").partition(b": ")
                if field == b"event":
                    name = text.decode()
                elif field == b"data":
                    yield name, json.loads(text)
        finally:
            connection.close()


@contextmanager
def running_gateway(sources: Path, log: Path) -> Iterator[Gateway]:
    """A gateway over the nodes that a file lists."""
    port = processes.free_port()
    command = [
        *(sys.executable, "-m", "ibpulse", "gateway"),
        *(f"--nodes.sources={sources}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with processes.running(command, log) as process:
        gateway = Gateway(port, process.pid)
        processes.wait_for(lambda: bool(gateway.nodes()), "ibpulse gateway")
        yield gateway
