"""Reads what the programs of nccl-tests print.

Source: NVIDIA/nccl-tests, src/util.cu and src/common.cu at a0b82b22 (version 2.19.6). The header line decides the
meaning of the columns, so older files (`error` for `#wrong`, no `root`) and files with `-C` (`cputime`), `-I` (four
columns of single iterations) and `-S` (a time stamp) are read as well. Times are microseconds per operation, rates GB/s
of 10^9 bytes. Lines may have a prefix of mpirun or srun. Host names and process ids are counted, not kept.
"""

from __future__ import annotations

import re
from pathlib import Path

from ibpulse.nccl.bounded_files import count_of, number_of, read_lines, refuse
from ibpulse.nccl.measurement import GRAPHS, IN_PLACE, OUT_OF_PLACE, BenchmarkRun, Measurement, RunPlan
from ibpulse.nccl.wire_factors import collective_of_program

TYPES = frozenset(("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"))
TYPES |= {"f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"}
MOST_ROWS = 100_000
MOST_RANKS = 1_000_000
_VERSION = re.compile(r"# nccl-tests version ([0-9.]{1,20})\b")
_PROGRAM = re.compile(r"# Collective test starting: (\S{1,200})")
_PLAN = re.compile(
    r"# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: \d+\(\w+\) warmup iters: (\d+) iters: (\d+)"
    r"(?: agg iters: (\d+))? validation: (\d+)(?: graph: (\d+))?"
)
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d+ on\s+(\S+) device")
_UNITS = re.compile(r"#\s+\(B\)\s+\(elements\)")


class _Reading:
    """What was found so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = self.program = ""
        self.columns: list[str] = []
        self.plan: RunPlan | None = None
        self.ranks: dict[int, set[int]] = {}
        self.hosts: dict[int, set[int]] = {}
        self.rows: list[Measurement] = []
        self.complete = self.graphs = False

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        if "#" in line:
            self._take_comment(number, line)
        words = line.split()
        place = next((at for at, word in enumerate(words) if word in TYPES), 0)
        is_row = place >= 2 and words[place - 1].isdecimal() and words[place - 2].isdecimal()
        # without its end, the last number may be cut off
        if is_row and line.endswith("\n"):
            self._take_row(number, words[place - 2 :])

    def _take_comment(self, number: int, line: str) -> None:
        if found := _VERSION.search(line):
            self.version = found[1]
        elif found := _PROGRAM.search(line):
            self.program = found[1]
        elif found := _PLAN.search(line):
            counts = [count_of(self.path, "the parameter", text or "1", number) for text in found.groups()]
            self.graphs = found[9] not in (None, "0")
            self.plan = None if self.graphs else RunPlan(counts[2], counts[3], *counts[4:8])
        elif found := _RANK.search(line):
            group = int(found[2] or 0)
            self.ranks.setdefault(group, set()).add(int(found[1]))
            # only to count the nodes
            self.hosts.setdefault(group, set()).add(hash(found[3]))
            if sum(map(len, self.ranks.values())) > MOST_RANKS:
                refuse(self.path, f"lists more than {MOST_RANKS} ranks", "it is no log of nccl-tests", number)
        elif _UNITS.search(line) and not ("(us)" in line and "(GB/s)" in line):
            refuse(self.path, "has no times in us and rates in GB/s", "use nccl-tests 2.0 or newer", number)
        elif "Avg bus bandwidth" in line:
            self.complete = True
        else:
            words = line.partition("#")[2].split()
            if words[:3] == ["size", "count", "type"]:
                self.columns = words

    def _take_row(self, number: int, words: list[str]) -> None:
        if not self.columns:
            refuse(self.path, "has a row before its header", "keep the lines that begin with #", number)
        if len(self.rows) >= MOST_ROWS:
            refuse(self.path, f"has more than {MOST_ROWS} rows", "split it", number)
        names = [name for name in self.columns if name != "timestamp"]
        timing = next((at for at, name in enumerate(names) if name in ("time", "cputime")), len(names))
        half = (len(names) - timing) // 2
        for begin, placement in ((timing, OUT_OF_PLACE), (timing + half, IN_PLACE)):
            # a replayed trace has blanks in place of the first half
            blank = len(words) in (timing + half, timing + half + 2)
            if blank and placement == OUT_OF_PLACE:
                continue
            values = words[timing : timing + half] if blank else words[begin : begin + half]
            if len(values) < half or half < 3:
                refuse(
                    self.path, f"has a row of {len(words)} columns, not {len(names)}", "remove the broken line", number
                )
            self.rows.append(self._measurement(number, words[0], placement, values, names[timing : timing + half]))

    def _measurement(self, number: int, size: str, placement: str, words: list[str], names: list[str]) -> Measurement:
        values = {
            name: number_of(self.path, f"the {name}", word, number)
            for name, word in zip(names, words, strict=True)
            if name in ("time", "algbw", "busbw", "#wrong", "error")
        }
        plan = self.plan
        return Measurement(
            collective=collective_of_program(self.program),
            size_bytes=count_of(self.path, "the size", size, number),
            # time of the CPU is not that of the operation
            seconds=scaled(values.get("time"), 1e-6),
            algorithm_bytes_per_second=scaled(values.get("algbw"), 1e9),
            bus_bytes_per_second=scaled(values.get("busbw"), 1e9),
            placement=placement,
            wrong=values.get("#wrong"),
            operations=plan.iterations * plan.aggregated if plan else None,
        )

    def result(self) -> BenchmarkRun:
        """The run.

        Raises:
            BenchmarkError: there is no row.
        """
        if not self.rows:
            refuse(self.path, "has no row with results", "give the output of a program of nccl-tests")
        ranks = {len(each) for each in self.ranks.values()}
        nodes = {len(each) for each in self.hosts.values()}
        remarks = (
            [] if self.complete else ["the file ends before its summary: the run was interrupted, or copied in part"]
        )
        if self.graphs:
            remarks.append(GRAPHS)
        if len(ranks) > 1 or len(nodes) > 1:
            remarks.append("groups of different size ran in parallel; give --ranks and --nodes of one of them")
        return BenchmarkRun(
            self.path,
            "nccl-tests text",
            tuple(self.rows),
            version=self.version,
            ranks=ranks.pop() if len(ranks) == 1 else None,
            nodes=nodes.pop() if len(nodes) == 1 else None,
            groups=max(1, len(self.ranks)),
            plan=self.plan,
            complete=self.complete,
            remarks=tuple(remarks),
        )


def scaled(value: float | None, size: float) -> float | None:
    """A value in SI units."""
    return None if value is None else value * size


def read_text(path: Path) -> BenchmarkRun:
    """The run in a file.

    Raises:
        BenchmarkError: it is not an output of nccl-tests, or a line of it is invalid.
    """
    reading = _Reading(path)
    for number, line in read_lines(path):
        reading.take(number, line)
    return reading.result()
