"""Merges the traffic of a node into a profiler's trace: the trace passes through unread, on its own clock.

Events follow the Trace Event Format: counters of each rail, and slices and instants of what happened on the node. The
format has no value for missing data, so counters are 0 there, and a slice says so.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import orjson

from ibpulse.base.errors import TraceError
from ibpulse.base.files import write_whole
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.perfetto import GIGA, UNIT, Mark, NodeSamples
from ibpulse.workbench.overlap.databases import TraceDatabase, is_database
from ibpulse.workbench.overlap.events import TraceFile
from ibpulse.workbench.overlap.exposed import ExposedOnWire
from ibpulse.workbench.overlap.report import TraceOverlap

# above the largest number of a process on Linux
PROCESS = (1 << 22) + 1
# viewers draw it below the GPUs, which PyTorch's profiler (libkineto) gives 5,000,000 and their numbers
SORT_INDEX = 6_000_000
COMPRESSION = 3
SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True)
class WireClock:
    """The lead of a recording's clock over a trace's; wrong by at most `error_ns`, which is None for one that is given.

    `evidence` says how it is known.
    """

    ahead_ns: int
    error_ns: int | None
    evidence: str

    @classmethod
    def of(cls, wires: list[ExposedOnWire], shift_ns: int | None) -> WireClock:
        """The given shift, or else the best match of the devices of a trace, all of which are certain."""
        best = min((wire.match for wire in wires), key=lambda match: (bool(match.problem), match.error_ns))
        if shift_ns is None:
            evidence = f"correlation {best.correlation:.2f}, next best {best.rival:.2f}"
            return cls(best.lag_ns, best.error_ns, evidence)
        confirmed = f"the match finds {best.lag_ns / 1e6:+.2f} ± {best.error_ns / 1e6:.2f} ms from there"
        return cls(
            -shift_ns, None, f"given with --shift; {f'not confirmed: {best.problem}' if best.problem else confirmed}"
        )

    @property
    def text(self) -> str:
        """The lead in words."""
        error = "" if self.error_ns is None else f" ± {self.error_ns / 1e6:.2f}"
        return f"clock of the wire {self.ahead_ns / 1e6:+.2f}{error} ms, corrected"


def save_merged(
    reports: list[TraceOverlap], recording: Recording, rows: list[int], clock: WireClock, output: Path, active: float
) -> None:
    """Write the trace of some devices with the samples of the ports `rows`; bursts are above `active`.

    Compressed if the name says so.
    """
    trace = reports[0].trace

    def write(temporary: Path) -> None:
        with ExitStack() as opened:
            out: IO[bytes] = opened.enter_context(temporary.open("wb"))
            if output.suffix == ".gz":
                # without its name and time, the same input gives the same bytes
                packed = gzip.GzipFile("", "wb", COMPRESSION, out, mtime=0)
                out = cast("IO[bytes]", opened.enter_context(packed))
            file = TraceDatabase(trace.path) if is_database(trace.path) else TraceFile(trace.path)
            file.copy_with(_wire_events(reports, recording, rows, clock, active), out)

    write_whole(output, write, TraceError)


def _wire_events(
    reports: list[TraceOverlap], recording: Recording, rows: list[int], clock: WireClock, active: float
) -> Iterator[bytes]:
    back_ns = clock.ahead_ns + reports[0].trace.base_ns
    samples = NodeSamples(recording.meta, rows)
    samples.add(recording)
    threads = {str(recording.meta.ports[row].id): number for number, row in enumerate(rows, 1)}
    yield _event("M", "process_name", 0, 0, args={"name": f"wire of {recording.meta.host}: {clock.text}"})
    yield _event("M", "process_sort_index", 0, 0, args={"sort_index": SORT_INDEX})
    error = {} if clock.error_ns is None else {"error_ms": clock.error_ns / 1e6}
    details = {"ahead_ms": clock.ahead_ns / 1e6, **error, "evidence": clock.evidence}
    yield _event("i", "clock", samples.begin_ns - back_ns, 0, s="p", args=details)
    for row in rows:
        for direction, rates in zip(DIRECTIONS, recording.bytes_per_second[row], strict=True):
            name = f"{recording.meta.ports[row].id} {direction}"
            missing = np.isnan(rates)
            # of missing samples in a row, the first one
            shown = np.append(~(missing & np.append(False, missing[:-1])), True)
            values = np.append(np.where(missing, 0.0, rates / GIGA), 0.0)
            for place in np.flatnonzero(shown).tolist():
                time_ns = samples.begin_ns + place * recording.meta.interval_ns - back_ns
                if time_ns >= 0:
                    yield _event("C", name, time_ns, 0, args={UNIT: float(values[place])})
    for mark in (*samples.marks(active), *_exposed_marks(reports, clock)):
        thread = threads.setdefault(mark.port or mark.track, len(threads) + 1)
        yield from _mark_events(mark, back_ns, thread)
    for name, thread in threads.items():
        yield _event("M", "thread_name", 0, thread, args={"name": name})


def _exposed_marks(reports: list[TraceOverlap], clock: WireClock) -> Iterator[Mark]:
    """Exposed communication of each device, split by the wire."""
    for report in reports:
        parts = [("moving", report.wire.moving), ("waiting", report.wire.waiting)] if report.wire else []
        for name, times in parts:
            shifted = times.shift(clock.ahead_ns)
            for begin, end in zip(shifted.starts.tolist(), shifted.ends.tolist(), strict=True):
                yield Mark(f"exposed, device {report.overlap.device.device}", name, begin, end)


def _mark_events(mark: Mark, back_ns: int, thread: int) -> Iterator[bytes]:
    begin = mark.begin_ns - back_ns
    if mark.end_ns is None and begin >= 0:
        yield _event("i", mark.name, begin, thread, s="t", args=mark.details)
    elif mark.end_ns is not None and mark.end_ns - back_ns > 0:
        begin = max(0, begin)
        lasts = _microseconds(mark.end_ns - back_ns - begin)
        yield _event("X", mark.name, begin, thread, dur=lasts, args=mark.details)


def _event(kind: str, name: str, time_ns: int, thread: int, **members: Any) -> bytes:
    about = {"ph": kind, "name": name, "cat": "ibpulse", "pid": PROCESS, "tid": thread, "ts": _microseconds(time_ns)}
    return orjson.dumps({**about, **members})


def _microseconds(time_ns: int) -> orjson.Fragment:
    """The unit of the format, to the nanosecond; a float has too few digits for times since 1970."""
    return orjson.Fragment(f"{max(0, time_ns) // 1000}.{max(0, time_ns) % 1000:03d}")
