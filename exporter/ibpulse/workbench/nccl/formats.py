"""Reads benchmark files of any format: picks the reader by the first characters and the keys of the first object.

rccl-tests (`-Z json` or `-Z csv` with `-x FILE`): ROCm/rccl-tests, src/common.cu at c0eac93f (one JSON object per line,
CSV with spaces) and src/common.cpp at 233482bd (a list of JSON objects, CSV with `numCycle`). A row has one placement.
Times are microseconds, rates GB/s of 10^9 bytes. The size is what one rank receives: of ReduceScatter and Scatter one
part, which is multiplied by the ranks. With MPI, `ranks` are processes of `gpusPerRank` GPUs each, and a row of CSV has
the number of nodes, which its header lacks.

perftest: linux-rdma/perftest, src/perftest_parameters.c at 00b55b66 and src/perftest_parameters.h at 9d86b341. Text
names the unit of its bandwidth; `MB/sec` are 2^20 bytes, as are `MiB/sec`. JSON (`--out_json`) does not: it is MiB/s,
or Gb/s with `--report_gbits`. Without a given unit, it follows from `MsgSize` times `MsgRate` (10^6 messages per
second), which is the same bandwidth; the two units differ by a factor of 119. Some versions write JSON without quotes.

NCCL Inspector: NVIDIA/nccl, plugins/profiler/inspector at 5067397c (NCCL 2.30.7), versions v4.0 to v4.2 of its output,
of which the last also has algorithm and protocol; one JSON object per operation and line. Rates are GB/s of 10^9 bytes.
The size of a collective is that of one rank's part, so that of AllGather and ReduceScatter is multiplied by the ranks.
Operations of the same kind and size become one row: their mean time, and rates at that time. Host names and process ids
are not kept.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from ibpulse.base.errors import BenchmarkError
from ibpulse.base.text import split_lines
from ibpulse.workbench.nccl.nccl_tests import COLUMN_UNITS, MAX_RANKS, MAX_ROWS, read_json, read_text
from ibpulse.workbench.nccl.results import (
    EMPTY_ADVICE,
    IN_PLACE,
    OUT_OF_PLACE,
    BenchmarkRun,
    Measurement,
    bus_factor,
    collective_of_name,
    count_of,
    left_out,
    number_of,
    parse_document,
    read_beginning,
    read_document,
    read_lines,
    refuse,
    without_rows,
)

FORMATS = "output or JSON of nccl-tests, rccl-tests or perftest, CSV of rccl-tests, log of NCCL Inspector"
# a key at the beginning of a line or of an object, which some versions of perftest do not quote
_PERFTEST = re.compile(r'\A\s*\{\s*"?test_info"?\s*:')
_INSPECTOR = re.compile(r'\A\s*\{\s*"(?:header|metadata|coll_perf|p2p_perf|dump_stats)"\s*:')
_RCCL_JSON = re.compile(r'\A\s*(?:\[\s*)?\{[^{}\[\]]*"(?:busBw|algBw)"\s*:')
_RCCL_CSV = re.compile(r"\A(?:numCycle|collective)\s*,.*\bbusbw\b", re.IGNORECASE)


def read_benchmark(path: Path, unit: str = "", collective: str = "") -> tuple[BenchmarkRun, ...]:
    """The runs in a file of any known format, at least one.

    `unit` is that of a JSON file of perftest, `collective` that of a file that does not name its own; empty if not
    given.
    """
    runs = _read(path, unit)
    if not collective:
        return runs
    named = (tuple(replace(row, collective=row.collective or collective) for row in run.measurements) for run in runs)
    return tuple(replace(run, measurements=rows) for run, rows in zip(runs, named, strict=True))


def _read(path: Path, unit: str) -> tuple[BenchmarkRun, ...]:
    begin = read_beginning(path)
    if not begin:
        refuse(path, "is empty", EMPTY_ADVICE)
    if _INSPECTOR.match(begin):
        return (read_inspector(path),)
    if _RCCL_JSON.match(begin):
        return (read_rccl_json(path, read_document(path)),)
    if _RCCL_CSV.match(begin):
        return (read_rccl_csv(path, read_document(path)),)
    if _PERFTEST.match(begin):
        return (read_perftest(path, read_document(path), unit),)
    if begin.startswith("{"):
        return (read_json(path, read_document(path)),)
    runs = read_text(path) or read_perftest_text(path)
    if not runs:
        refuse(path, "has no row with results", f"the formats that are read: {FORMATS}")
    return runs


_RECEIVED = ("reduce_scatter", "scatter")
_RCCL_COLUMNS = {"size", "time", "algbw", "busbw"}
_RCCL_PLACES = {"0": OUT_OF_PLACE, "1": IN_PLACE, "false": OUT_OF_PLACE, "true": IN_PLACE}

Row = Mapping[str, Any]


def read_rccl_json(path: Path, text: str) -> BenchmarkRun:
    """The run in a file with one object per line, or with a list of them."""
    rows: list[Row | None]
    remarks: list[str] = []
    if text.lstrip().startswith("["):
        found, remarks = parse_document(path, text)
        rows = [row if isinstance(row, dict) else None for row in found]
    else:
        _check_rccl_rows(path, text.count("\n"))
        rows = [_json_object(line.rstrip().removesuffix(",")) for line in split_lines(text) if line.strip()]
    return _rccl_run(path, "rccl-tests JSON", rows, remarks)


def _json_object(line: str) -> Row | None:
    try:
        found = orjson.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_rccl_csv(path: Path, text: str) -> BenchmarkRun:
    """The run in a file of comma-separated values."""
    _check_rccl_rows(path, text.count("\n"))
    return _rccl_run(path, "rccl-tests CSV", list(_rccl_csv_rows(text)), [])


def _rccl_csv_rows(text: str) -> Iterator[Row | None]:
    lines = csv.reader(io.StringIO(text, newline="\n"), skipinitialspace=True)
    try:
        names = [name.strip() for name in next(lines)]
        if "ranks" in names and "nodes" not in names:
            names.insert(names.index("ranks"), "nodes")
        for line in lines:
            whole = len(line) == len(names)
            yield dict(zip(names, map(str.strip, line), strict=True)) if whole else None
    except csv.Error:
        yield None


def _check_rccl_rows(path: Path, count: int) -> None:
    """Refuse more rows than are read, before each is an object in memory."""
    if count > MAX_ROWS:
        refuse(path, f"has more than {MAX_ROWS} results", "split it")


def _rccl_run(path: Path, form: str, rows: list[Row | None], remarks: list[str]) -> BenchmarkRun:
    _check_rccl_rows(path, len(rows))
    found: list[Measurement] = []
    fault = None
    for row in rows:
        try:
            found += [] if row is None else [_rccl_row(path, {key.lower(): value for key, value in row.items()})]
        except BenchmarkError as error:
            fault = fault or error
    if not found:
        if fault:
            raise fault
        refuse(path, "has no whole row", "give the file that rccl-tests wrote with -x")
    broken = len(rows) - len(found)
    sizes = {(row.ranks, row.nodes) for row in found}
    ranks, nodes = sizes.pop() if len(sizes) == 1 else (None, None)
    return BenchmarkRun(
        path,
        form,
        tuple(found),
        ranks=ranks,
        nodes=nodes,
        complete=not broken and not remarks,
        remarks=(*remarks, *left_out(broken, "row")),
    )


def _rccl_row(path: Path, row: Row) -> Measurement:
    if not row.keys() >= _RCCL_COLUMNS:
        refuse(path, "has a row that is not whole", "give the whole file")
    collective = collective_of_name(str(row.get("name", row.get("collective", ""))))
    ranks, nodes = _rccl_ranks(path, row)
    size = count_of(path, "the size", _whole(row.get("size")))
    seconds, rate, bus_rate = (
        number_of(path, f"the {name}", row.get(name), unit=COLUMN_UNITS[name]) for name in ("time", "algbw", "busbw")
    )
    if collective in _RECEIVED and ranks is not None:
        size *= ranks
    return Measurement(
        collective=collective,
        size_bytes=size,
        seconds=seconds,
        algorithm_bytes_per_second=rate,
        bus_bytes_per_second=bus_rate,
        placement=_RCCL_PLACES.get(str(row.get("inplace")).lower(), ""),
        wrong=number_of(path, "#wrong", row.get("#wrong", row.get("wrong"))),
        ranks=ranks,
        nodes=nodes,
    )


def _rccl_ranks(path: Path, row: Row) -> tuple[int | None, int | None]:
    """Ranks and nodes of a row; without MPI, a run is one process on one node."""
    if "gpus" in row:
        return _rccl_count(path, "gpus", row), 1
    processes, gpus, nodes, on_node = (
        _rccl_count(path, name, row) if name in row else None
        for name in ("ranks", "gpusperrank", "nodes", "rankspernode")
    )
    if processes and on_node and not nodes and not processes % on_node:
        nodes = processes // on_node
    return (processes * gpus if processes and gpus else None), nodes


def _rccl_count(path: Path, name: str, row: Row) -> int:
    return count_of(path, name, _whole(row[name]), least=1, most=MAX_RANKS)


def _whole(value: Any) -> Any:
    """Whole numbers may have become floats in other programs."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


