"""Reads the GPU work of a trace: intervals of computation, of copies and of each communicator, and the steps.

Times are integers in nanoseconds since 1970: `baseTimeNanoseconds` plus `ts`, which is in microseconds; older traces
have no base and an absolute `ts` (pytorch/kineto libkineto/src/output_json.cpp).
"""

from __future__ import annotations

import ast
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ibpulse.base.errors import TraceError
from ibpulse.base.text import count_text, show
from ibpulse.workbench.overlap.databases import REPORTS, TraceDatabase, is_database
from ibpulse.workbench.overlap.events import Event, TraceFile
from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, merge, union
from ibpulse.workbench.overlap.kernels import CommunicationNames

STEP = re.compile(r"ProfilerStep#([0-9]{1,9})$")
KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
GPU_ANNOTATION = "gpu_user_annotation"
LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime")
MAX_DEVICES, MAX_COMMUNICATORS, MAX_STEPS = 64, 4096, 100_000
MERGED_AT = 1 << 20
MAX_INTERVALS = 10_000_000
MAX_KINDS = 100
MAX_CONFIG_BYTES = 1_000_000
MAX_RANKS_BYTES, MAX_RANKS = 100_000, 1_000_000
"""Length of the text of a group's members, and number of members of all groups."""
MAX_RESEMBLING, SHOWN_RESEMBLING = 1000, 3
# a hanging collective is aborted sooner
MAX_EVENT_NS = 86_400 * 10**9
# 2**61 ns are 73 years since 1970, and sums of two such times fit into 64 bits
LATEST_NS = 2**61
FAR_NS = 10**9
FAR_FROM_STEPS, FAR_FROM_WORK = 1, 10
"""Stray work is farther away than this multiple of the length of the rest, with steps and without."""
MAX_STRAY = 0.01
"""Without steps, more work than this share of the rest is no error."""
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
    """Times of the kernels of a communicator, their number, and their payload, None if that of any is unknown."""

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
        """The times of all communication kernels."""
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
    """A trace of one process. `absolute` is false if its times have no known relation to the wall clock.

    `process` is the number of the process, known only where a file may have several.

    The times in the file are those after `base_ns`. `notes` are sentences about what was left out of the file or is
    uncertain.
    """

    path: Path
    rank: int | None
    world_size: int | None
    gpus: int | None
    absolute: bool
    steps: tuple[TraceStep, ...]
    devices: tuple[DeviceTrace, ...]
    notes: tuple[str, ...] = ()
    base_ns: int = 0
    process: int | None = None


def union_of(sets: Iterable[IntervalSet]) -> IntervalSet:
    """The times that are in any of the sets."""
    every = [EMPTY, *sets]
    return union(np.concatenate([each.starts for each in every]), np.concatenate([each.ends for each in every]))


def read_traces(path: Path, names: CommunicationNames) -> list[KinetoTrace]:
    """The GPU work of a trace of Kineto, or of each process of a database, streamed."""
    if path.suffix in REPORTS:
        way_out = "export it with nsys export --type=sqlite, and give that file"
        raise TraceError(f"trace {path} is a report of Nsight Systems, which only its programs read; {way_out}")
    if is_database(path):
        return _read_database(path, names)
    file, reader = TraceFile(path), _Reader(path, names)
    for events in file.batches():
        for event in events:
            reader.add(event)
    return [reader.finish(file.members, file.notes())]


def _read_database(path: Path, names: CommunicationNames) -> list[KinetoTrace]:
    database = TraceDatabase(path)
    readers: dict[int, _Reader] = {}
    for process, event in database.events():
        if process not in readers and event["cat"] in KERNELS:
            if len(readers) >= MAX_DEVICES:
                raise TraceError(f"trace {path} has more than {MAX_DEVICES} processes; profile fewer of them")
            readers[process] = _Reader(path, names)
        if process in readers:
            readers[process].add(event)
    if not readers:
        raise TraceError(f"trace {path} has no GPU kernel; profile the processes that use the GPU")
    members, notes = {"baseTimeNanoseconds": database.base_ns}, [*database.notes()]
    finished = ((process, reader.finish(members, notes)) for process, reader in sorted(readers.items()))
    return [replace(trace, process=process or None) for process, trace in finished]


