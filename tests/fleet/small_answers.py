"""The answers of a daemon with two rails and no jobs, for servers that answer some questions as no daemon would."""

from __future__ import annotations

import json
from typing import Any

from tests.fleet.hostile import Hostile

PORT: dict[str, Any] = {
    "name": "mlx5_0:1",
    "device": "mlx5_0",
    "port": 1,
    "state": "ACTIVE",
    "since": None,
    "active": True,
    "rate_bytes_per_second": 5e10,
    "rail": True,
    "role": "compute",
    "source": {"name": "port_data", "resolution_seconds": 0.01, "note": ""},
    "problem": "",
    "identity": {},
}


def clock_of(time_ns: int = 1, node: str = "gpu-1") -> bytes:
    """An answer of `/api/v1/clock`."""
    return json.dumps({"node": node, "synchronised": True, "time_ns": time_ns}).encode()


def ports_of(*ports: dict[str, Any]) -> bytes:
    """An answer of `/api/v1/ports`."""
    return json.dumps({"interval_seconds": 0.01, "ports": ports, "simulated": False}).encode()


PORTS = ports_of(PORT, {**PORT, "name": "mlx5_1:1", "device": "mlx5_1"})


def answer_node(server: Hostile, prefix: str = "") -> None:
    """Let the server answer like such a daemon below a prefix."""
    server.answer(f"{prefix}/api/v1/ports", PORTS)
    server.answer(f"{prefix}/api/v1/clock", clock_of())
    server.answer(f"{prefix}/api/v1/jobs", b'{"known": true, "jobs": []}')
    server.answer(f"{prefix}/metrics", b"", "text/plain")
