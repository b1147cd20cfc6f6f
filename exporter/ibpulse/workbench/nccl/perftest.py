"""Reads what the bandwidth tests of perftest print, and their JSON files (`ib_write_bw --out_json`).

Source: linux-rdma/perftest, src/perftest_parameters.c at 00b55b66 and src/perftest_parameters.h at 9d86b341. Text names
the unit of its bandwidth; `MB/sec` are 2^20 bytes, as are `MiB/sec`. JSON does not: it is MiB/s, or Gb/s with
`--report_gbits`. Without a given unit, it follows from `MsgSize` times `MsgRate` (10^6 messages per second), which is
the same bandwidth; the two units differ by a factor of 119. Some versions write JSON without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ibpulse.base.errors import BenchmarkError
from ibpulse.base.text import escape_controls
from ibpulse.workbench.nccl.bounded_files import count_of, number_of, parse_document, read_lines, refuse
from ibpulse.workbench.nccl.measurement import BenchmarkRun, Measurement, left_out, without_rows

UNITS = {"MiB/s": 2.0**20, "Gb/s": 1e9 / 8}
"""Bytes per second of the units that perftest writes."""
AGREEMENT = 0.05
MOST_ROWS = 10_000
_LINKS = {"IB": "InfiniBand", "Ethernet": "Ethernet"}
_TEXT_UNITS = {"MB/sec": "MiB/s", "MiB/sec": "MiB/s", "Gb/sec": "Gb/s"}
_COLUMN = re.compile(r"#?[A-Za-z_]\w*(?: [A-Za-z0-9]+)*(?:\[[^\]]*\])?")
_NUMBERS = re.compile(r"\s*\d+(?:\s+\d+(?:\.\d+)?)+\s*")
_TITLE = re.compile(r"^\s*(\w[\w /+-]{0,70}\bTest)\s*$")
_FACTS = re.compile(r"(Dual-port|Device|Mtu|Link type)\s*:\s*(\w+)")
_PLAIN = {"Dual-port": "Dual_port", "Link type": "Link_type"}


def read_perftest(path: Path, text: str, unit: str = "") -> BenchmarkRun:
    """The bandwidth in a JSON file; `unit` is a key of `UNITS`, or empty to infer it.

    Raises:
        BenchmarkError: it is no such file, it has no bandwidth, or its unit is unknown.
    """
    document, remarks = parse_document(path, text)
    info, results = (document.get("test_info"), _results(document)) if isinstance(document, dict) else (None, None)
    if not isinstance(info, dict) or not isinstance(results, dict):
        refuse(path, "has no test_info with results", "give a file that perftest wrote with --out_json")
    row = _measurement(path, results, _unit(path, results, unit, remarks))
    return _run(path, "perftest JSON", info, (row,), remarks)


def _results(document: Mapping[str, Any]) -> Any:
    """The results; the sum of both sides where only these are given."""
    sides = [document.get(f"results_{side}") for side in ("local", "remote")]
    if "results" in document or not all(isinstance(side, dict) for side in sides):
        return document.get("results")
    local, remote = (dict(side) for side in sides if side)
    summed = {
        name: float(local[name]) + float(remote[name])
        for name in ("BW_average", "MsgRate")
        if all(isinstance(side.get(name), int | float) for side in (local, remote))
    }
    return {**local, **summed}


def read_perftest_text(path: Path) -> tuple[BenchmarkRun, ...]:
    """The bandwidths of each test in what one or several printed; none if it is not of perftest.

    Raises:
        BenchmarkError: it is of latency, or no row can be read.
    """
    outputs = [_Output(path)]
    for number, line in read_lines(path):
        if outputs[-1].rows and _TITLE.search(line):
            # the rule above the title
            outputs[-1].rules -= 1
            outputs.append(_Output(path))
        outputs[-1].take(number, line)
    runs = [output.result() for output in outputs if output.rows]
    faults = [output.fault for output in outputs if not output.rows and output.fault]
    if faults and not runs:
        raise faults[0]
    return without_rows(tuple(runs), len(faults), "test")


class _Output:
    """What was found so far in what one test printed."""

    def __init__(self, path: Path) -> None:
        self.path, self.unit = path, ""
        self.columns: list[str] = []
        self.facts: dict[str, str] = {}
        self.rows: list[Measurement] = []
        self.broken, self.rules, self.both_sides = 0, 0, False
        self.fault: BenchmarkError | None = None

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        if found := _TITLE.search(line):
            self.facts.setdefault("test", found[1])
        for name, value in _FACTS.findall(line):
            self.facts.setdefault(_PLAIN.get(name, name), value)
        if "#bytes" in line and "#iterations" in line:
            # the two sides of a bidirectional test follow their sum
            self.both_sides = bool(self.rows)
            self._take_header(number, line)
        elif self.rows and line.lstrip().startswith("---"):
            self.rules += 1
        elif self.both_sides:
            return
        elif self.columns and line.strip()[:1].isdigit():
            try:
                self.rows.append(_text_row(self.path, self.columns, line, self.unit, number))
            except BenchmarkError as error:
                self.broken, self.fault = self.broken + 1, self.fault or error
            if len(self.rows) > MOST_ROWS:
                refuse(self.path, f"has more than {MOST_ROWS} rows", "split it", number)

    def _take_header(self, number: int, line: str) -> None:
        self.columns = _COLUMN.findall(line)
        units = (name[11:-1] for name in self.columns if name.startswith("BW average["))
        self.unit = _TEXT_UNITS.get(next(units, ""), "")

    def result(self) -> BenchmarkRun:
        """The bandwidths; it has a row."""
        run = _run(self.path, "perftest text", self.facts, tuple(self.rows), left_out(self.broken, "row"))
        return replace(run, complete=self.rules > 0)


def _text_row(path: Path, columns: list[str], line: str, unit: str, number: int) -> Measurement:
    if not unit:
        way_out = "give the output of a test like ib_write_bw"
        refuse(path, "has no column of average bandwidth", way_out, number)
    if not _NUMBERS.fullmatch(line) or not line.endswith("\n") or len(line.split()) != len(columns):
        refuse(path, "has a row that is not whole", "keep messages of other programs out of the file", number)
    words = {name.partition("[")[0]: word for name, word in zip(columns, line.split(), strict=True)}
    results = {"MsgSize": int(words["#bytes"]), "n_iterations": int(words["#iterations"])}
    return _measurement(path, {**results, "BW_average": words["BW average"]}, unit)


def _run(
    path: Path, form: str, info: Mapping[str, Any], rows: tuple[Measurement, ...], remarks: list[str]
) -> BenchmarkRun:
    name = escape_controls(str(info.get("test", "")))[:80]
    both_ways = "bidirectional" in name.lower()
    if both_ways:
        remarks.append("a bidirectional test adds both directions")
    mtu = info.get("Mtu")
    return BenchmarkRun(
        path,
        form,
        tuple(replace(row, collective=name or "perftest") for row in rows),
        device=escape_controls(str(info.get("Device", "")))[:80],
        directions=(2 if both_ways else 1) * (2 if info.get("Dual_port") == "ON" else 1),
        link_layer=_LINKS.get(str(info.get("Link_type")), ""),
        mtu_bytes=None if mtu is None else count_of(path, "Mtu", mtu, least=1),
        remarks=tuple(remarks),
    )


def _measurement(path: Path, results: Mapping[str, Any], unit: str) -> Measurement:
    size, iterations = results.get("MsgSize"), results.get("n_iterations")
    bytes_per_second = _average(path, results) * UNITS[unit]
    return Measurement(
        collective="",
        size_bytes=0 if size is None else count_of(path, "MsgSize", size),
        seconds=None,
        algorithm_bytes_per_second=bytes_per_second,
        bus_bytes_per_second=bytes_per_second,
        operations=None if iterations is None else count_of(path, "n_iterations", iterations),
    )


def _average(path: Path, results: Mapping[str, Any]) -> float:
    value = number_of(path, "BW_average", results.get("BW_average", results.get("bw_avg")))
    if value is None:
        refuse(path, "has no bandwidth (BW_average)", "give the file of a bandwidth test, such as ib_write_bw")
    return value


def _unit(path: Path, results: Mapping[str, Any], unit: str, remarks: list[str]) -> str:
    """The unit of a JSON file; says how it became known."""
    value, size, rate = _average(path, results), results.get("MsgSize"), results.get("MsgRate")
    messages = number_of(path, "MsgRate", rate)
    product = 0.0 if size is None or messages is None else count_of(path, "MsgSize", size) * messages * 1e6
    fitting = [name for name, each in UNITS.items() if product and abs(value * each / product - 1) <= AGREEMENT]
    if unit:
        if product and unit not in fitting:
            remarks.append(f"read in {unit} as given, but size and rate of the messages do not fit that unit")
        return unit
    if len(fitting) != 1:
        refuse(path, "does not say the unit of its bandwidth", "give --unit=MiB/s, or --unit=Gb/s for --report_gbits")
    remarks.append(f"bandwidth is in {fitting[0]}, inferred from size and rate of the messages")
    return fitting[0]
