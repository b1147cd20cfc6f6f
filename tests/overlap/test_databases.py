"""Exports of Nsight Systems and rocpd databases give the numbers that the same work gives as a trace of PyTorch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.base.errors import TraceError
from ibpulse.cli import main
from ibpulse.core.recordings import save
from ibpulse.workbench.overlap import databases
from ibpulse.workbench.overlap.exposed import measure_overlap
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.report import PROCESS as WIRE
from ibpulse.workbench.overlap.trace import KinetoTrace, read_traces
from tests.overlap.played_traces import BEGIN_NS, MS, PlayedTrace, collective, compute, event, record, step, write_trace
from tests.overlap.written_databases import PROCESS, write_nsight, write_rocpd
from tests.tables import for_each

PLAYED = PlayedTrace(steps=4, seed=3)
COPY = event("Memcpy DtoH", "gpu_memcpy", 1 * MS, 3 * MS)
EVENTS = [COPY, *(collective(40 * MS + n, 5 * MS, {}, stream=21) for n in (0, 60 * MS)), *PLAYED.timeline()[0]]


def read(path: Path) -> list[KinetoTrace]:
    return read_traces(path, CommunicationNames())


def numbers(trace: KinetoTrace) -> object:
    """All that is measured, without what only the profiler of PyTorch knows: communicators are those of streams."""
    found = [measure_overlap(device, trace.steps) for device in trace.devices]
    return [
        (
            each.device.device,
            each.device.kernels,
            each.whole,
            [(step.number, step.begin_ns, time) for step, time in each.steps],
            sorted(
                (work.work.communicator.name, work.work.kernels, work.work.active.starts.tolist(), work.step_exposed_ns)
                for work in each.communicators
            ),
        )
        for each in found
    ]


@for_each({"nsight": (write_nsight, BEGIN_NS), "rocpd": (write_rocpd, 0)})
def test_the_numbers_are_those_of_the_same_work_in_json(
    write: Callable[[Path, list[dict[str, Any]]], Path], base_ns: int, tmp_path: Path
) -> None:
    # a copy from the second GPU, to the CPU
    second = [{**each, "pid": 1} for each in (compute(0, MS), COPY, compute(9 * MS, MS))]
    events = [{**each, "args": {}} for each in (*EVENTS, *second)]
    [expected] = read(write_trace(tmp_path / "trace.json", events, baseTimeNanoseconds=base_ns))
    path = tmp_path / write.__name__
    path.unlink(missing_ok=True)
    [found] = read(write(path, events))
    assert numbers(found) == numbers(expected)
    assert found.absolute == expected.absolute == bool(base_ns)
    assert found.process == PROCESS
    assert found.notes == ("steps are the ranges named like 'ProfilerStep#0'",)


def test_each_process_has_its_own_steps_and_devices(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    for process in (70, 900_000):
        write_nsight(path, [compute(process, 5 * MS), step(process, 0, 9 * MS)], process)
    write_nsight(path, [step(3, 0, 9 * MS)], 55)
    found = read(path)
    assert [each.process for each in found] == [70, 900_000]
    assert [[(step.number, step.begin_ns) for step in each.steps] for each in found] == [
        [(process, BEGIN_NS)] for process in (70, 900_000)
    ]
    assert [each.devices[0].begin_ns - BEGIN_NS for each in found] == [70, 900_000]


@for_each(
    {
        "step 7": 7,
        "Step_12": 12,
        "iteration 7": 7,
        "iter7": 7,
        "train_step: 7": 7,
        "global step #7": 7,
        "ProfilerStep#7": 7,
        "step": None,
        "substep 7": None,
        "step 7 of 9": None,
        "forward": None,
        "7": None,
    }.items()
)
def test_ranges_with_the_name_of_a_step(name: str, number: int | None, tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    path.unlink(missing_ok=True)
    [trace] = read(write_nsight(path, [compute(0, MS), {**step(0, 0, MS), "name": name}]))
    assert [each.number for each in trace.steps] == ([] if number is None else [number])


def test_steps_are_the_longest_of_nested_names_and_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = [{**step(0, begin * MS, MS), "name": f"step {begin}"} for begin in range(4)]
    outer = [{**step(0, begin * MS, 2 * MS + 1), "name": f"iteration {begin}"} for begin in (0, 2)]
    [trace] = read(write_nsight(tmp_path / "node.sqlite", [compute(0, 4 * MS), *inner, *outer]))
    assert [each.number for each in trace.steps] == [0, 2]
    assert trace.notes == ("steps are the ranges named like 'iteration 0'",)
    monkeypatch.setattr(databases, "MAX_STEPS", 2)
    steps = [step(number, number * MS, MS) for number in range(5)]
    [trace] = read(write_nsight(tmp_path / "many.sqlite", [compute(0, 5 * MS), *steps]))
    assert len(trace.steps) == 2
    assert trace.notes[-1] == "3 steps left out: only the first 2 count"


def test_graphs_that_are_recorded_as_a_whole_are_named(tmp_path: Path) -> None:
    path = write_nsight(tmp_path / "node.sqlite", EVENTS)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER)")
        base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 0)", [(0, 9), (10, 19)])
    [trace] = read(path)
    assert trace.notes[0].startswith("2 CUDA graphs recorded as a whole: the kernels in them are missing")


def test_values_that_are_no_times_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write_nsight(tmp_path / "node.sqlite", EVENTS)
    [whole] = read(path)
    with closing(sqlite3.connect(path)) as base, base:
        for start, end in (("noon", 9), (5, b"x"), (1.5, 9), (9, 5), (-9, 5), (2**62, 2**62 + 1)):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT ?, ?, deviceId, contextId, streamId, correlationId, "
                "globalPid, demangledName, shortName FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1",
                (start, end),
            )
    [trace] = read(path)
    assert numbers(trace) == numbers(whole)
    assert trace.notes[-1].startswith("6 kernels without sensible times")


def _change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as base, base:
        for statement in statements:
            base.execute(statement)
    return path


def _endless(folder: Path) -> Path:
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x + 1 AS end FROM n"
    path = write_nsight(folder / "endless", EVENTS)
    return _change(path, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {rows}")


def _wide(folder: Path) -> Path:
    path = write_nsight(folder / "wide", EVENTS)
    swap = "CREATE TABLE StringIds (id INTEGER, value TEXT)"
    return _change(
        path,
        "DROP TABLE StringIds",
        swap,
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) "
        "INSERT INTO StringIds SELECT k.demangledName, '' FROM n, (SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1) k",
    )


def _journal(folder: Path) -> Path:
    path = write_nsight(folder / "open", EVENTS)
    Path(f"{path}-wal").write_bytes(b"")
    return path


def _report(folder: Path) -> Path:
    path = folder / "node.nsys-rep"
    path.write_bytes(b"")
    return path


@for_each(
    {
        "report": (_report, "is a report of Nsight Systems"),
        "no kernels": (
            lambda folder: _change(write_nsight(folder / "k", EVENTS), "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"),
            "has no GPU kernel",
        ),
        "no table": (
            lambda folder: _change(write_nsight(folder / "t", EVENTS), "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL"),
            "has no table of GPU kernels",
        ),
        "a view that never ends": (_endless, "has no table of GPU kernels"),
        "a name for every row": (_wide, "takes too long to read for its size"),
        "a later schema": (
            lambda folder: _change(
                folder / "later", "CREATE TABLE rocpd_kernel_dispatch_0a (id INTEGER, start_id INTEGER)"
            ),
            "has times in a table of their own",
        ),
        "a suffix that is a statement": (
            lambda folder: _change(folder / "evil", 'CREATE TABLE "rocpd_kernel_dispatch t; --" (start INTEGER)'),
            "has no table of GPU kernels",
        ),
        "not closed": (_journal, "is not complete"),
    }
)
def test_files_that_are_refused(
    make: Callable[[Path], Path], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "MIN_OPERATIONS", 200_000)
    path = make(tmp_path)
    before = path.read_bytes()
    with pytest.raises(TraceError, match=problem):
        read(path)
    assert path.read_bytes() == before


def test_the_wire_is_merged_with_an_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = 31 * MS
    path, output = write_nsight(tmp_path / "node.sqlite", EVENTS), tmp_path / "merged.json"
    recording = record(PLAYED, shift_ns=offset)
    save(tmp_path / "node7.parquet", replace(recording, meta=replace(recording.meta, host="node7")))
    assert main(["trace", str(path), f"--against={tmp_path / 'node7.parquet'}", "-o", str(output)], {}) == 0
    assert f"node.sqlite, process {PROCESS}, device 0" in capsys.readouterr().out
    merged = json.loads(output.read_text(), parse_float=Decimal)
    assert merged["baseTimeNanoseconds"] == BEGIN_NS
    events = merged["traceEvents"]
    clock = next(each for each in events if each["name"] == "clock")
    assert abs(float(clock["args"]["ahead_ms"]) * MS - offset) <= float(clock["args"]["error_ms"]) * MS
    spans = {
        (each["name"], int(each["ts"] * 1000), int(each["dur"] * 1000))
        for each in events
        if each["ph"] == "X" and each["pid"] != WIRE
    }
    assert spans == {
        ("gpu_memcpy" if each is COPY else each["name"], round(each["ts"] * 1000), round(each["dur"] * 1000))
        for each in EVENTS
    }
    gpu = next(each for each in events if each["ph"] == "M" and each["pid"] == databases.FIRST_GPU)
    assert gpu["args"]["name"] == f"GPU 0, process {PROCESS}"
    assert np.unique([each["pid"] for each in events]).tolist() == sorted({PROCESS, WIRE, databases.FIRST_GPU})


def test_a_process_that_does_not_communicate_is_shown_without_the_wire(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_nsight(tmp_path / "node.sqlite", EVENTS)
    write_nsight(path, [compute(0, 5 * MS), step(0, 0, 9 * MS)], 70)
    save(tmp_path / "node7.parquet", record(PLAYED))
    assert main(["trace", str(path), f"--against={tmp_path / 'node7.parquet'}", "--format=json"], {}) == 0
    alone, compared = json.loads(capsys.readouterr().out)["devices"]
    assert (alone["process"], alone["wire"], alone["clock"]) == (70, None, None)
    assert "not compared with the recording: no communication kernel uses the wire" in alone["notes"]
    assert compared["wire"]["moving_ns"] > 0


def test_a_database_without_a_clock_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "node7.parquet", record(PLAYED))
    for path in (write_rocpd(tmp_path / "r.db", EVENTS), write_nsight(tmp_path / "n.sqlite", EVENTS, begin_ns=None)):
        assert main(["trace", str(path), f"--against={tmp_path / 'node7.parquet'}"], {}) == 1
        assert "has no wall time" in capsys.readouterr().err
