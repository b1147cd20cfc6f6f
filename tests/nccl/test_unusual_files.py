"""Files of benchmarks as users have them: whole rows are read, the others are counted, and nothing false is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import BenchmarkError
from ibpulse.workbench.nccl.benchmark_files import read_benchmark
from ibpulse.workbench.nccl.measurement import IN_PLACE, OUT_OF_PLACE, BenchmarkRun
from tests.nccl.unusual_files import (
    GB,
    OTHERS,
    PERFTEST,
    RCCL,
    RCCL_ROWS,
    SIDES,
    TEXTS,
    UNQUOTED,
    header,
    plan,
    ranks,
    row,
    text,
)
from tests.tables import for_each

LEFT_OUT = "row left out: not whole, or with an invalid value"
MIXED = "runs of {} each are mixed in this file"
NOT_WHOLE = {"sizes": [2, 4], "note": LEFT_OUT}
BOTH = [OUT_OF_PLACE, IN_PLACE]
# sizes in GiB, nodes, ranks, placements of the first size, the beginning of a note
EXPECTED: dict[str, dict[str, Any]] = {
    "a message in a row": NOT_WHOLE,
    "a message behind half of a row": NOT_WHOLE,
    "a message within a number": NOT_WHOLE,
    "a message within the type": NOT_WHOLE,
    "a negative bandwidth": NOT_WHOLE,
    "an abort in a row": {"sizes": [2], "complete": False, "note": LEFT_OUT},
    "runs without MPI": {"sizes": [1, 1, 2, 2], "ranks": 8, "nodes": 1, "note": "built without MPI"},
    "runs without MPI, of one GPU": {"sizes": [1] * 4, "ranks": 1, "nodes": 1, "note": MIXED.format("1 rank")},
    "runs without MPI, one late": {"sizes": [1, 2, 1, 2], "ranks": 8, "nodes": 1, "note": "built without MPI"},
    "runs with MPI at the same time": {"sizes": [1, 1], "nodes": None, "note": "give --nodes of one of them"},
    "an aborted run before a whole one": {"sizes": [1, 2, 4]},
    "in-place only": {"sizes": [1, 2], "ranks": 8, "nodes": 1, "places": [IN_PLACE], "form": "rccl-tests text"},
    "out-of-place only": {"sizes": [1, 2], "ranks": 8, "nodes": 1, "places": [OUT_OF_PLACE]},
    "one placement with algorithms": {"ranks": 8, "nodes": 1, "places": [IN_PLACE]},
    "both placements with algorithms": {"ranks": 8, "nodes": 1},
    "a blank first half": {"ranks": 8, "nodes": 1, "places": [IN_PLACE]},
    "a blank second half": {"ranks": 8, "nodes": 1, "places": [OUT_OF_PLACE]},
    "no reduction is named": {"ranks": 8, "nodes": 1},
    "unchecked values": {"ranks": 8, "nodes": 1, "wrong": None},
    "an error with an asterisk": {"ranks": 8, "nodes": 1},
    "types of ROCm": {"ranks": 8, "nodes": 1},
}


def read(directory: Path, content: str, **options: str) -> BenchmarkRun:
    path = directory / "results"
    path.write_text(content)
    (run,) = read_benchmark(path, **options)
    return run


@for_each({name: (content, EXPECTED.get(name, {})) for name, content in TEXTS.items()})
def test_whole_rows_of_text_are_read(content: str, expected: dict[str, Any], tmp_path: Path) -> None:
    check(read(tmp_path, content), **expected)


def check(
    run: BenchmarkRun,
    *,
    sizes: list[int] | None = None,
    ranks: int | None = 16,
    nodes: int | None = 2,
    places: list[str] = BOTH,
    complete: bool = True,
    note: str = "",
    form: str = "nccl-tests text",
    wrong: float | None = 0,
) -> None:
    rows = run.measurements
    expected = [(size * GB, place) for size in sizes or [1] for place in places]
    assert [(one.size_bytes, one.placement) for one in rows] == expected
    assert {one.bus_bytes_per_second for one in rows} <= {316.05e9, 316.00e9}
    assert rows[0].wrong == wrong
    assert (run.ranks, run.nodes, run.complete, run.form) == (ranks, nodes, complete, form)
    assert any(note in remark for remark in run.remarks) if note else not run.remarks


def test_runs_one_after_the_other_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "results"
    runs = [
        text(f"# Collective test starting: {name}_perf", plan(), ranks(count, hosts), header(), row(GB, half, half))
        + ("# Avg bus bandwidth    : 316.03\n" if whole else "")
        for name, count, hosts, half, whole in (
            ("all_reduce", 8, ["a"], "   6370.0  168.56  316.05      0", True),
            ("all_gather", 16, ["a", "b"], "   6370.0  168.56  317.05      0", False),
            ("alltoall", 32, ["a", "b", "c", "d"], "   6370.0  168.56  318.05      0", True),
        )
    ]
    aborted = text("# Collective test starting: broadcast_perf", plan(), ranks(8, ["a"]), header(), row(GB) + "abort")
    path.write_text("".join(runs) + aborted)
    results = read_benchmark(path)
    assert results[0].remarks == ("1 further run of this file left out: without a whole row",)
    found = [
        (run.measurements[0].collective, run.ranks, run.nodes, run.complete, run.measurements[1].bus_bytes_per_second)
        for run in results
    ]
    assert found == [
        ("all_reduce", 8, 1, True, 316.05e9),
        ("all_gather", 16, 2, False, 317.05e9),
        ("alltoall", 32, 4, True, 318.05e9),
    ]


PARTS = {"rows": 2, "collective": "reduce_scatter", "ranks": 16, "nodes": 2}
RCCL_EXPECTED: dict[str, dict[str, Any]] = {
    "a list cut off": {"rows": 3, "complete": False},
    "a line cut off": {"rows": 3, "complete": False},
    "processes": PARTS,
    "CSV of processes": PARTS,
    "CSV": {"rows": 1, "complete": False},
}


@for_each({name: (content, RCCL_EXPECTED.get(name, {})) for name, content in RCCL.items()})
def test_results_of_rccl_tests(content: str, expected: dict[str, Any], tmp_path: Path) -> None:
    check_rccl(read(tmp_path, content), **expected)


def test_separators_in_texts_of_rccl_end_no_line(tmp_path: Path) -> None:
    odd = "mi300x\u2028\x851"
    lines = [json.dumps(row | {"host": odd}, ensure_ascii=False) for row in RCCL_ROWS]
    check_rccl(read(tmp_path, "\n".join(lines) + "\n"))
    head, *rows = next(content for content in RCCL.values() if content.startswith("numCycle,collective")).splitlines()
    table = "".join([f"{head},host\n", *(f"{row},{odd}\n" for row in rows)])
    check_rccl(read(tmp_path, table), rows=1, complete=False)


def check_rccl(
    run: BenchmarkRun,
    *,
    rows: int = 4,
    collective: str = "all_reduce",
    ranks: int = 8,
    nodes: int = 1,
    complete: bool = True,
) -> None:
    sizes = [GB, GB, 2 * GB, 2 * GB][:rows]
    assert [(one.size_bytes, one.placement) for one in run.measurements] == list(zip(sizes, BOTH * 2, strict=False))
    assert {one.collective for one in run.measurements} == {collective}
    first = run.measurements[0]
    assert (first.seconds, first.bus_bytes_per_second, first.wrong) == (pytest.approx(5636.4e-6), 333.375e9, 0)
    assert (run.ranks, run.nodes, run.complete) == (ranks, nodes, complete)
    assert bool(run.remarks) is not complete


PERFTEST_EXPECTED: dict[str, dict[str, Any]] = {
    "all sizes": {"sizes": [2, 65536]},
    "a message in a row": {"note": LEFT_OUT},
    "no end": {"complete": False},
    "both sides": {"directions": 2, "note": "a bidirectional test adds both directions"},
}


@for_each({name: (content, PERFTEST_EXPECTED.get(name, {})) for name, content in PERFTEST.items()})
def test_text_of_perftest(content: str, expected: dict[str, Any], tmp_path: Path) -> None:
    check_perftest(read(tmp_path, content), **expected)


def check_perftest(
    run: BenchmarkRun,
    *,
    sizes: list[int] | None = None,
    complete: bool = True,
    directions: int = 1,
    note: str = "",
) -> None:
    last = run.measurements[-1]
    assert [one.size_bytes for one in run.measurements] == (sizes or [65536])
    # size and rate of the messages are the same bandwidth
    assert last.bus_bytes_per_second == pytest.approx(65536 * 0.751131e6, rel=1e-4)
    assert last.operations == 5000
    assert (run.device, run.mtu_bytes, run.link_layer) == ("mlx5_0", 4096, "InfiniBand")
    assert (run.complete, run.directions, run.remarks) == (
        complete,
        directions,
        tuple([run.remarks[0]] if note else []),
    )
    assert note in "".join(run.remarks)


def test_tests_of_perftest_one_after_the_other_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text(
        PERFTEST["Gb/s"].replace("mlx5_0", "mlx5_7")
        + PERFTEST["both sides"]
        + PERFTEST["no end"]
        + OTHERS["latency"][0]
    )
    runs = read_benchmark(path)
    assert runs[0].remarks == ("1 further test of this file left out: without a whole row",)
    found = [(run.device, len(run.measurements), run.directions, run.complete) for run in runs]
    assert found == [("mlx5_7", 1, 1, True), ("mlx5_0", 1, 2, True), ("mlx5_0", 1, 1, False)]


def test_json_of_perftest_without_quotes(tmp_path: Path) -> None:
    run = read(tmp_path, UNQUOTED)
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(393.81e9 / 8)
    assert (run.device, run.link_layer, run.mtu_bytes) == ("mlx5_0", "InfiniBand", 4096)
    assert run.measurements[0].collective == "RDMA_Write_BW_Test"


def test_both_sides_of_perftest_are_added(tmp_path: Path) -> None:
    run = read(tmp_path, SIDES)
    assert (run.measurements[0].bus_bytes_per_second, run.directions) == (pytest.approx(393.81e9 / 8), 2)


@for_each(OTHERS)
def test_other_files_are_refused_by_name(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError) as refusal:
        read(tmp_path, content)
    assert sentence in str(refusal.value)
    assert "again" not in str(refusal.value)
