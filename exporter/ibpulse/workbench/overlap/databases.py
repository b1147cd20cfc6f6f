"""Reads SQLite exports of Nsight Systems and rocpd databases of ROCm as events of Kineto traces, from untrusted files.

Nsight Systems: CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and NVTX_EVENTS, whose times begin at utcEpochNs of
TARGET_INFO_SESSION_START_TIME; the process is in bits 24 to 47 of a global identifier (NVIDIA's export documentation
of 2021.5, and exports of 2024.6 with schema 3.16). rocpd: the tables of schema 3 (ROCm/rocprofiler-sdk
source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql, lib/output/generateRocpd.cpp), whose times begin at no known time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import orjson

from ibpulse.base.errors import TraceError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import count_text, show
from ibpulse.workbench.overlap.events import MAX_EVENT_BYTES, Event

Row = tuple[Any, ...]

REPORTS = (".nsys-rep", ".qdrep")
KERNELS, NVTX, GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
START = "TARGET_INFO_SESSION_START_TIME"
DISPATCHES = "rocpd_kernel_dispatch"
RANGES = (59, 60)
"""Of NVTX: pushed and popped, started and ended."""
STEP = re.compile(
    r"(ProfilerStep#|(?:(?:global|train|training)[ _-])?(?:step|iteration|iter)[ _:#=-]*)([0-9]{1,9})", re.I
)
MAX_STEPS, MAX_NAME = 100_000, 2000
FIRST_GPU = (1 << 22) + 2
"""Number of the first GPU as a process of a written trace, above those of Linux and of the wire."""
_MAGIC = b"SQLite format 3\0"
# a row takes about a byte of the file for each; a cycle in a damaged file would take forever
MIN_OPERATIONS, OPERATIONS_PER_BYTE, OPERATIONS_AT_ONCE = 100_000_000, 8, 100_000
_AGAIN = "export it again"


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite. A pipe is not, and is not read."""
    if not path.is_file():
        return False
    with ForeignFile(path, TraceError, "trace").opened() as file:
        return file.read(len(_MAGIC)) == _MAGIC


