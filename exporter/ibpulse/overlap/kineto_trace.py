"""The GPU work of a Kineto trace: intervals of computation, of copies and of each communicator, and the steps.

Times are integers in nanoseconds since 1970: `baseTimeNanoseconds` plus `ts`, which is in microseconds; older traces
have no base and an absolute `ts` (pytorch/kineto libkineto/src/output_json.cpp).
"""

from __future__ import annotations

import ast
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ibpulse.errors import TraceError
from ibpulse.overlap.communication_kernels import CommunicationNames
from ibpulse.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.overlap.trace_file import Event, TraceFile
from ibpulse.text import escape_controls, show

STEP = re.compile(r"ProfilerStep#([0-9]{1,9})$")
KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
GPU_ANNOTATION = "gpu_user_annotation"
MOST_DEVICES, MOST_COMMUNICATORS, MOST_STEPS = 64, 4096, 100_000
MERGED_AT = 1 << 20
MOST_INTERVALS = 20_000_000
MOST_CONFIG_BYTES = 1_000_000
# 2**61 ns are 73 years since 1970, and sums of two such times fit into 64 bits
LATEST_NS = 2**61
_NO_NAMES = ("", "undefined")
# c10/core/ScalarType.h; the profiler writes the names of torch
DTYPE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
}


@dataclass(frozen=True, slots=True)
class Communicator:
    """Identity of a communicator: process group and its description, or the stream of kernels that name no group.

    `ranks` are its members, empty if unknown; `size` is their number, 0 if unknown.
    """

    name: str
    description: str
    library: str
    size: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Description and name."""
        return " ".join(part for part in (self.description, self.name) if part)

    def inside_node(self, gpus_per_node: int | None) -> bool:
        """Whether all members are known to be on one node, if ranks fill nodes of that many GPUs in order."""
        return bool(gpus_per_node and self.ranks) and len({rank // (gpus_per_node or 1) for rank in self.ranks}) == 1


@dataclass(frozen=True, slots=True)
class CommunicatorWork:
    """When the kernels of a communicator ran, how many there were, and their payload, None if any is unknown."""

    communicator: Communicator
    active: IntervalSet
    kernels: int
    payload_bytes: int | None


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A step of the profiler, in the time of the CPU."""

    number: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """The work of one GPU. `kernels` counts all its kernels."""

    device: str
    computation: IntervalSet
    copies: IntervalSet
    communicators: tuple[CommunicatorWork, ...]
    kernels: int

    @property
    def communication(self) -> IntervalSet:
        """When any communication kernel ran."""
        return union_of(work.active for work in self.communicators)

    @property
    def begin_ns(self) -> int:
        """The start of the first kernel."""
        return min(int(each.starts[0]) for each in self._kernel_sets())

    @property
    def end_ns(self) -> int:
        """The end of the last kernel."""
        return max(int(each.ends[-1]) for each in self._kernel_sets())

    def _kernel_sets(self) -> list[IntervalSet]:
        sets = [self.computation, *(work.active for work in self.communicators)]
        return [each for each in sets if each.starts.size]


@dataclass(frozen=True, slots=True)
class KinetoTrace:
    """A trace of one process. `absolute` is false if its times have no known relation to the wall clock."""

    path: Path
    rank: int | None
    world_size: int | None
    gpus: int | None
    absolute: bool
    steps: tuple[TraceStep, ...]
    devices: tuple[DeviceTrace, ...]


def union_of(sets: Iterable[IntervalSet]) -> IntervalSet:
    """The times that are in any of the sets."""
    every = [EMPTY, *sets]
    return union(np.concatenate([each.starts for each in every]), np.concatenate([each.ends for each in every]))


def read_trace(path: Path, names: CommunicationNames) -> KinetoTrace:
    """The GPU work of a trace, streamed.

    Raises:
        TraceError: the file cannot be read, has no kernels, or an event that makes no sense.
    """
    file, reader = TraceFile(path), _Reader(path, names)
    for events in file.batches():
        for event in events:
            reader.add(event)
    return reader.finish(file.members)