UNITS = {"MiB/s": 2.0**20, "Gb/s": 1e9 / 8}
"""Bytes per second of the units that perftest writes."""
AGREEMENT = 0.05
MAX_SIZES = 10_000
_TEXT_UNITS = {"MB/sec": "MiB/s", "MiB/sec": "MiB/s", "Gb/sec": "Gb/s"}
_COLUMN = re.compile(r"#?[A-Za-z_]\w*(?: [A-Za-z0-9]+)*(?:\[[^\]]*\])?")
_NUMBERS = re.compile(r"\s*\d+(?:\s+\d+(?:\.\d+)?)+\s*")
_TITLE = re.compile(r"^\s*(\w[\w /+-]{0,70}\bTest)\s*$")
_FACTS = re.compile(r"(Dual-port|Device)\s*:\s*(\w+)")


def read_perftest(path: Path, text: str, unit: str = "") -> BenchmarkRun:
    """The bandwidth in a JSON file; `unit` is a key of `UNITS`, or empty to infer it."""
    document, remarks = parse_document(path, text)
    info, results = (
        (document.get("test_info"), _perftest_results(document)) if isinstance(document, dict) else (None, None)
    )
    if not isinstance(info, dict) or not isinstance(results, dict):
        refuse(path, "has no test_info with results", "give a file that perftest wrote with --out_json")
    row = _perftest_row(path, results, _perftest_unit(path, results, unit, remarks))
    return _perftest_run(path, "perftest JSON", info, (row,), remarks)


