"""What the writing process is told: which ticks of which ring, and where they go. A value and its JSON.

It must not import pydantic, which would take a third of the memory that the writing process has of its own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ibpulse.model import PortIdentity
from ibpulse.recording import RecordedPort, RecordingMeta


@dataclass(frozen=True, slots=True)
class Job:
    """Ticks `first_tick` to `last_tick` of the ring at `ring`, the first at wall time `start_ns`, to be `path`."""

    ring: Path
    path: Path
    first_tick: int
    last_tick: int
    start_ns: int
    meta: RecordingMeta

    def dump(self) -> bytes:
        """The JSON that `parse_job` reads."""
        members = {name: str(getattr(self, name)) for name in ("ring", "path")}
        numbers = {name: getattr(self, name) for name in ("first_tick", "last_tick", "start_ns")}
        return orjson.dumps({**members, **numbers, "meta": dataclasses.asdict(self.meta)})


def parse_job(raw: bytes) -> Job:
    """The job of its JSON, which the daemon itself wrote."""
    members = orjson.loads(raw)
    ring, path, meta = Path(members.pop("ring")), Path(members.pop("path")), members.pop("meta")
    ports = tuple(_parse_port(**port) for port in meta.pop("ports"))
    return Job(ring=ring, path=path, meta=RecordingMeta(ports=ports, **meta), **members)


def _parse_port(identity: dict[str, str], **members: Any) -> RecordedPort:
    return RecordedPort(identity=PortIdentity(**identity), **members)