class _Intervals:
    """Intervals as they come, merged from time to time so that memory follows the result."""

    def __init__(self) -> None:
        self.count = 0
        self._starts, self._ends = array("q"), array("q")
        self._merge_at = MERGED_AT

    def add(self, start: int, end: int) -> None:
        """Add one interval."""
        self.count += 1
        self._starts.append(start)
        self._ends.append(end)
        if len(self._starts) >= self._merge_at:
            merged = self.merged()
            self._starts, self._ends = array("q", merged.starts.tobytes()), array("q", merged.ends.tobytes())
            self._merge_at = max(MERGED_AT, 2 * len(self._starts))

    def merged(self) -> IntervalSet:
        """All of them as a set."""
        return union(np.array(self._starts, dtype=np.int64), np.array(self._ends, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._starts)


@dataclass(slots=True)
class _Work:
    """Communication of one communicator; `payload_bytes` is None once a kernel does not say it."""

    intervals: _Intervals = field(default_factory=_Intervals)
    payload_bytes: int | None = 0


@dataclass(slots=True)
class _Device:
    computation: _Intervals = field(default_factory=_Intervals)
    copies: _Intervals = field(default_factory=_Intervals)
    groups: dict[Communicator, _Work] = field(default_factory=dict)


class _Reader:
    """Sorts events into what they occupy. Times are relative to the base until the end of the file."""

    def __init__(self, path: Path, names: CommunicationNames) -> None:
        self._path, self._names = path, names
        self._devices: dict[str, _Device] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[object, ...], Communicator] = {}
        self._events = 0

    def add(self, event: Event) -> None:
        """Take an event into account if it is GPU work or a step."""
        self._events += 1
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        kind, name = event.get("cat"), event.get("name")
        if kind in KERNELS:
            start, end = self._span(event)
            device = self._device(event)
            library = self._names.library_of(name) if isinstance(name, str) else ""
            if library:
                self._add_communication(device, event, library, start, end)
            else:
                device.computation.add(start, end)
        elif kind in COPIES:
            self._device(event).copies.add(*self._span(event))
        elif kind != GPU_ANNOTATION and isinstance(name, str) and name.startswith("ProfilerStep"):
            self._add_step(event, name)

    def _add_communication(self, device: _Device, event: Event, library: str, start: int, end: int) -> None:
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        work = device.groups.setdefault(self._communicator(details, library, event.get("tid")), _Work())
        if len(device.groups) > MOST_COMMUNICATORS:
            self._refuse(f"has more than {MOST_COMMUNICATORS} communicators", "trace fewer steps")
        work.intervals.add(start, end)
        payload = _payload(details)
        work.payload_bytes = None if payload is None or work.payload_bytes is None else work.payload_bytes + payload

    def _communicator(self, details: Mapping[str, Any], library: str, stream: object) -> Communicator:
        name, description = details.get("Process Group Name"), details.get("Process Group Description")
        ranks, size = details.get("Process Group Ranks"), details.get("Group size")
        key = (str(name), str(description), str(ranks), str(size), library, "" if name else str(stream))
        found = self._known.get(key)
        if found is None:
            members = _ranks(ranks)
            found = Communicator(
                escape_controls(str(name)[:80] if name else f"{library} on stream {str(stream)[:20]}"),
                escape_controls(description[:80])
                if isinstance(description, str) and description not in _NO_NAMES
                else "",
                library,
                size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**31 else len(members),
                members,
            )
            if len(self._known) < MOST_COMMUNICATORS:
                self._known[key] = found
        return found

    def _add_step(self, event: Event, name: str) -> None:
        number = STEP.fullmatch(name)
        if number:
            start, end = self._span(event)
            self._steps[int(number[1]), start] = end
            if len(self._steps) > MOST_STEPS:
                self._refuse(f"has more than {MOST_STEPS} steps", "trace fewer steps")

    def _device(self, event: Event) -> _Device:
        name = escape_controls(str(event.get("pid"))[:20])
        found = self._devices.get(name)
        if found is None:
            if len(self._devices) >= MOST_DEVICES:
                self._refuse(f"has kernels of more than {MOST_DEVICES} devices", "give the trace of one process")
            found = self._devices[name] = _Device()
        return found

    def _span(self, event: Event) -> tuple[int, int]:
        start = _nanoseconds(event.get("ts"))
        lasts = _nanoseconds(event.get("dur"))
        if start is None or lasts is None:
            key, value = ("ts", event.get("ts")) if start is None else ("dur", event.get("dur"))
            self._refuse(f"has {key} {show(value)} in event {self._events}", "it must be microseconds, 0 or more")
        return start, start + lasts

    def finish(self, members: Mapping[str, Any]) -> KinetoTrace:
        """The trace, with what the rest of the file says of it."""
        base = members.get("baseTimeNanoseconds", 0)
        if not isinstance(base, int) or isinstance(base, bool) or not 0 <= base < LATEST_NS:
            self._refuse(f"has baseTimeNanoseconds {show(base)}", "it must be nanoseconds since 1970; export it again")
        kept = sum(len(one.computation) + len(one.copies) for one in self._devices.values())
        kept += sum(len(work.intervals) for one in self._devices.values() for work in one.groups.values())
        if kept > MOST_INTERVALS:
            self._refuse(f"has more than {MOST_INTERVALS} separate spans of GPU work", "trace fewer steps")
        about = members.get("distributedInfo")
        about = about if isinstance(about, dict) else {}
        groups = _configured_ranks(about.get("pg_config"))
        traces = (_device_trace(name, device, base, groups) for name, device in sorted(self._devices.items()))
        devices = tuple(trace for trace in traces if trace.kernels)
        if not devices:
            self._refuse("has no GPU kernel", "profile with ProfilerActivity.CUDA")
        steps = sorted((start + base, end + base, number) for (number, start), end in self._steps.items())
        first = min(device.begin_ns for device in devices)
        return KinetoTrace(
            self._path,
            _count(about.get("rank")),
            _count(about.get("world_size")),
            _count(members.get("devices")),
            # profilers did not exist before 2015
            first > 45 * 365 * 86_400 * 10**9,
            tuple(TraceStep(number, start, end) for start, end, number in steps),
            devices,
        )

    def _refuse(self, problem: str, way_out: str) -> NoReturn:
        raise TraceError(f"trace {self._path} {problem}; {way_out}")


