"""Shows the overlap of traces as text and as JSON, and the wire in the trace. Names are escaped and shortened.

In the trace, events follow the Trace Event Format: counters of each rail, and slices and instants of what happened on
the node. The format has no value for missing data, so counters are 0 there, and a slice says so.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import orjson

from ibpulse.base import document
from ibpulse.base.document import Section, members_of
from ibpulse.base.errors import TraceError
from ibpulse.base.files import write_whole
from ibpulse.base.text import NOT_KNOWN, count_text, percent, size_text
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.perfetto import GIGA, UNIT, Mark, NodeSamples
from ibpulse.workbench.overlap.databases import TraceDatabase, is_database
from ibpulse.workbench.overlap.events import TraceFile
from ibpulse.workbench.overlap.exposed import CommunicatorTime, DeviceOverlap, ExposedOnWire, ExposedTime, WireSplit
from ibpulse.workbench.overlap.trace import KinetoTrace, TraceStep

MAX_STEPS, MAX_COMMUNICATORS = 40, 40
MIN_EXPLAINED = 0.8
TIMES = (
    "length_ns", "computation_ns", "communication_ns", "overlap_ns", "overlap_ratio", "exposed_ns", "idle_ns",
    "copying_ns",
)  # fmt: skip
"""Members of `ExposedTime` in the JSON."""
# above the largest number of a process on Linux
PROCESS = (1 << 22) + 1
# viewers draw it below the GPUs, which PyTorch's profiler (libkineto) gives 5,000,000 and their numbers
SORT_INDEX = 6_000_000
COMPRESSION = 3
SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True)
class TraceOverlap:
    """One device of a trace: its times, and the activity of the wire, if a recording was given."""

    trace: KinetoTrace
    overlap: DeviceOverlap
    wire: ExposedOnWire | None = None
    gpus_per_node: int | None = None

    @property
    def title(self) -> str:
        """File, rank and device."""
        rank = "" if self.trace.rank is None else f", rank {self.trace.rank}"
        world = "" if rank == "" or self.trace.world_size is None else f" of {self.trace.world_size}"
        process = "" if self.trace.process is None else f", process {self.trace.process}"
        return f"{self.trace.path}{process}, device {self.overlap.device.device}{rank}{world}"

    @property
    def steps(self) -> list[tuple[TraceStep, ExposedTime, WireSplit | None]]:
        """Each step with its times, and exposed time split by the wire."""
        splits = self.wire.steps if self.wire else [None] * len(self.overlap.steps)
        return [(step, time, split) for (step, time), split in zip(self.overlap.steps, splits, strict=True)]

    @property
    def communicators(self) -> list[tuple[CommunicatorTime, WireSplit | None]]:
        """Each communicator with its times, and exposed time split by the wire."""
        splits = self.wire.communicators if self.wire else [None] * len(self.overlap.communicators)
        return [*zip(self.overlap.communicators, splits, strict=True)]


def render_text(reports: Sequence[TraceOverlap], recording: Path | None = None) -> str:
    """A block for each device, and a table of all devices if there are several."""
    sections = [section for report in reports for section in _device_sections(report, recording)]
    if len(reports) > 1:
        sections.append(Section("all devices", _DEVICE_HEAD, [_device_row(report) for report in reports]))
    return document.render_text(sections)


def _device_sections(report: TraceOverlap, recording: Path | None) -> Iterator[Section]:
    whole, wire = report.overlap.whole, report.wire
    communication = sum(each.work.kernels for each in report.overlap.communicators)
    about = [f"{count_text(report.overlap.device.kernels, 'kernel')}, {communication} of them communication"]
    if wire:
        about.append(f"wire: {recording}, {_describe_clock(wire)}")
    yield Section(report.title, lines=about)
    yield Section("", ("", "time", "share"), list(_whole_rows(whole, wire.whole if wire else None)))
    if report.overlap.steps:
        yield _steps(report)
    if report.overlap.communicators:
        yield _communicators(report)
    remarks = [f"note: {remark}" for remark in find_remarks(report)]
    if remarks:
        yield Section(lines=remarks)


def _describe_clock(wire: ExposedOnWire) -> str:
    match = wire.match
    given = "" if wire.shift_ns is None else f"its times {wire.shift_ns / 1e6:+.2f} ms as given, "
    if match.problem:
        return f"{given}not confirmed: {match.problem}"
    return (
        f"{given}{match.lag_ns / 1e6:+.2f} ± {match.error_ns / 1e6:.2f} ms later than the trace, "
        f"correlation {match.correlation:.2f} (next best {match.rival:.2f})"
    )


def _whole_rows(whole: ExposedTime, split: WireSplit | None) -> Iterator[tuple[str, ...]]:
    def row(label: str, time_ns: int, of_ns: int, what: str = "") -> tuple[str, ...]:
        return label, _ms(time_ns), f"{percent(time_ns / of_ns) if of_ns else NOT_KNOWN}{what}"

    yield row("whole", whole.length_ns, whole.length_ns)
    yield row("computation", whole.computation_ns, whole.length_ns)
    yield row("communication", whole.communication_ns, whole.length_ns)
    yield row("  overlapped", whole.overlap_ns, whole.communication_ns, " of communication")
    yield row("  exposed", whole.exposed_ns, whole.communication_ns, " of communication")
    if split:
        for label, low, found, high in (
            ("    moving", split.moving_low_ns, split.moving_ns, split.moving_high_ns),
            ("    waiting", split.waiting_low_ns, split.waiting_ns, split.waiting_high_ns),
        ):
            yield label, _ms(found), f"between {_ms(low)} and {_ms(high)}"
        if split.inside_node_ns:
            yield row("    inside the node", split.inside_node_ns, whole.exposed_ns, " of exposed")
        if split.unmeasured_ns:
            yield row("    not recorded", split.unmeasured_ns, whole.exposed_ns, " of exposed")
    yield row("idle", whole.idle_ns, whole.length_ns)
    if whole.copying_ns:
        yield row("  copying", whole.copying_ns, whole.length_ns)


def _steps(report: TraceOverlap) -> Section:
    head = ("step", "length", "communication", "overlapped", "exposed", *(_WIRE_HEAD if report.wire else ()), "idle")
    rows = [
        (
            str(step.number),
            *map(_ms, (time.length_ns, time.communication_ns, time.overlap_ns, time.exposed_ns)),
            *(_wire_cells(split) if report.wire else ()),
            _ms(time.idle_ns),
        )
        for step, time, split in report.steps
    ]
    return Section("", head, rows, limit=MAX_STEPS)


def _communicators(report: TraceOverlap) -> Section:
    head = ("communicator", "ranks", "kernels", "payload", "communication", "exposed")
    rows = [
        (
            each.work.communicator.label,
            str(each.work.communicator.size or NOT_KNOWN),
            str(each.work.kernels),
            NOT_KNOWN if each.work.payload_bytes is None else size_text(each.work.payload_bytes),
            _ms(each.work.active.total_ns),
            _ms(each.exposed.total_ns),
            *(_wire_cells(split) if report.wire else ()),
        )
        for each, split in sorted(report.communicators, key=lambda pair: -pair[0].exposed.total_ns)
    ]
    return Section("", (*head, *(_WIRE_HEAD if report.wire else ())), rows, limit=MAX_COMMUNICATORS)


_WIRE_HEAD = ("moving", "waiting")
_DEVICE_HEAD = ("device", "length", "communication", "overlapped", "exposed", "moving", "waiting")


def _wire_cells(split: WireSplit | None) -> tuple[str, str]:
    return (_ms(split.moving_ns), _ms(split.waiting_ns)) if split else (NOT_KNOWN, NOT_KNOWN)


def _device_row(report: TraceOverlap) -> tuple[str, ...]:
    whole = report.overlap.whole
    return (
        report.title,
        _ms(whole.length_ns),
        _ms(whole.communication_ns),
        percent(whole.overlap_ratio),
        _ms(whole.exposed_ns),
        *_wire_cells(report.wire.whole if report.wire else None),
    )


def find_remarks(report: TraceOverlap) -> Iterator[str]:
    """Sentences about limits of the numbers of a device."""
    overlap, wire = report.overlap, report.wire
    yield from report.trace.notes
    if not overlap.communicators:
        yield "no kernel is known to communicate; add the names of yours with --communication"
    if not overlap.steps:
        named = "ProfilerStep" if report.trace.process is None else "range named step or iteration and a number"
        yield f"the trace has no {named}, so there are no steps"
    elif overlap.outside_ns:
        yield (
            f"{_ms(overlap.outside_ns)} of communication are outside of all steps: steps are in the time of the CPU, "
            "which the GPU follows later"
        )
    if not wire:
        return
    yield from _clock_remarks(wire)
    if wire.simulated:
        yield "SIMULATED: the recording is from a simulator or a replay, not from hardware"
    apart = [each.work.communicator.inside_node(report.gpus_per_node) for each in overlap.communicators]
    if any(apart):
        yield (
            f"ranks are assumed to fill nodes of {report.gpus_per_node} GPUs in order, so {sum(apart)} of "
            f"{count_text(len(apart), 'communicator')} stay inside a node; change it with --gpus-per-node"
        )
    if any(not each.work.communicator.ranks for each in overlap.communicators):
        yield "communicators with unknown ranks count as using the wire; their time on links between GPUs is in waiting"
    if wire.explained_ratio is not None and wire.explained_ratio < MIN_EXPLAINED:
        yield (
            f"this device communicates in only {percent(wire.explained_ratio)} of the time in which the wire is "
            "active: other ranks or jobs of the node count as moving"
        )


def _clock_remarks(wire: ExposedOnWire) -> Iterator[str]:
    lag_ns, given = wire.match.lag_ns, wire.shift_ns is not None
    if given and not wire.match.problem and abs(lag_ns) > wire.match.error_ns:
        yield (
            f"by the match of both, the shifted wire is {lag_ns / 1e6:+.1f} ms later than the trace, which --shift "
            "overrides; omit it to correct that"
        )
    if wire.match.apart and not given:
        yield (
            f"the clocks of wire and trace are {abs(lag_ns) / 1e6:.1f} ms apart, which is corrected: a clock was set "
            "in between, or the recording is of another node"
        )


def render_json(reports: Sequence[TraceOverlap], recording: Path | None = None) -> str:
    """All numbers, times in nanoseconds."""
    members = {
        "recording": str(recording) if recording else None,
        "devices": [_device_json(report) for report in reports],
    }
    return document.render_json("ibpulse_overlap_version", members)


def _device_json(report: TraceOverlap) -> dict[str, Any]:
    overlap, wire = report.overlap, report.wire
    return {
        "file": str(report.trace.path),
        **members_of(report.trace, "rank", "world_size", "process"),
        "device": overlap.device.device,
        "kernels": overlap.device.kernels,
        "begin_ns": overlap.device.begin_ns,
        **_time_json(overlap.whole, wire.whole if wire else None),
        "outside_steps_ns": overlap.outside_ns,
        "steps": [
            {"step": step.number, "begin_ns": step.begin_ns, **_time_json(time, split)}
            for step, time, split in report.steps
        ],
        "communicators": [_communicator_json(report, each, split) for each, split in report.communicators],
        "clock": {
            "shift_ns": wire.shift_ns or 0,
            "lag_ns": wire.match.lag_ns,
            "lag_error_ns": wire.match.error_ns,
            "correlation": wire.match.correlation,
            "next_best_correlation": wire.match.rival,
            "explained_ratio": wire.explained_ratio,
        }
        if wire
        else None,
        "simulated": bool(wire and wire.simulated),
        "notes": list(find_remarks(report)),
    }


def _communicator_json(report: TraceOverlap, each: CommunicatorTime, split: WireSplit | None) -> dict[str, Any]:
    group = each.work.communicator
    return {
        **members_of(group, "name", "description", "library", "ranks"),
        "size": group.size or None,
        "inside_node": group.inside_node(report.gpus_per_node) if group.ranks and report.gpus_per_node else None,
        "kernels": each.work.kernels,
        "payload_bytes": each.work.payload_bytes,
        "communication_ns": each.work.active.total_ns,
        "exposed_ns": each.exposed.total_ns,
        "wire": _split_json(split),
        "steps": [
            {"communication_ns": busy, "exposed_ns": exposed}
            for busy, exposed in zip(each.step_communication_ns, each.step_exposed_ns, strict=True)
        ],
    }


def _time_json(time: ExposedTime, split: WireSplit | None) -> dict[str, Any]:
    return {**members_of(time, *TIMES), "wire": _split_json(split)}


def _split_json(split: WireSplit | None) -> dict[str, Any] | None:
    if split is None:
        return None
    return {
        "moving_ns": split.moving_ns,
        "moving_range_ns": [split.moving_low_ns, split.moving_high_ns],
        "waiting_ns": split.waiting_ns,
        "waiting_range_ns": [split.waiting_low_ns, split.waiting_high_ns],
        "inside_node_ns": split.inside_node_ns,
        "unmeasured_ns": split.unmeasured_ns,
    }


def _ms(time_ns: int) -> str:
    """Milliseconds with microseconds behind the point."""
    return f"{time_ns / 1e6:,.3f} ms"


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