class _Intervals:
    """Collects intervals and merges them from time to time, so that memory follows the result.

    `instants` is the number of empty ones, `counts` that of the intervals in each one of `times`.
    """

    def __init__(self) -> None:
        self.instants = 0
        self.times, self.counts = EMPTY, EMPTY.starts
        self._starts, self._ends, self._counts = array("q"), array("q"), array("q")
        self._merge_at = MERGED_AT

    def add(self, start: int, end: int) -> None:
        """Add one interval."""
        if end <= start:
            self.instants += 1
            return
        self._starts.append(start)
        self._ends.append(end)
        self._counts.append(1)
        if len(self._starts) >= self._merge_at:
            self.merge()
            self._starts, self._ends = array("q", self.times.starts.tobytes()), array("q", self.times.ends.tobytes())
            self._counts = array("q", self.counts.tobytes())
            self._merge_at = max(MERGED_AT, 2 * len(self._starts))

    def merge(self) -> None:
        """Compute `times` and `counts`."""
        given = (self._starts, self._ends, self._counts)
        self.times, self.counts = merge(*(np.array(each, dtype=np.int64) for each in given))

    def cut(self, begin: int, end: int) -> int:
        """Drop what is not between both times; returns the number of dropped intervals."""
        inside = (self.times.starts >= begin) & (self.times.ends <= end)
        dropped = int(self.counts[~inside].sum())
        self.times = IntervalSet(self.times.starts[inside], self.times.ends[inside])
        self.counts = self.counts[inside]
        return dropped

    @property
    def count(self) -> int:
        """The number of intervals, with empty ones."""
        return self.instants + int(self.counts.sum())

    def __len__(self) -> int:
        return len(self._starts)


@dataclass(slots=True)
class _Work:
    """Communication of one communicator; `payload_bytes` is None once that of a kernel is unknown."""

    intervals: _Intervals = field(default_factory=_Intervals)
    payload_bytes: int | None = 0


@dataclass(slots=True)
class _Device:
    computation: _Intervals = field(default_factory=_Intervals)
    copies: _Intervals = field(default_factory=_Intervals)
    groups: dict[Communicator, _Work] = field(default_factory=dict)

    def all_intervals(self) -> list[_Intervals]:
        """Those of computation, of each communicator, and of copies."""
        return [self.computation, *(work.intervals for work in self.groups.values()), self.copies]


