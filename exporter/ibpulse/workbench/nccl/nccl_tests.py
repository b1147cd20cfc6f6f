"""Reads the output of nccl-tests and rccl-tests, and the JSON files of nccl-tests (`-J FILE`).

Source: NVIDIA/nccl-tests, src/util.cu and src/common.cu at a0b82b22 (version 2.19.6), and ROCm/rccl-tests,
src/common.cpp at 233482bd. Times are microseconds per operation, rates GB/s of 10^9 bytes. Host names, process ids,
environment and arguments, which may hold secrets, are counted or skipped, not kept; of the arguments only the name of
the program is used.

The header line of the text decides the meaning of the columns: older files (`error` for `#wrong`, no `root`, no `redop`
of AllGather), files with `-C` (`cputime`), `-I` (four columns of single iterations) and `-S` (a time stamp), and those
of rccl-tests with one placement (`-O`) or with algorithms (`-M`). Lines may have a prefix of mpirun, srun, torchrun or
kubectl. A row that a message interrupts is left out and counted. JSON is read in versions 1 to 3 of the file; its
devices list the first GPU of each process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from ibpulse.base.errors import BenchmarkError
from ibpulse.base.text import count_text
from ibpulse.workbench.nccl.results import (
    GRAPHS,
    IN_PLACE,
    OUT_OF_PLACE,
    SIZES_DIFFER,
    BenchmarkRun,
    Measurement,
    RunPlan,
    collective_of_program,
    count_of,
    group_sizes,
    left_out,
    number_of,
    parse_document,
    read_lines,
    refuse,
    without_rows,
)

TYPES = frozenset(("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"))
TYPES |= {"f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "char", "int"}
MAX_ROWS = 100_000
MAX_RANKS = 1_000_000
_NCCL = re.compile(r"# nccl-tests version ([0-9.]{1,20})\b")
_RCCL = re.compile(r"\brccl-tests: Version ([\w.:+-]{1,60})")
_PROGRAM = re.compile(r"Collective test starting: (\S{1,200})")
_PLAN = re.compile(
    r"nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: \d+\(\w+\) warmup iters: (\d+) iters: (\d+)"
    r"(?: agg iters: (\d+))? validation: (\d+)(?: graph: (\d+))?"
)
_RANK = re.compile(r"\bRank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d+ on\s+(\S+) device")
_HEADER = re.compile(r"\bsize\s+count\s+type\b.*")
_UNNAMED_UNITS = re.compile(r"\bbytes\s+N\s+type\b")
_UNITS = re.compile(r"\(B\)\s+\(elements\)")
_PLACES = re.compile(r"(?<![\w-])(?:out-of-place|in-place)(?![\w-])")
# Open MPI repeats its tag within a line whenever the program flushes
_TAG = re.compile(r"\[[^\[\]\s]{1,80},\d{1,9}\]<std\w{3}>:?")
_ROW = re.compile(r"(?<![\w.])(\d{1,20}+)\s++\d{1,20}+\s++([a-z]\w*+)(.*)", re.DOTALL)
_BLANK_HALF = re.compile(r"\s{20,}+(?=\S)")
_VALUE = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?\*?|inf|nan)|N/A", re.IGNORECASE)
_WHOLE = re.compile(r"-?\d+")
COLUMN_UNITS = {"time": 1e-6, "algbw": 1e9, "busbw": 1e9, "#wrong": 1.0, "error": 1.0}
_TIMES = ("time", "cputime")
_AFTER_HALVES = ("timestamp", "algo", "proto", "nchannels")


@dataclass(slots=True)
class _Run:
    """The content of one run, or of several that wrote at the same time."""

    version: str = ""
    form: str = "nccl-tests text"
    program: str = ""
    plan: RunPlan | None = None
    gpus_per_process: int | None = None
    graphs: bool = False
    rows: list[Measurement] = field(default_factory=list)
    begun: int = 0
    ended: int = 0
    broken: int = 0
    listed: Counter[tuple[int, int]] = field(default_factory=Counter)
    # by group and rank, only to count the nodes
    hosts: dict[tuple[int, int], int] = field(default_factory=dict)

    def absorb(self, other: _Run) -> None:
        """Take in a run that began before this one ended."""
        self.rows += other.rows
        self.begun += other.begun
        self.ended += other.ended
        self.broken += other.broken
        self.listed += other.listed
        self.hosts |= other.hosts

    @property
    def mixed(self) -> int:
        """The number of runs whose rows are mixed, 1 for a single run."""
        sizes = Counter((row.size_bytes, row.placement) for row in self.rows)
        several = max(self.begun, *self.listed.values(), 1)
        return several if self.ended > 1 or max(sizes.values()) > 1 else 1

    def result(self, path: Path) -> BenchmarkRun:
        """The run; it has a row."""
        runs = self.mixed
        ranks, nodes, groups = group_sizes((group, host) for (group, _), host in self.hosts.items())
        complete = self.ended >= runs
        remarks = [] if complete else ["the file ends before its summary: the run was interrupted, or copied in part"]
        remarks += left_out(self.broken, "row")
        if self.graphs:
            remarks.append(GRAPHS)
        if len(ranks) > 1 or len(nodes) > 1:
            remarks.append(SIZES_DIFFER)
        if runs > 1:
            alone = len(ranks) == 1 and ranks == {self.gpus_per_process}
            nodes = {1} if alone else set()
            remarks.append(_mixed_remark(runs, max(ranks, default=0), alone=alone))
        return BenchmarkRun(
            path,
            self.form,
            tuple(self.rows),
            version=self.version,
            ranks=ranks.pop() if len(ranks) == 1 else None,
            nodes=nodes.pop() if len(nodes) == 1 else None,
            groups=max(1, groups),
            plan=self.plan if runs == 1 else None,
            complete=complete,
            remarks=tuple(remarks),
        )


def _mixed_remark(runs: int, ranks: int, *, alone: bool) -> str:
    mixed = f"the rows of {runs} runs of {count_text(ranks, 'rank')} each are mixed in this file"
    if alone:
        return f"{mixed}: the program was built without MPI, so each process measured alone; build it with MPI=1"
    return f"{mixed}; give --nodes of one of them, and write each run to a file of its own"


class _Reading:
    """The runs found so far, and the columns of the newest header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = [_Run()]
        self.columns: list[str] = []
        self.places: list[str] = []
        self.row_count = 0
        self.first_fault: BenchmarkError | None = None

    @property
    def run(self) -> _Run:
        """The newest run."""
        return self.runs[-1]

    def _begin(self) -> _Run:
        """The run that a line before the rows belongs to."""
        if self.run.rows or self.run.ended:
            self.runs.append(_Run())
        return self.run

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        line = _TAG.sub(" ", line)
        if self._take_setting(number, line) or self._take_frame(number, line):
            return
        found = _ROW.search(line)
        if found is None:
            return
        try:
            if found[2] in TYPES:
                self._take_row(number, found, whole=line.endswith("\n"))
            elif self.columns and not line[: found.start()].strip():
                refuse(self.path, "has a row whose type is not known", "remove it", number)
        except BenchmarkError as error:
            self.run.broken += 1
            self.first_fault = self.first_fault or error
        if self.row_count > MAX_ROWS:
            refuse(self.path, f"has more than {MAX_ROWS} rows", "split it", number)

    def _take_setting(self, number: int, line: str) -> bool:
        """Whether a line says how a run was made."""
        if found := _NCCL.search(line):
            self._begin().version = found[1]
        elif found := _RCCL.search(line):
            self.run.form, self.run.version = "rccl-tests text", found[1]
        elif found := _PROGRAM.search(line):
            self._begin().program = found[1]
        elif found := _PLAN.search(line):
            self._take_plan(number, found)
        elif found := _RANK.search(line):
            self._take_rank(number, found)
        else:
            return False
        return True

    def _take_frame(self, number: int, line: str) -> bool:
        """Whether a line is above or below the rows."""
        if found := _HEADER.search(line):
            self.columns = found[0].split()
        elif _UNNAMED_UNITS.search(line):
            refuse(self.path, "has times without a unit", "use nccl-tests 2.0 or newer", number)
        elif _UNITS.search(line):
            if not ("(us)" in line and "(GB/s)" in line):
                refuse(self.path, "has no times in us and rates in GB/s", "use nccl-tests 2.0 or newer", number)
        elif "Avg bus bandwidth" in line:
            self.run.ended += 1
        elif places := _PLACES.findall(line):
            self.places = places
        else:
            return False
        return True

    def _take_plan(self, number: int, found: re.Match[str]) -> None:
        run = self._begin()
        counts = [count_of(self.path, "the parameter", text or "1", number) for text in found.groups()]
        run.begun += 1
        run.graphs = found[9] not in (None, "0")
        run.plan = None if run.graphs else RunPlan(counts[2], counts[3], *counts[4:8])
        run.gpus_per_process = counts[0] * counts[1]

    def _take_rank(self, number: int, found: re.Match[str]) -> None:
        run, rank = self._begin(), (int(found[2] or 0), int(found[1]))
        run.listed[rank] += 1
        run.hosts[rank] = hash(found[3])
        if len(run.hosts) > MAX_RANKS:
            refuse(self.path, f"lists more than {MAX_RANKS} ranks", "it is no log of nccl-tests", number)

    def _take_row(self, number: int, found: re.Match[str], *, whole: bool) -> None:
        """Read a row.

        Raises:
            BenchmarkError: it cannot be read.
        """
        if not self.columns:
            refuse(self.path, "has a row before its header", "keep the lines that begin with #", number)
        if not whole:
            # the last number may be cut off
            refuse(self.path, "ends within a row", "give the whole file", number)
        words = found[3].split()
        if words and words[0].isalpha() and not _VALUE.fullmatch(words[0]):
            del words[0]
        if "root" in self.columns:
            if not words or not _WHOLE.fullmatch(words[0]):
                self._interrupted(number)
            del words[0]
        halves = self._columns_of_halves(number)
        values = list(takewhile(_VALUE.fullmatch, words))
        needed, after = sum(map(len, halves.values())), any(name in self.columns for name in _AFTER_HALVES)
        if len(halves) == 2 and len(values) == needed // 2:
            # a replayed trace has blanks in place of the first half
            halves.pop(OUT_OF_PLACE if _BLANK_HALF.search(found[3]) else IN_PLACE)
        elif len(values) < needed or (len(values) > needed and not after):
            self._interrupted(number)
        rows = []
        for placement, names in halves.items():
            rows.append(self._measurement(number, found[1], placement, dict(zip(names, values, strict=False))))
            del values[: len(names)]
        self.run.rows += rows
        self.row_count += len(rows)

    def _interrupted(self, number: int) -> None:
        refuse(self.path, "has a row that is not whole", "keep messages of other programs out of the file", number)

    def _columns_of_halves(self, number: int) -> dict[str, list[str]]:
        """The columns of each placement, in order."""
        begins = [at for at, name in enumerate(self.columns) if name in _TIMES]
        after = (at for at, name in enumerate(self.columns) if name in _AFTER_HALVES)
        ends = [*begins[1:], next(after, len(self.columns))]
        places: Sequence[str] = (OUT_OF_PLACE, IN_PLACE)
        if len(begins) == 1:
            places = self.places if len(self.places) == 1 else ("",)
        halves = [self.columns[begin:end] for begin, end in zip(begins, ends, strict=True)] if begins else []
        if len(places) != len(halves) or any(len(half) < 3 for half in halves):
            refuse(self.path, "has a row below an unknown header", "keep the lines that begin with #", number)
        return dict(zip(places, halves, strict=True))

    def _measurement(self, number: int, size: str, placement: str, words: dict[str, str]) -> Measurement:
        values = {
            name: number_of(self.path, f"the {name}", words[name].rstrip("*"), number, unit)
            for name, unit in COLUMN_UNITS.items()
            if name in words
        }
        plan = self.run.plan
        return Measurement(
            collective=collective_of_program(self.run.program),
            size_bytes=count_of(self.path, "the size", size, number),
            # time of the CPU is not that of the operation
            seconds=values.get("time"),
            algorithm_bytes_per_second=values.get("algbw"),
            bus_bytes_per_second=values.get("busbw"),
            placement=placement,
            wrong=values.get("#wrong"),
            operations=plan.iterations * plan.aggregated if plan else None,
        )

    def results(self) -> tuple[BenchmarkRun, ...]:
        """The runs that have a row."""
        runs: list[_Run] = []
        for run in self.runs:
            # a summary more than runs belongs to the run before, which was still going on
            if runs and runs[-1].ended < runs[-1].begun and run.ended > run.begun:
                runs[-1].absorb(run)
            else:
                runs.append(run)
        found = tuple(run.result(self.path) for run in runs if run.rows)
        if not found and self.first_fault:
            raise self.first_fault
        return without_rows(found, sum(not run.rows and bool(run.begun or run.broken) for run in runs), "run")


