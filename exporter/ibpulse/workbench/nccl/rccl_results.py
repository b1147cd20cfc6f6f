"""Reads the result files of rccl-tests (`-Z json` or `-Z csv` with `-x FILE`).

Source: ROCm/rccl-tests, src/common.cu at c0eac93f (one JSON object per line, CSV with spaces) and src/common.cpp at
233482bd (a list of JSON objects, CSV with `numCycle`). A row has one placement. Times are microseconds, rates GB/s of
10^9 bytes. The size is what one rank receives: of ReduceScatter and Scatter one part, which is multiplied by the ranks.
With MPI, `ranks` are processes of `gpusPerRank` GPUs each, and a row of CSV has the number of nodes, which its header
lacks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from ibpulse.base.errors import BenchmarkError
from ibpulse.base.text import split_lines
from ibpulse.workbench.nccl.bounded_files import count_of, number_of, parse_document, refuse
from ibpulse.workbench.nccl.measurement import IN_PLACE, OUT_OF_PLACE, BenchmarkRun, Measurement, left_out
from ibpulse.workbench.nccl.nccl_tests_text import MOST_RANKS, MOST_ROWS, scaled
from ibpulse.workbench.nccl.wire_factors import collective_of_name

_PARTS = ("reduce_scatter", "scatter")
_NEEDED = {"size", "time", "algbw", "busbw"}
_PLACES = {"0": OUT_OF_PLACE, "1": IN_PLACE, "false": OUT_OF_PLACE, "true": IN_PLACE}

Row = Mapping[str, Any]


def read_rccl_json(path: Path, text: str) -> BenchmarkRun:
    """The run in a file with one object per line, or with a list of them.

    Raises:
        BenchmarkError: no row can be read.
    """
    rows: list[Row | None]
    remarks: list[str] = []
    if text.lstrip().startswith("["):
        found, remarks = parse_document(path, text)
        rows = [row if isinstance(row, dict) else None for row in found]
    else:
        _check_rows(path, text.count("\n"))
        rows = [_object(line) for line in split_lines(text) if line.strip()]
    return _run(path, "rccl-tests JSON", rows, remarks)


def _object(line: str) -> Row | None:
    try:
        found = orjson.loads(line.rstrip().removesuffix(","))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_rccl_csv(path: Path, text: str) -> BenchmarkRun:
    """The run in a file of comma-separated values.

    Raises:
        BenchmarkError: no row can be read.
    """
    _check_rows(path, text.count("\n"))
    return _run(path, "rccl-tests CSV", list(_csv_rows(text)), [])


def _csv_rows(text: str) -> Iterator[Row | None]:
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


def _check_rows(path: Path, count: int) -> None:
    """Refuse more rows than are read, before each is an object in memory."""
    if count > MOST_ROWS:
        refuse(path, f"has more than {MOST_ROWS} results", "split it")


def _run(path: Path, form: str, rows: list[Row | None], remarks: list[str]) -> BenchmarkRun:
    _check_rows(path, len(rows))
    found: list[Measurement] = []
    fault = None
    for row in rows:
        try:
            found += [] if row is None else [_measurement(path, {key.lower(): value for key, value in row.items()})]
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


def _measurement(path: Path, row: Row) -> Measurement:
    if not row.keys() >= _NEEDED:
        refuse(path, "has a row that is not whole", "give the whole file")
    collective = collective_of_name(str(row.get("name", row.get("collective", ""))))
    ranks, nodes = _ranks(path, row)
    size = count_of(path, "the size", _whole(row.get("size")))
    seconds = scaled(number_of(path, "the time", row.get("time")), 1e-6)
    rate = scaled(number_of(path, "the algbw", row.get("algbw")), 1e9)
    if collective in _PARTS and ranks is not None:
        size *= ranks
    return Measurement(
        collective=collective,
        size_bytes=size,
        seconds=seconds,
        algorithm_bytes_per_second=rate,
        bus_bytes_per_second=scaled(number_of(path, "the busbw", row.get("busbw")), 1e9),
        placement=_PLACES.get(str(row.get("inplace")).lower(), ""),
        wrong=number_of(path, "#wrong", row.get("#wrong", row.get("wrong"))),
        ranks=ranks,
        nodes=nodes,
    )


def _ranks(path: Path, row: Row) -> tuple[int | None, int | None]:
    """Ranks and nodes of a row; without MPI, a run is one process on one node."""
    if "gpus" in row:
        return _count(path, "gpus", row), 1
    processes, gpus, nodes, on_node = (
        _count(path, name, row) if name in row else None for name in ("ranks", "gpusperrank", "nodes", "rankspernode")
    )
    if processes and on_node and not nodes and not processes % on_node:
        nodes = processes // on_node
    return (processes * gpus if processes and gpus else None), nodes


def _count(path: Path, name: str, row: Row) -> int:
    return count_of(path, name, _whole(row[name]), least=1, most=MOST_RANKS)


def _whole(value: Any) -> Any:
    """Whole numbers may have become floats in other programs."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