class _Reader:
    """Sorts events by device and communicator. Times are relative to the base until the end of the file."""

    def __init__(self, path: Path, names: CommunicationNames) -> None:
        self._path, self._names = path, names
        self._devices: dict[str, _Device] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[str | bytes, ...], Communicator] = {}
        self._work = self._members = 0
        self._kinds: Counter[str] = Counter()
        self._senseless: Counter[str] = Counter()
        self._example = ""
        # number and nanoseconds of kernels that look like communication and are not known, by function
        self._resembling: dict[str, list[int]] = {}

    def add(self, event: Event) -> None:
        """Count an event if it is GPU work or a step."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        kind, name = event.get("cat"), event.get("name")
        if kind in KERNELS:
            self._add_kernel(event, name if isinstance(name, str) else "")
        elif kind in COPIES:
            span = self._span(event, "transfer")
            if span:
                self._device(event).copies.add(*span)
        elif kind != GPU_ANNOTATION and isinstance(name, str) and name.startswith("ProfilerStep"):
            self._add_step(event, name)
        elif len(self._kinds) < MAX_KINDS:
            self._kinds[str(kind)[:40]] += 1

    def _add_kernel(self, event: Event, name: str) -> None:
        span = self._span(event, "kernel")
        if not span:
            return
        device = self._device(event)
        library = self._names.library_of(name)
        if library:
            self._add_communication(device, event, library, *span)
            return
        device.computation.add(*span)
        function = self._names.resembling(name)
        if function and (function in self._resembling or len(self._resembling) < MAX_RESEMBLING):
            found = self._resembling.setdefault(function, [0, 0])
            found[0] += 1
            found[1] += span[1] - span[0]

    def _add_communication(self, device: _Device, event: Event, library: str, start: int, end: int) -> None:
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        work = device.groups.setdefault(self._communicator(details, library, event.get("tid")), _Work())
        if len(device.groups) > MAX_COMMUNICATORS:
            self._refuse(f"has more than {MAX_COMMUNICATORS} communicators", "trace fewer steps")
        work.intervals.add(start, end)
        payload = _payload(details)
        work.payload_bytes = None if payload is None or work.payload_bytes is None else work.payload_bytes + payload

    def _communicator(self, details: Mapping[str, Any], library: str, stream: object) -> Communicator:
        name, description = details.get("Process Group Name"), details.get("Process Group Description")
        ranks, size = details.get("Process Group Ranks"), _count(details.get("Group size"))
        key = (_short(name), _short(description), _short(ranks), str(size), library, "" if name else _short(stream))
        found = self._known.get(key)
        if found is None:
            members = _ranks(ranks)
            self._members += len(members)
            if self._members > MAX_RANKS:
                self._senseless["group"] += 1
                members = ()
            named = isinstance(description, str) and description not in _NO_NAMES
            found = Communicator(
                str(name)[:80] if name else f"{library} on stream {str(stream)[:20]}",
                str(description)[:80] if named else "",
                library,
                size or len(members),
                members,
            )
            if len(self._known) < MAX_COMMUNICATORS:
                self._known[key] = found
        return found

    def _add_step(self, event: Event, name: str) -> None:
        number = STEP.fullmatch(name)
        span = self._span(event, "step")
        if not number:
            self._senseless["step"] += 1
        elif span:
            self._steps[int(number[1]), span[0]] = span[1]
            if len(self._steps) > MAX_STEPS:
                self._refuse(f"has more than {MAX_STEPS} steps", "trace fewer steps")

    def _device(self, event: Event) -> _Device:
        name = str(event.get("pid"))[:20]
        found = self._devices.get(name)
        if found is None:
            if len(self._devices) >= MAX_DEVICES:
                self._refuse(f"has kernels of more than {MAX_DEVICES} devices", "give the trace of one process")
            found = self._devices[name] = _Device()
        return found

    def _span(self, event: Event, what: str) -> tuple[int, int] | None:
        """Begin and end of GPU work or of a step; None, counted, if they make no sense."""
        self._work += 1
        if self._work % MERGED_AT == 0:
            self._check_size()
        start, lasts = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
        if start is not None and lasts is not None and lasts <= MAX_EVENT_NS and (start or lasts):
            return start, start + lasts
        self._senseless[what] += 1
        self._example = self._example or f"ts {show(event.get('ts'))} and dur {show(event.get('dur'))}"
        return None

    def _check_size(self) -> None:
        kept = sum(len(each) for device in self._devices.values() for each in device.all_intervals())
        if kept > MAX_INTERVALS:
            self._refuse(f"has more than {MAX_INTERVALS} separate spans of GPU work", "trace fewer steps")

    def finish(self, members: Mapping[str, Any], notes: Iterable[str]) -> KinetoTrace:
        """The trace, with the other members of the file and with notes about it."""
        self._check_size()
        given = members.get("baseTimeNanoseconds", 0)
        base = _count(given, LATEST_NS)
        about = members.get("distributedInfo")
        about = about if isinstance(about, dict) else {}
        stray = self._leave_out_stray()
        groups = _configured_ranks(about.get("pg_config"))
        traces = (_device_trace(name, device, base or 0, groups) for name, device in sorted(self._devices.items()))
        devices = tuple(trace for trace in traces if trace.kernels)
        if not devices:
            self._refuse_without_kernels()
        steps = sorted((start + (base or 0), end + (base or 0), number) for (number, start), end in self._steps.items())
        first = min(device.begin_ns for device in devices)
        wrong = [] if base is not None else [f"baseTimeNanoseconds {show(given)} is no time, so there is no wall time"]
        return KinetoTrace(
            self._path,
            _count(about.get("rank")),
            _count(about.get("world_size")),
            _count(members.get("devices")),
            # profilers did not exist before 2015
            first > 45 * 365 * 86_400 * 10**9,
            tuple(TraceStep(number, start, end) for start, end, number in steps),
            devices,
            (*notes, *wrong, *stray, *self._notes()),
            base or 0,
        )

    def _leave_out_stray(self) -> Iterable[str]:
        """Merge all intervals, and leave out kernels far from all others; returns a note if there are any."""
        for device in self._devices.values():
            for each in device.all_intervals():
                each.merge()
        kernels = [each for device in self._devices.values() for each in device.all_intervals()[:-1]]
        work = union_of(each.times for each in kernels)
        if not work.starts.size:
            return ()
        begins = np.array([start for _, start in self._steps], dtype=np.int64)
        begin, end = _find_core(work, union(begins, np.array([*self._steps.values()], dtype=np.int64)))
        for group in (group for device in self._devices.values() for group in device.groups.values()):
            if group.intervals.times.starts.size and not (
                begin <= group.intervals.times.starts[0] and group.intervals.times.ends[-1] <= end
            ):
                group.payload_bytes = None
        dropped = sum(each.cut(begin, end) for each in kernels)
        away = np.concatenate((begin - work.ends, work.starts - end))
        nearest = int(away.min(initial=LATEST_NS, where=away > 0))
        said = f"{count_text(dropped, 'kernel')} at least {nearest / 1e9:,.3f} s away from all others: left out"
        return (said,) if dropped else ()

    def _notes(self) -> Iterator[str]:
        left_out = [count_text(self._senseless[what], what) for what in ("kernel", "transfer", "step")]
        left_out = [text for text in left_out if not text.startswith("0 ")]
        if left_out:
            example = f", such as {self._example}" if self._example else ""
            yield f"{', '.join(left_out)} without sensible times or number{example}: left out"
        if self._senseless["group"]:
            few = self._senseless["group"]
            yield f"members of {count_text(few, 'group')} are unknown: all groups have more than {MAX_RANKS} members"
        most = sorted(self._resembling.items(), key=lambda item: -item[1][1])
        for function, (number, lasts) in most[:SHOWN_RESEMBLING]:
            yield (
                f"{count_text(number, 'kernel')} {function} ({lasts / 1e6:,.3f} ms) look like "
                "communication of an unknown library, and count as computation; if it is, add --communication"
            )
        if most[SHOWN_RESEMBLING:]:
            yield f"{len(most) - SHOWN_RESEMBLING} further functions look like communication, but count as computation"

    def _refuse_without_kernels(self) -> NoReturn:
        launches = sum(self._kinds[kind] for kind in LAUNCHES)
        lost = self._senseless["kernel"]
        if lost or any(each.instants for device in self._devices.values() for each in device.all_intervals()):
            self._refuse(
                f"has no GPU kernel with times: {lost} are without sensible ones", "profile fewer steps at a time"
            )
        if launches:
            self._refuse(
                f"has no GPU kernel, but {count_text(launches, 'call')} of the GPU's runtime: the profiler did not get "
                "the events of the GPU",
                "look for its warnings about CUPTI or ROCm: permissions, or another profiler",
            )
        kinds = ", ".join(kind for kind, _ in self._kinds.most_common(5)) or "none"
        self._refuse(f"has no GPU kernel (categories: {kinds})", "profile with ProfilerActivity.CUDA, or XPU")

    def _refuse(self, problem: str, way_out: str) -> NoReturn:
        raise TraceError(f"trace {self._path} {problem}; {way_out}")


def _find_core(work: IntervalSet, steps: IntervalSet) -> tuple[int, int]:
    """Begin and end of the work, which is not empty, without what has wrong times and so is far from all other."""
    every = work | steps
    cuts = np.flatnonzero(every.starts[1:] - every.ends[:-1] > FAR_NS)
    begins = every.starts[np.concatenate(([0], cuts + 1))]
    ends = every.ends[np.concatenate((cuts, [every.ends.size - 1]))]
    busy = work.lengths_ns(begins, ends)
    in_steps = steps.lengths_ns(begins, ends) > 0
    first = last = int(busy.argmax())
    while True:
        length = int(ends[last] - begins[first])
        reach = max(FAR_NS, length * (FAR_FROM_STEPS if in_steps[first : last + 1].any() else FAR_FROM_WORK))
        before = int(begins[first] - ends[first - 1]) if first else reach + 1
        after = int(begins[last + 1] - ends[last]) if last + 1 < begins.size else reach + 1
        if min(before, after) > reach:
            break
        first, last = (first - 1, last) if before <= after else (first, last + 1)
    inside = int(busy[first : last + 1].sum())
    # if the steps are elsewhere, or the rest is much, all of it is work of the program
    if not in_steps[first : last + 1].any() and (in_steps.any() or int(busy.sum()) - inside > MAX_STRAY * inside):
        return int(work.starts[0]), int(work.ends[-1])
    return int(begins[first]), int(ends[last])


def _device_trace(name: str, device: _Device, base: int, ranks: Mapping[str, tuple[int, ...]]) -> DeviceTrace:
    groups = tuple(
        CommunicatorWork(
            key if key.ranks else replace(key, ranks=ranks.get(key.name, ())),
            work.intervals.times.shift(base),
            work.intervals.count,
            work.payload_bytes,
        )
        for key, work in sorted(device.groups.items(), key=lambda item: item[0].label)
        if work.intervals.count
    )
    computation = device.computation.times
    # an event may last no time at all
    kernels = device.computation.count * bool(computation.starts.size)
    kernels += sum(work.kernels for work in groups if work.active.starts.size)
    return DeviceTrace(name, computation.shift(base), device.copies.times.shift(base), groups, kernels)


def _configured_ranks(value: object) -> dict[str, tuple[int, ...]]:
    """Members of process groups by name, from a list or from the text of a Python list."""
    if isinstance(value, str) and len(value) <= MAX_CONFIG_BYTES:
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
    groups = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return {str(each.get("pg_name")): _ranks(each.get("ranks")) for each in groups}


def _nanoseconds(value: object) -> int | None:
    """Microseconds of a trace in whole nanoseconds; None if they make no sense."""
    if isinstance(value, str):
        exact = re.fullmatch(r"\s*([0-9]{1,20})(?:\.([0-9]{1,9}))?\s*", value)
        if exact:
            found = int(exact[1]) * 1000 + int(f"{exact[2] or '':0<3}"[:3])
            return found if found < LATEST_NS else None
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) not in (int, float) or not 0 <= value < LATEST_NS:  # type: ignore[operator]
        return None
    found = round(value * 1000)  # type: ignore[operator]
    return found if found < LATEST_NS else None


def _short(value: object) -> str | bytes:
    """The text of a value, or a digest of a long text."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 200 else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _payload(details: Mapping[str, Any]) -> int | None:
    """Bytes of a collective: its larger side, which is the whole buffer of AllGather, ReduceScatter and AllReduce."""
    size = DTYPE_BYTES.get(str(details.get("dtype")))
    counts = [details.get("In msg nelems"), details.get("Out msg nelems")]
    known = [count for value in counts if (count := _count(value, 2**50)) is not None]
    return max(known) * size if known and size else None


def _ranks(value: object) -> tuple[int, ...]:
    """Ranks in ascending order from a list or its text; empty if there are none, or if the profiler shortened them."""
    if isinstance(value, str) and len(value) <= MAX_RANKS_BYTES:
        try:
            value = ast.literal_eval(value) if re.fullmatch(r"\[[0-9, ]*\]", value) else None
        except (ValueError, SyntaxError, MemoryError):
            return ()
    if (
        not isinstance(value, list)
        or len(value) > MAX_RANKS_BYTES
        or not all(type(rank) is int and 0 <= rank < 2**31 for rank in value)
    ):
        return ()
    return tuple(sorted(value))


def _count(value: object, most: int = 2**31) -> int | None:
    """A whole number below `most`, also from its text; None if it is none."""
    if (isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value)) or (
        type(value) is float and 0 <= value < most and value.is_integer()
    ):
        value = int(value)
    return value if type(value) is int and 0 <= value < most else None
