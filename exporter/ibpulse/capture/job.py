"""What the writing process is told: which ticks of which ring, and where they go. A value and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from ibpulse.recording import RecordingMeta
from ibpulse.recording.header import read_header, write_header


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
        return orjson.dumps({**members, **numbers, "meta": write_header(self.meta).decode()})


def parse_job(raw: bytes) -> Job:
    """The job of its JSON."""
    members = orjson.loads(raw)
    meta = read_header(members.pop("meta").encode())
    ring, path = Path(members.pop("ring")), Path(members.pop("path"))
    return Job(ring=ring, path=path, meta=meta, **members)