def read_text(path: Path) -> tuple[BenchmarkRun, ...]:
    """The runs in a file in their order; none if it is not an output of such a program."""
    reading = _Reading(path)
    for number, line in read_lines(path):
        reading.take(number, line)
    return reading.results()


NEWEST_VERSION = 3
_PLAN_KEYS = ("minimum_bytes", "maximum_bytes", "warmup_iters", "iterations", "aggregated_iterations", "validation")
_HALVES = (("out_of_place", OUT_OF_PLACE), ("in_place", IN_PLACE))


def read_json(path: Path, text: str) -> BenchmarkRun:
    """The run in the text of a file."""
    document, remarks = parse_document(path, text)
    if not isinstance(document, dict) or "version" not in document or "results" not in document:
        refuse(path, "is of no known benchmark", "see `ibpulse nccl --help` for the formats that are read")
    version = count_of(path, "the version", document.get("version"), least=1)
    if version > NEWEST_VERSION:
        remarks.append(f"version {version} of the format is newer than {NEWEST_VERSION}, the newest known here")
    if "end_time" not in document and not remarks:
        remarks.append("the file has no end_time: the run was interrupted")
    config = _mapping(path, "config", document.get("config", {}))
    rows = document.get("results")
    if not isinstance(rows, list) or not rows:
        refuse(path, "has no results", "the run ended before its first size")
    if len(rows) > MAX_ROWS:
        refuse(path, f"has more than {MAX_ROWS} results", "split the run")
    plan = None
    if config.keys() >= {*_PLAN_KEYS}:
        plan = RunPlan(*(count_of(path, name, config[name]) for name in _PLAN_KEYS))
    if count_of(path, "graph", config.get("graph", 0)):
        plan = None
        remarks.append(GRAPHS)
    found = _rows(path, document, rows, plan, remarks)
    ranks, nodes, groups = _placement(path, config, remarks)
    return BenchmarkRun(
        path,
        "nccl-tests JSON",
        tuple(found),
        version=str(version),
        ranks=ranks,
        nodes=nodes,
        groups=groups,
        plan=plan,
        complete="end_time" in document,
        remarks=tuple(remarks),
    )