def _perftest_results(document: Mapping[str, Any]) -> Any:
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
    """The bandwidths of each test in an output of one or several; none if it is not of perftest."""
    outputs = [_PerftestOutput(path)]
    for number, line in read_lines(path):
        if outputs[-1].rows and _TITLE.search(line):
            # the rule above the title
            outputs[-1].rules -= 1
            outputs.append(_PerftestOutput(path))
        outputs[-1].take(number, line)
    runs = [output.result() for output in outputs if output.rows]
    faults = [output.fault for output in outputs if not output.rows and output.fault]
    if faults and not runs:
        raise faults[0]
    return without_rows(tuple(runs), len(faults), "test")


class _PerftestOutput:
    """The output of one test, read up to a line."""

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
            self.facts.setdefault(name.replace("-", "_"), value)
        if "#bytes" in line and "#iterations" in line:
            # the two sides of a bidirectional test follow their sum
            self.both_sides = bool(self.rows)
            self.columns = _COLUMN.findall(line)
            units = (name[11:-1] for name in self.columns if name.startswith("BW average["))
            self.unit = _TEXT_UNITS.get(next(units, ""), "")
        elif self.rows and line.lstrip().startswith("---"):
            self.rules += 1
        elif self.both_sides:
            return
        elif self.columns and line.strip()[:1].isdigit():
            try:
                self.rows.append(_perftest_text_row(self.path, self.columns, line, self.unit, number))
            except BenchmarkError as error:
                self.broken, self.fault = self.broken + 1, self.fault or error
            if len(self.rows) > MAX_SIZES:
                refuse(self.path, f"has more than {MAX_SIZES} rows", "split it", number)

    def result(self) -> BenchmarkRun:
        """The bandwidths; it has a row."""
        run = _perftest_run(self.path, "perftest text", self.facts, tuple(self.rows), left_out(self.broken, "row"))
        return replace(run, complete=self.rules > 0)