class TraceDatabase:
    """A trace as events, each with the number of its process. `base_ns` is the time at which its times begin.

    Tables are read, not the views in front of them, which may compute anything.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base_ns = 0
        self._file = ForeignFile(path, TraceError, "trace")
        self._graphs = 0
        self._step = ""
        self._left_out = 0

    def notes(self) -> Iterator[str]:
        """Sentences about what is missing, once all events were read."""
        if self._graphs:
            yield (
                f"{count_text(self._graphs, 'CUDA graph')} recorded as a whole: the kernels in them are missing; "
                "profile with --cuda-graph-trace=node"
            )
        if self._step:
            yield f"steps are the ranges named like {show(self._step)}"
        if self._left_out:
            yield f"{count_text(self._left_out, 'step')} left out: only the first {MAX_STEPS:,} count"

    def events(self) -> Iterator[tuple[int, Event]]:
        """Kernels, copies, and the steps of each process with the name that the profiler of PyTorch gives them."""
        with self._opened() as tables:
            for process, kind, device, stream, start, end, name in tables.work():
                yield process, _event(kind, name, start, end, device, stream)
            found, self._left_out = _find_steps(tables.ranges(only_steps=True))
            for process, name, steps in found:
                self._step = self._step or f"{name}{steps[0][0]}"
                for number, start, end in steps:
                    yield process, _event("user_annotation", f"ProfilerStep#{number}", start, end, process, 0)

    def copy_with(self, events: Iterable[bytes], out: IO[bytes]) -> None:
        """Write the work and the ranges as a trace of events, behind the given ones. GPUs and CPUs are processes."""
        gpus: dict[tuple[int, object], int] = {}
        with self._opened() as tables:
            out.write(b'{"baseTimeNanoseconds":%d,"traceEvents":[' % self.base_ns)
            for event in events:
                out.write(event + b",\n")
            for process, kind, device, stream, start, end, name in tables.work():
                gpu = gpus.setdefault((process, device), FIRST_GPU + len(gpus))
                out.write(_line(kind, name, start, end, gpu, stream))
            for process, thread, start, end, name in tables.ranges():
                out.write(_line("user_annotation", name, start, end, process, thread))
        named = ((f"GPU {device}, process {process}", gpu) for (process, device), gpu in gpus.items())
        out.write(b",\n".join(_name_process(name, gpu) for name, gpu in named) + b"]}\n")

    @contextmanager
    def _opened(self) -> Iterator[_Nsight | _Rocpd]:
        size = self.path.stat().st_size
        left = (MIN_OPERATIONS + OPERATIONS_PER_BYTE * size) // OPERATIONS_AT_ONCE

        def spend() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        if any(Path(f"{self.path}{suffix}").exists() for suffix in ("-wal", "-journal")):
            self._file.refuse("is not complete: the journal next to it has the rest", "wait until its writer has ended")
        address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                connection.execute("PRAGMA trusted_schema=OFF")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_EVENT_BYTES)
                connection.text_factory = lambda text: text.decode("utf-8", "replace")
                connection.set_progress_handler(spend, OPERATIONS_AT_ONCE)
                yield self._tables(connection)
        # an error of SQLite that quotes bytes of a damaged file is one of the decoder
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if left < 0:
                self._file.refuse("takes too long to read for its size: it is damaged", _AGAIN)
            self._file.refuse(f"cannot be read: {show(str(error))}", _AGAIN)

    def _tables(self, connection: sqlite3.Connection) -> _Nsight | _Rocpd:
        """The tables of whichever program wrote the file."""
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchmany(10_000)
        names = {name for name, sql in found if isinstance(sql, str) and sql[:13].upper() == "CREATE TABLE "}
        if KERNELS in names:
            nsight = _Nsight(connection, names)
            self.base_ns, self._graphs = nsight.start_ns(), nsight.graphs()
            return nsight
        kinds = [name.removeprefix(DISPATCHES) for name in sorted(names) if name.startswith(DISPATCHES)]
        kinds = [kind for kind in kinds if re.fullmatch(r"[_0-9a-f]{0,80}", kind)]
        if not kinds:
            way = "use nsys --trace=cuda --cuda-graph-trace=node, or rocprofv3 --kernel-trace --output-format rocpd"
            self._file.refuse("has no table of GPU kernels", way)
        if not all("start" in _columns(connection, DISPATCHES + kind) for kind in kinds):
            self._file.refuse(
                "has times in a table of their own, later than schema 3 of rocpd",
                "use a rocprofv3 that writes schema 3",
            )
        return _Rocpd(connection, names, kinds)


class _Nsight:
    """The tables of an export of Nsight Systems. Tables and columns that have nothing to say may be missing."""

    def __init__(self, connection: sqlite3.Connection, names: set[str]) -> None:
        self._connection, self._names = connection, names

    def start_ns(self) -> int:
        """The time at which the times begin, 0 if unknown."""
        found = [*self._select(START, "utcEpochNs", "LIMIT 2")]
        return found[0][0] if len(found) == 1 and type(found[0][0]) is int and 0 < found[0][0] < 2**62 else 0

    def graphs(self) -> int:
        """The number of CUDA graphs that are recorded as a whole."""
        if GRAPHS not in self._names:
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {GRAPHS}").fetchone()[0])

    def work(self) -> Iterator[Row]:
        """Process, kind, device, stream, start, end and name of kernels and copies."""
        strings = "LEFT JOIN StringIds s ON s.id = t.demangledName" if "StringIds" in self._names else ""
        for table, kind in (
            (KERNELS, "kernel"),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy"),
            ("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset"),
        ):
            name = f"substr(s.value, 1, {MAX_NAME})" if kind == "kernel" and strings else "NULL"
            join = strings if kind == "kernel" else ""
            for *times, process, found in self._select(table, "deviceId streamId start end globalPid", join, name):
                yield _process(process), kind, *times, found or kind

    def ranges(self, only_steps: bool = False) -> Iterator[Row]:
        """Process, thread, start, end and name of NVTX ranges that have ended, or of those that may be steps."""
        strings = "LEFT JOIN StringIds s ON s.id = t.textId" if "StringIds" in self._names else ""
        name = f"substr(coalesce(t.text, {'s.value' if strings else 'NULL'}), 1, {MAX_NAME})"
        where = f"{strings} WHERE t.eventType IN {RANGES} AND t.end IS NOT NULL{_may_be_step(name) * only_steps}"
        for thread, start, end, found in self._select(NVTX, "globalTid start end", where, name):
            yield _process(thread), thread % (1 << 24) if type(thread) is int else 0, start, end, found or ""

    def _select(self, table: str, columns: str, behind: str = "", more: str = "") -> Iterator[Row]:
        """The rows of a table: its columns, NULL if it lacks them, and what `more` selects; none without a table."""
        if table not in self._names:
            return iter(())
        known = _columns(self._connection, table)
        chosen = [f't."{each}"' if each in known else "NULL" for each in columns.split()] + [more] * bool(more)
        return self._connection.execute(f"SELECT {', '.join(chosen)} FROM {table} t {behind}")


class _Rocpd:
    """The tables of a rocpd database: one set for each process, with a suffix of its own."""

    def __init__(self, connection: sqlite3.Connection, names: set[str], kinds: list[str]) -> None:
        self._connection, self._names, self._kinds = connection, names, kinds

    def work(self) -> Iterator[Row]:
        """As `_Nsight.work`. A copy is work of the GPU that it writes to, or else of the one that it reads."""
        kernel = (
            "SELECT t.pid, 'kernel', coalesce(a.type_index, t.agent_id), t.stream_id, t.start, t.end, "
            f"substr(coalesce(nullif(n.display_name, ''), n.kernel_name), 1, {MAX_NAME}) FROM {DISPATCHES}%s t "
            "LEFT JOIN rocpd_info_agent%s a ON a.id = t.agent_id "
            "LEFT JOIN rocpd_info_kernel_symbol%s n ON n.id = t.kernel_id"
        )
        copy = (
            "SELECT t.pid, 'gpu_memcpy', CASE d.type WHEN 'GPU' THEN d.type_index ELSE s.type_index END, t.stream_id, "
            "t.start, t.end, 'copy' FROM rocpd_memory_copy%s t LEFT JOIN rocpd_info_agent%s d ON d.id = t.dst_agent_id "
            "LEFT JOIN rocpd_info_agent%s s ON s.id = t.src_agent_id"
        )
        for process, *rest, name in self._each(kernel, DISPATCHES, "rocpd_info_agent", "rocpd_info_kernel_symbol"):
            yield _whole(process), *rest, name or ""
        for process, *rest in self._each(copy, "rocpd_memory_copy", "rocpd_info_agent", "rocpd_info_agent"):
            yield _whole(process), *rest

    def ranges(self, only_steps: bool = False) -> Iterator[Row]:
        """As `_Nsight.ranges`, of roctx."""
        ranges = (
            f"SELECT t.pid, t.tid, t.start, t.end, substr(e.extdata, 1, {MAX_NAME}) FROM rocpd_region%s t "
            "JOIN rocpd_event%s e ON e.id = t.event_id WHERE e.extdata LIKE '%%\"message\"%%'"
            f"{_may_be_step('e.extdata') * only_steps}"
        )
        for process, thread, start, end, about in self._each(ranges, "rocpd_region", "rocpd_event"):
            try:
                message = orjson.loads(about)["message"]
            except (ValueError, KeyError, TypeError):
                continue
            yield _whole(process), _whole(thread), start, end, message if isinstance(message, str) else ""

    def _each(self, query: str, *tables: str) -> Iterator[Row]:
        for kind in self._kinds:
            if all(f"{table}{kind}" in self._names for table in tables):
                yield from self._connection.execute(query % ((kind,) * len(tables)))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _may_be_step(name: str) -> str:
    """A condition that leaves most names out before they become values of Python. In LIKE, %% is the same as %."""
    return f" AND ({name} LIKE '%%step%%' OR {name} LIKE '%%iter%%')"


def _whole(value: object) -> int:
    return value if type(value) is int else 0


def _process(identifier: object) -> int:
    return _whole(identifier) >> 24 & 0xFFFFFF


def _find_steps(ranges: Iterable[Row]) -> tuple[list[tuple[int, str, list[Row]]], int]:
    """Each process with the name of its steps, and number, begin and end of each; and how many ranges are too many.

    Ranges that are named step, iteration or iter, and a number, are steps. Of several such names, and of several
    threads, those that last longest count.
    """
    found: dict[tuple[int, object, str], list[Row]] = {}
    count = 0
    for process, thread, start, end, name in ranges:
        step = STEP.fullmatch(name.strip()) if isinstance(name, str) else None
        if step and type(start) is int and type(end) is int:
            count += 1
            if count > MAX_STEPS:
                continue
            found.setdefault((process, thread, step[1]), []).append((int(step[2]), start, end))
    longest: dict[int, tuple[int, str, list[Row]]] = {}
    for (process, _, name), steps in found.items():
        lasts = sum(end - start for _, start, end in steps)
        if process not in longest or lasts > longest[process][0]:
            longest[process] = lasts, name, steps
    chosen = [(process, name, steps) for process, (_, name, steps) in longest.items()]
    return chosen, max(0, count - MAX_STEPS)


def _event(kind: object, name: object, start: object, end: object, pid: object, tid: object) -> Event:
    about = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid}
    if type(start) is not int or type(end) is not int:
        return {**about, "ts": None, "dur": None}
    return {**about, "ts": _microseconds(start), "dur": _microseconds(end - start)}


def _microseconds(time_ns: int) -> str | None:
    """The unit of the format, to the nanosecond; None if it has no such time."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}" if time_ns >= 0 else None


def _line(*about: object) -> bytes:
    """An event as JSON, and a comma; empty without sensible times."""
    event = _event(*about)
    if event["ts"] is None or event["dur"] is None:
        return b""
    times = {key: orjson.Fragment(event[key]) for key in ("ts", "dur")}
    return orjson.dumps({**event, **times}, default=repr) + b",\n"


def _name_process(name: str, number: int) -> bytes:
    return orjson.dumps({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}})