def _rows(
    path: Path, document: Mapping[str, Any], rows: list[Any], plan: RunPlan | None, remarks: list[str]
) -> list[Measurement]:
    """The placements of all rows that are whole."""
    found: list[Measurement] = []
    faults: list[BenchmarkError] = []
    args = document.get("args")
    program = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
    for row in rows:
        try:
            found += _measurements(path, _mapping(path, "a result", row), collective_of_program(program), plan)
        except BenchmarkError as error:
            faults.append(error)
    remarks += left_out(len(faults), "result")
    if not found and faults:
        raise faults[0]
    if not found:
        refuse(path, "has no result with a time", "the run ended before its first size")
    return found


def _mapping(path: Path, name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        refuse(path, f"has {name} that is not an object", "give the file as nccl-tests wrote it")
    return value


def _measurements(path: Path, row: Mapping[str, Any], collective: str, plan: RunPlan | None) -> list[Measurement]:
    """The placements of one row that were measured; a null is left out."""
    found = []
    for key, placement in _HALVES:
        if row.get(key) is None:
            continue
        values = _mapping(path, key, row[key])
        found.append(
            Measurement(
                collective=collective,
                size_bytes=count_of(path, "the size", row.get("size")),
                # cpu_time is not the time of the operation
                seconds=number_of(path, "time", values.get("time"), unit=1e-6),
                algorithm_bytes_per_second=number_of(path, "alg_bw", values.get("alg_bw"), unit=1e9),
                bus_bytes_per_second=number_of(path, "bus_bw", values.get("bus_bw"), unit=1e9),
                placement=placement,
                wrong=number_of(path, "nwrong", values.get("nwrong")),
                operations=plan.iterations * plan.aggregated if plan else None,
            )
        )
    return found


def _placement(path: Path, config: Mapping[str, Any], remarks: list[str]) -> tuple[int | None, int | None, int]:
    """Ranks and nodes of one group, and the number of groups."""
    devices = config.get("devices")
    if not isinstance(devices, list) or not devices or "nthreads" not in config or "ngpus" not in config:
        return None, None, 1
    threads, gpus = (count_of(path, name, config[name], least=1, most=MAX_RANKS) for name in ("nthreads", "ngpus"))
    processes, nodes, groups = group_sizes(
        # the names of hosts are only counted
        (count_of(path, "group", _mapping(path, "a device", each).get("group", 0)), hash(str(each.get("hostname"))))
        for each in devices
    )
    if len(processes) > 1 or len(nodes) > 1:
        remarks.append(SIZES_DIFFER)
        return None, None, groups
    return processes.pop() * threads * gpus, nodes.pop(), groups