def _perftest_text_row(path: Path, columns: list[str], line: str, unit: str, number: int) -> Measurement:
    if not unit:
        way_out = "give the output of a test like ib_write_bw"
        refuse(path, "has no column of average bandwidth", way_out, number)
    if not _NUMBERS.fullmatch(line) or not line.endswith("\n") or len(line.split()) != len(columns):
        refuse(path, "has a row that is not whole", "keep messages of other programs out of the file", number)
    words = {name.partition("[")[0]: word for name, word in zip(columns, line.split(), strict=True)}
    results = {"MsgSize": int(words["#bytes"]), "n_iterations": int(words["#iterations"])}
    return _perftest_row(path, {**results, "BW_average": words["BW average"]}, unit)


def _perftest_run(
    path: Path, form: str, info: Mapping[str, Any], rows: tuple[Measurement, ...], remarks: list[str]
) -> BenchmarkRun:
    name = str(info.get("test", ""))[:80]
    both_ways = "bidirectional" in name.lower()
    if both_ways:
        remarks.append("a bidirectional test adds both directions")
    return BenchmarkRun(
        path,
        form,
        tuple(replace(row, collective=name or "perftest") for row in rows),
        device=str(info.get("Device", ""))[:80],
        directions=(2 if both_ways else 1) * (2 if info.get("Dual_port") == "ON" else 1),
        remarks=tuple(remarks),
    )


def _perftest_row(path: Path, results: Mapping[str, Any], unit: str) -> Measurement:
    size, iterations = results.get("MsgSize"), results.get("n_iterations")
    bytes_per_second = _average_bandwidth(path, results) * UNITS[unit]
    return Measurement(
        collective="",
        size_bytes=0 if size is None else count_of(path, "MsgSize", size),
        seconds=None,
        algorithm_bytes_per_second=bytes_per_second,
        bus_bytes_per_second=bytes_per_second,
        operations=None if iterations is None else count_of(path, "n_iterations", iterations),
    )


def _average_bandwidth(path: Path, results: Mapping[str, Any]) -> float:
    value = number_of(path, "BW_average", results.get("BW_average", results.get("bw_avg")))
    if value is None:
        refuse(path, "has no bandwidth (BW_average)", "give the file of a bandwidth test, such as ib_write_bw")
    return value


def _perftest_unit(path: Path, results: Mapping[str, Any], unit: str, remarks: list[str]) -> str:
    """The unit of a JSON file; says how it became known."""
    value, size, rate = _average_bandwidth(path, results), results.get("MsgSize"), results.get("MsgRate")
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


MAX_KINDS = 10_000
_SUMMED = ("all_gather", "reduce_scatter")
_POINT_TO_POINT = ("send", "recv")


Kind = tuple[str, int, int | None, int | None, str, str]
"""Collective, size in bytes, ranks, nodes, algorithm, protocol."""


