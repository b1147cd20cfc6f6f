"""Reads the logs of NCCL Inspector, a profiler plugin of NCCL: one JSON object per operation and line.

Source: NVIDIA/nccl, plugins/profiler/inspector at 5067397c (NCCL 2.30.7); versions v4.0 to v4.2 of its output, of which
the last also has algorithm and protocol. Rates are GB/s of 10^9 bytes. The size of a collective is that of one rank's
part, so that of AllGather and ReduceScatter is multiplied by the number of ranks. Operations of the same kind and size
become one row: their mean time, and rates at that time. Host names and process ids are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ibpulse.base.errors import BenchmarkError
from ibpulse.workbench.nccl.bounded_files import count_of, read_lines, refuse
from ibpulse.workbench.nccl.measurement import BenchmarkRun, Measurement
from ibpulse.workbench.nccl.wire_factors import bus_factor, collective_of_name

MOST_ROWS = 10_000
MOST_RANKS = 1_000_000
_PARTS = ("all_gather", "reduce_scatter")
_POINT_TO_POINT = ("send", "recv")


@dataclass(slots=True)
class _Sum:
    """Operations of one kind so far."""

    operations: int = 0
    microseconds: float = 0.0


Kind = tuple[str, int, int | None, int | None, str, str]
"""Collective, size in bytes, ranks, nodes, algorithm, protocol."""


def read_inspector(path: Path) -> BenchmarkRun:
    """The operations in a log, by kind and size.

    Raises:
        BenchmarkError: it is no such log, or none of its operations can be read.
    """
    sums: dict[Kind, _Sum] = {}
    broken = dropped = untimed = 0
    header: object = None
    fault: BenchmarkError | None = None
    for number, line in read_lines(path):
        if not line.strip():
            continue
        record = _record(line)
        if record is None:
            broken += 1
            continue
        # newer versions write the header once per dump
        header = record.get("header", header)
        try:
            dropped += _dropped(path, record, number)
            found = _operation(path, record, header, number)
        except BenchmarkError as error:
            broken, fault = broken + 1, fault or error
            continue
        if found is None:
            continue
        kind, microseconds = found
        if not microseconds:
            untimed += 1
            continue
        one = sums.setdefault(kind, _Sum())
        one.operations += 1
        one.microseconds += microseconds
        if len(sums) > MOST_ROWS:
            refuse(path, f"has more than {MOST_ROWS} kinds of operations", "split the log", number)
    if not sums and fault:
        raise fault
    if not sums:
        refuse(path, "has no operation of NCCL Inspector", "give a log of the plugin, with one JSON object per line")
    counts = {
        "{} lines that are not complete or have an invalid value were skipped": broken,
        "{} operations without a time were skipped": untimed,
        "NCCL Inspector dropped {} operations": dropped,
    }
    remarks = tuple(text.format(count) for text, count in counts.items() if count)
    return BenchmarkRun(
        path, "NCCL Inspector log", tuple(_row(*item) for item in sums.items()), complete=not broken, remarks=remarks
    )


def _record(line: str) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _dropped(path: Path, record: Mapping[str, Any], line: int) -> int:
    stats = record.get("dump_stats")
    if not isinstance(stats, dict):
        return 0
    names = ("coll_dropped_since_last_dump", "p2p_dropped_since_last_dump")
    return sum(count_of(path, name, stats[name], line) for name in names if name in stats)


def _operation(path: Path, record: Mapping[str, Any], header: object, line: int) -> tuple[Kind, int] | None:
    """The kind of the operation in a record and its microseconds; None for a record without one."""
    prefix = next((name for name in ("coll", "p2p") if isinstance(record.get(f"{name}_perf"), dict)), "")
    if not prefix:
        return None
    values, about = record[f"{prefix}_perf"], header if isinstance(header, dict) else {}
    word = str(values.get(prefix))
    name = word.lower() if word.lower() in _POINT_TO_POINT else collective_of_name(word)
    ranks, nodes = (
        None if name not in about else count_of(path, name, about[name], line, 1, MOST_RANKS)
        for name in ("n_ranks", "nnodes")
    )
    size = count_of(path, "a size", values.get(f"{prefix}_msg_size_bytes"), line)
    if name in _PARTS:
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


def _row(kind: Kind, found: _Sum) -> Measurement:
    collective, size, ranks, nodes, algorithm, protocol = kind
    seconds = found.microseconds / found.operations * 1e-6
    factor = None if ranks is None else bus_factor(collective, ranks)
    rate = size / seconds
    return Measurement(
        collective,
        size,
        seconds,
        rate,
        None if factor is None else rate * factor,
        operations=found.operations,
        ranks=ranks,
        nodes=nodes,
        algorithm=algorithm,
        protocol=protocol,
    )