def _device_trace(name: str, device: _Device, base: int, ranks: Mapping[str, tuple[int, ...]]) -> DeviceTrace:
    groups = tuple(
        CommunicatorWork(
            key if key.ranks else replace(key, ranks=ranks.get(key.name, ())),
            work.intervals.merged().shift(base),
            work.intervals.count,
            work.payload_bytes,
        )
        for key, work in sorted(device.groups.items(), key=lambda item: item[0].label)
    )
    computation, copies = device.computation.merged(), device.copies.merged()
    # an event may last no time at all
    kernels = device.computation.count * bool(computation.starts.size)
    kernels += sum(work.kernels for work in groups if work.active.starts.size)
    return DeviceTrace(name, computation.shift(base), copies.shift(base), groups, kernels)


def _configured_ranks(value: object) -> dict[str, tuple[int, ...]]:
    """Members of process groups by name, from a list or from the text of a Python list."""
    if isinstance(value, str) and len(value) <= MOST_CONFIG_BYTES:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
    groups = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return {str(each.get("pg_name")): _ranks(each.get("ranks")) for each in groups}


def _nanoseconds(value: object) -> int | None:
    """Microseconds of a trace in whole nanoseconds; None if they make no sense."""
    if type(value) is int:
        found = value * 1000
    elif type(value) is float:
        found = round(value * 1000) if 0 <= value < LATEST_NS else -1
    elif isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,9})?", value):
        whole, _, fraction = value.partition(".")
        found = int(whole) * 1000 + int(f"{fraction:0<3}"[:3])
    else:
        return None
    return found if 0 <= found < LATEST_NS else None


def _payload(details: Mapping[str, Any]) -> int | None:
    """Bytes of a collective: its larger side, which is the whole buffer of AllGather, ReduceScatter and AllReduce."""
    size = DTYPE_BYTES.get(str(details.get("dtype")))
    counts = [details.get("In msg nelems"), details.get("Out msg nelems")]
    known = [count for count in counts if type(count) is int and 0 <= count < 2**50]
    return max(known) * size if known and size else None


def _ranks(value: object) -> tuple[int, ...]:
    """Ranks from a list, or from its text; empty if there are none, or if the profiler shortened them."""
    if isinstance(value, str) and len(value) <= 100_000:
        try:
            value = ast.literal_eval(value) if re.fullmatch(r"\[[0-9, ]*\]", value) else None
        except (ValueError, SyntaxError, MemoryError):
            return ()
    if not isinstance(value, list) or not all(type(rank) is int and 0 <= rank < 2**31 for rank in value):
        return ()
    return tuple(sorted(value))


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