def read_inspector(path: Path) -> BenchmarkRun:
    """The operations in a log, by kind and size."""
    operations: Counter[Kind] = Counter()
    microseconds: Counter[Kind] = Counter()
    broken = dropped = untimed = 0
    header: object = None
    fault: BenchmarkError | None = None
    for number, line in read_lines(path):
        if not line.strip():
            continue
        record = _json_object(line)
        if record is None:
            broken += 1
            continue
        # newer versions write the header once per dump
        header = record.get("header", header)
        try:
            dropped += _dropped(path, record, number)
            found = _inspector_operation(path, record, header, number)
        except BenchmarkError as error:
            broken, fault = broken + 1, fault or error
            continue
        if found is None:
            continue
        kind, lasted = found
        if not lasted:
            untimed += 1
            continue
        operations[kind] += 1
        microseconds[kind] += lasted
        if len(operations) > MAX_KINDS:
            refuse(path, f"has more than {MAX_KINDS} kinds of operations", "split the log", number)
    if not operations and fault:
        raise fault
    if not operations:
        refuse(path, "has no operation of NCCL Inspector", "give a log of the plugin, with one JSON object per line")
    counts = {
        "{} lines that are not complete or have an invalid value were skipped": broken,
        "{} operations without a time were skipped": untimed,
        "NCCL Inspector dropped {} operations": dropped,
    }
    remarks = tuple(text.format(count) for text, count in counts.items() if count)
    return BenchmarkRun(
        path,
        "NCCL Inspector log",
        tuple(_inspector_row(kind, count, microseconds[kind]) for kind, count in operations.items()),
        complete=not broken,
        remarks=remarks,
    )


def _dropped(path: Path, record: Mapping[str, Any], line: int) -> int:
    stats = record.get("dump_stats")
    if not isinstance(stats, dict):
        return 0
    names = ("coll_dropped_since_last_dump", "p2p_dropped_since_last_dump")
    return sum(count_of(path, name, stats[name], line) for name in names if name in stats)


def _inspector_operation(path: Path, record: Mapping[str, Any], header: object, line: int) -> tuple[Kind, int] | None:
    """The kind of the operation in a record and its microseconds; None for a record without one."""
    prefix = next((name for name in ("coll", "p2p") if isinstance(record.get(f"{name}_perf"), dict)), "")
    if not prefix:
        return None
    values, about = record[f"{prefix}_perf"], header if isinstance(header, dict) else {}
    word = str(values.get(prefix))
    name = word.lower() if word.lower() in _POINT_TO_POINT else collective_of_name(word)
    ranks, nodes = (
        None if name not in about else count_of(path, name, about[name], line, 1, MAX_RANKS)
        for name in ("n_ranks", "nnodes")
    )
    size = count_of(path, "a size", values.get(f"{prefix}_msg_size_bytes"), line)
    if name in _SUMMED:
        if ranks is None:
            refuse(path, f"has an operation {name} without n_ranks", "its size is unknown; remove the line", line)
        size = count_of(path, "a size of all ranks", size * ranks, line)
    algorithm, protocol = (_word(values.get(f"{prefix}_{part}")) for part in ("algo", "proto"))
    microseconds = count_of(path, "a time", values.get(f"{prefix}_exec_time_us"), line)
    return (name, size, ranks, nodes, algorithm, protocol), microseconds


def _word(value: object) -> str:
    """A word of NCCL in lower case; empty if it is unknown or not a plain word."""
    word = value.lower() if isinstance(value, str) else ""
    return word if word.isalnum() and word.isascii() and len(word) <= 20 and word != "unknown" else ""


def _inspector_row(kind: Kind, operations: int, microseconds: int) -> Measurement:
    collective, size, ranks, nodes, algorithm, protocol = kind
    seconds = microseconds / operations * 1e-6
    factor = None if ranks is None else bus_factor(collective, ranks)
    rate = size / seconds
    return Measurement(
        collective,
        size,
        seconds,
        rate,
        None if factor is None else rate * factor,
        operations=operations,
        ranks=ranks,
        nodes=nodes,
        algorithm=algorithm,
        protocol=protocol,
    )
