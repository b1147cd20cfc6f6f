"""Reads the JSON files of nccl-tests (`-J FILE`).

Source: NVIDIA/nccl-tests, src/util.cu; versions 1 to 3 of the file (3 at a0b82b22). Times are microseconds, rates GB/s
of 10^9 bytes. `env` is the whole environment and `args` the command line of the job; both may hold secrets. Only the
name of the program is used, nothing else of them is read. Devices list the first GPU of each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ibpulse.base.errors import BenchmarkError
from ibpulse.workbench.nccl.bounded_files import count_of, number_of, parse_document, refuse
from ibpulse.workbench.nccl.measurement import (
    GRAPHS,
    IN_PLACE,
    OUT_OF_PLACE,
    BenchmarkRun,
    Measurement,
    RunPlan,
    left_out,
)
from ibpulse.workbench.nccl.nccl_tests_text import MOST_RANKS, MOST_ROWS, scaled
from ibpulse.workbench.nccl.wire_factors import collective_of_program

NEWEST_VERSION = 3
_PLAN = ("minimum_bytes", "maximum_bytes", "warmup_iters", "iterations", "aggregated_iterations", "validation")
_PLACES = (("out_of_place", OUT_OF_PLACE), ("in_place", IN_PLACE))


def read_json(path: Path, text: str) -> BenchmarkRun:
    """The run in the text of a file.

    Raises:
        BenchmarkError: it is no such file, or a value is invalid.
    """
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
    if len(rows) > MOST_ROWS:
        refuse(path, f"has more than {MOST_ROWS} results", "split the run")
    plan = _plan(path, config)
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
    for row in rows:
        try:
            found += _measurements(path, _mapping(path, "a result", row), document, plan)
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


def _plan(path: Path, config: Mapping[str, Any]) -> RunPlan | None:
    if any(name not in config for name in _PLAN):
        return None
    return RunPlan(*(count_of(path, name, config[name]) for name in _PLAN))


def _collective(document: Mapping[str, Any]) -> str:
    args = document.get("args")
    program = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
    return collective_of_program(program)


def _measurements(
    path: Path, row: Mapping[str, Any], document: Mapping[str, Any], plan: RunPlan | None
) -> list[Measurement]:
    """The placements of one row that were measured; a null is left out."""
    found = []
    for key, placement in _PLACES:
        if row.get(key) is None:
            continue
        values = _mapping(path, key, row[key])
        found.append(
            Measurement(
                collective=_collective(document),
                size_bytes=count_of(path, "the size", row.get("size")),
                # cpu_time is not the time of the operation
                seconds=scaled(number_of(path, "time", values.get("time")), 1e-6),
                algorithm_bytes_per_second=scaled(number_of(path, "alg_bw", values.get("alg_bw")), 1e9),
                bus_bytes_per_second=scaled(number_of(path, "bus_bw", values.get("bus_bw")), 1e9),
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
    threads, gpus = (count_of(path, name, config[name], least=1, most=MOST_RANKS) for name in ("nthreads", "ngpus"))
    processes: dict[int, int] = {}
    hosts: dict[int, set[int]] = {}
    for device in devices:
        group = count_of(path, "group", _mapping(path, "a device", device).get("group", 0))
        processes[group] = processes.get(group, 0) + 1
        # only to count the nodes
        hosts.setdefault(group, set()).add(hash(str(device.get("hostname"))))
    ranks, nodes = set(processes.values()), {len(each) for each in hosts.values()}
    if len(ranks) > 1 or len(nodes) > 1:
        remarks.append("groups of different size ran in parallel; give --ranks and --nodes of one of them")
        return None, None, len(processes)
    return ranks.pop() * threads * gpus, nodes.pop(), len(processes)
