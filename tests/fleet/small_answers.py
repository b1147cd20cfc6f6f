"""The answers of a daemon with two rails and no jobs, for servers that answer some questions as no daemon would."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ibpulse.core.answers.node import PortsAnswer
from ibpulse.core.model import PortIdentity, PortState
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
    "identity": dataclasses.asdict(PortIdentity()),
}


def clock_of(time_ns: int = 1, node: str = "gpu-1") -> bytes:
    """An answer of `/api/v1/clock`."""
    return json.dumps({"node": node, "synchronised": True, "time_ns": time_ns}).encode()


def port_of(device: str = "mlx5_0", **changes: Any) -> dict[str, Any]:
    """A rail of a device."""
    return {**PORT, "name": f"{device}:1", "device": device, **changes}


def ports_of(*ports: dict[str, Any], **changes: Any) -> bytes:
    """An answer of `/api/v1/ports`."""
    members = {"interval_seconds": 0.01, "ports": ports, "notices": [], "stuck_devices": [], "simulated": False}
    return json.dumps({**members, **changes}).encode()


def read_ports(*ports: dict[str, Any]) -> PortsAnswer:
    """The same, read."""
    return PortsAnswer.model_validate_json(ports_of(*ports))


EVENT: dict[str, Any] = {
    "time_ms": 1_763_683_200_123,
    "time": "2025-11-21T00:00:00.123Z",
    "uncertainty_ms": 1000,
    "kind": "link-down",
    "subject": "mlx5_0:1",
    "device": "mlx5_0",
    "port": 1,
    "text": "mlx5_0:1 went down",
    "before": None,
    "after": None,
    "details": {},
}


JOB: dict[str, Any] = {
    "job_id": "7",
    "scheduler": "slurm",
    "source": "file",
    "name": "",
    "namespace": "",
    "ports": ["mlx5_0:1"],
    "basis": "alone",
    "gpus": [],
    "devices": [],
    "running": True,
    "began": "1970-01-01T00:00:00.005Z",
    "began_ms": 5,
    "began_uncertainty_ms": 2,
    "ended": None,
    "ended_ms": None,
    "ended_uncertainty_ms": 0,
}


def state_of(**members: Any) -> dict[str, Any]:
    """The state of a port of which no more is known than these members."""
    return {**dataclasses.asdict(PortState()), **members}


def events_of(*events: dict[str, Any], left_out: int = 0) -> bytes:
    """An answer of `/api/v1/events` with these members of events."""
    listed = [{**EVENT, **event} for event in events]
    return json.dumps({"from_ms": None, "to_ms": 0, "kinds": {}, "left_out": left_out, "events": listed}).encode()


def jobs_of(*jobs: dict[str, Any]) -> bytes:
    """An answer of `/api/v1/jobs` with these members of jobs."""
    listed = [{**JOB, **job} for job in jobs]
    return json.dumps({"known": True, "sources": [], "jobs": listed, "pods": [], "notices": []}).encode()


def capture_of(name: str, **changes: Any) -> dict[str, Any]:
    """A finished capture."""
    members = {"name": name, "trigger_ms": 1, "reason": "x", "ports": "", "jobs": None, "size_bytes": 1}
    return {**members, "url": f"/api/v1/captures/{name}", **changes}


def captures_of(*captures: dict[str, Any]) -> bytes:
    """An answer of `/api/v1/captures` with finished captures."""
    return json.dumps({"captures": captures, "pending": [], "stored_bytes": 0, "problem": ""}).encode()


PORTS = ports_of(PORT, port_of("mlx5_1"))


def answer_node(server: Hostile, prefix: str = "") -> None:
    """Let the server answer like such a daemon below a prefix."""
    server.answer(f"{prefix}/api/v1/ports", PORTS)
    server.answer(f"{prefix}/api/v1/clock", clock_of())
    server.answer(f"{prefix}/api/v1/jobs", jobs_of())
    server.answer(f"{prefix}/metrics", b"", "text/plain")
