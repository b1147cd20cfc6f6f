"""Writes one capture in its own process: `python -m ibpulse.agent.flightrecorder.writer`, with a JSON job on stdin."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ibpulse.base.deadline import yield_to_others
from ibpulse.base.errors import IbpulseError
from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort, RecordingMeta
from ibpulse.core.recordings.from_ring import read_pieces
from ibpulse.core.recordings.recording import events_from_json, events_to_json, jobs_from_json, jobs_to_json
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.plausible import LineRate

# with that of the daemon 10, a tenth of a core beside one busy process; at 19, a machine that is busy everywhere would
# not finish a capture in time
NICE = 5
# the maximum
OOM_SCORE = "1000"
ENVIRONMENT = {
    # unneeded threads cost memory and compete with the sampler
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    # pyarrow's own allocator uses 10 MB more than the system's
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
# other users can neither read nor write what this process makes, as those of the ring
UMASK = 0o027
# Row groups of ten times as many rows save 1 % of disk space but need 3 MB more memory.
ROWS_AT_ONCE = 8_000


@dataclass(frozen=True, slots=True)
class Job:
    """A capture to write to `path`: samples `first_tick` (at wall time `start_ns`) to `last_tick` of `ring`.

    `lines` are the line rates of the ports over the ticks of the ring, by default those of `meta`. `file` is the
    descriptor of the ring, if the writer inherits it.
    """

    ring: Path
    path: Path
    first_tick: int
    last_tick: int
    start_ns: int
    meta: RecordingMeta
    lines: tuple[LineRate, ...] = ()
    file: int | None = None

    def dump(self) -> bytes:
        """Encode a job as JSON for `parse_job`."""
        members = {name: str(getattr(self, name)) for name in ("ring", "path")}
        numbers = {name: getattr(self, name) for name in ("first_tick", "last_tick", "start_ns", "file")}
        meta = dataclasses.asdict(dataclasses.replace(self.meta, events=(), jobs=()))
        lists = {"events": events_to_json(self.meta.events), "jobs": jobs_to_json(self.meta.jobs)}
        # an unknown line rate is infinity, which becomes null
        return orjson.dumps({**members, **numbers, "lines": self.lines, "meta": {**meta, **lists}}, default=list)


def parse_job(raw: bytes) -> Job:
    """The job in the daemon's JSON."""
    members = orjson.loads(raw)
    lines = tuple(
        LineRate(tuple(rate or math.inf for rate in line["rates"]), tuple(line["ticks"]))
        for line in members.pop("lines")
    )
    ring, path, meta = Path(members.pop("ring")), Path(members.pop("path")), members.pop("meta")
    ports = tuple(map(_parse_port, meta.pop("ports")))
    events, jobs = events_from_json(meta.pop("events")), jobs_from_json(meta.pop("jobs"))
    about = RecordingMeta(ports=ports, events=events, jobs=jobs, **meta)
    return Job(ring=ring, path=path, lines=lines, meta=about, **members)


def _parse_port(members: dict[str, Any]) -> RecordedPort:
    identity, signals = PortIdentity(**members["identity"]), tuple(Signal(*each) for each in members["signals"])
    return RecordedPort(**{**members, "identity": identity, "signals": signals})


def main(arguments: list[str]) -> int:
    """Write the capture described on stdin and return the exit code; `arguments` holds the time limit in seconds."""
    # systemd signals every process of the service on shutdown, but a capture in flight should be completed
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(max(1, int(arguments[0])))
    yield_to_others(NICE)
    os.umask(os.umask(UMASK) | UMASK)
    try:
        write_capture(parse_job(sys.stdin.buffer.read()))
    except IbpulseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def write_capture(job: Job) -> None:
    """Write the capture of a job.

    Raises:
        IbpulseError: the ring cannot be read, the file cannot be written, or pyarrow is missing.
    """
    from ibpulse.core.recordings.files import save_pieces  # pyarrow is optional

    reader = RingReader(RingFile(job.ring, writable=False, descriptor=job.file))
    at_once = max(1, ROWS_AT_ONCE // len(job.meta.ports))
    pieces = read_pieces(reader, job.meta, job.first_tick, job.last_tick, job.start_ns, at_once, job.lines)
    save_pieces(job.path, job.meta, pieces)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
