"""Files of every variant and as users have them: whole rows are read with their units, the others are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import BenchmarkError
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.results import IN_PLACE, OUT_OF_PLACE, BenchmarkRun, RunPlan
from tests.nccl.benchmark_writers import SIZES, inspector_line, nccl_document, nccl_json, nccl_text, perftest
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


def read(tmp_path: Path, text: str, **options: str) -> BenchmarkRun:
    path = tmp_path / "benchmark"
    path.write_text(text)
    (run,) = read_benchmark(path, **options)
    return run


def test_text_is_read_with_its_units(tmp_path: Path) -> None:
    run = read(tmp_path, nccl_text())
    assert [(row.size_bytes, row.placement) for row in run.measurements] == [
        (size, place) for size in SIZES for place in (OUT_OF_PLACE, IN_PLACE)
    ]
    assert {row.bus_bytes_per_second for row in run.measurements} == {360e9}
    assert run.measurements[4].seconds == pytest.approx(2**30 * 1.875 / 360e9, rel=1e-3)
    assert (run.ranks, run.nodes, run.groups, run.complete) == (16, 2, 1, True)
    assert run.plan == RunPlan(SIZES[0], SIZES[-1], 1, 20, 1, 1)
    assert (run.measurements[0].collective, run.measurements[0].wrong) == ("all_reduce", 0)
    run = read(tmp_path, nccl_text().replace("  time  ", "  cputime  "))
    assert {row.seconds for row in run.measurements} == {None}
    run = read(tmp_path, nccl_text(sizes=(1 << 40,), rate=9e9))
    assert run.measurements[0].seconds == pytest.approx(2**40 * 1.875 / 9e9, rel=0.05)
    assert read(tmp_path, TEXTS["old"], collective="alltoall").measurements[0].collective == "alltoall"
    assert read(tmp_path, nccl_text(), collective="alltoall").measurements[0].collective == "all_reduce"
    content = nccl_text()
    cut = content[: content.index("\n# Out of bounds") - 4]
    run = read(tmp_path, cut)
    assert [row.size_bytes for row in run.measurements[::2]] == list(SIZES[:-1])
    assert not run.complete


@pytest.mark.parametrize("version", [1, 2, 3])
def test_json_is_read_in_every_version(tmp_path: Path, version: int) -> None:
    run = read(tmp_path, nccl_json(version=version))
    assert (run.ranks, run.nodes, run.groups, run.complete, run.remarks) == (16, 2, 1, True, ())
    assert run.plan == RunPlan(SIZES[0], SIZES[-1], 1, 20, 1, 1)
    first, second = run.measurements[:2]
    assert (first.collective, first.size_bytes, first.wrong, second.wrong) == ("all_reduce", SIZES[0], 0.0, None)
    assert first.bus_bytes_per_second == 360e9
    assert first.seconds == pytest.approx(SIZES[0] * 1.875 / 360e9)


def test_a_run_with_cuda_graphs_has_no_plan(tmp_path: Path) -> None:
    document = nccl_document()
    document["config"]["graph"] = 4
    for content in (json.dumps(document), nccl_text().replace("graph: 0", "graph: 4")):
        run = read(tmp_path, content)
        assert run.plan is None
        assert run.measurements[0].operations is None
        assert run.remarks[0].startswith("the run used CUDA graphs")


def test_oddities_of_json_are_read(tmp_path: Path) -> None:
    (remark,) = read(tmp_path, nccl_json(version=4)).remarks
    assert remark.startswith("version 4 of the format is newer than 3")
    document = nccl_document()
    document["results"][0] |= {"out_of_place": None, "in_place": {"cpu_time": 5.0, "bus_bw": "nan", "nwrong": None}}
    row = read(tmp_path, json.dumps(document)).measurements[0]
    assert (row.placement, row.seconds, row.bus_bytes_per_second, row.wrong) == (IN_PLACE, None, None, None)
    content = nccl_json().replace('"bus_bw":360.0', '"bus_bw":inf')
    run = read(tmp_path, content)
    assert {row.bus_bytes_per_second for row in run.measurements} == {None}
    assert run.remarks == ("the file is not valid JSON; known faults of its writer were repaired",)
    run = read(tmp_path, nccl_json(processes=4, nodes=4, groups=2))
    assert (run.ranks, run.nodes, run.groups) == (16, 2, 2)


@pytest.mark.parametrize("gigabits", [True, False])
def test_the_unit_of_perftest_is_inferred(tmp_path: Path, gigabits: bool) -> None:
    run = read(tmp_path, perftest(gigabits=gigabits))
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(385e9 / 8, rel=1e-4)
    unit = "Gb/s" if gigabits else "MiB/s"
    assert run.remarks == (f"bandwidth is in {unit}, inferred from size and rate of the messages",)
    assert (run.device, run.directions) == ("mlx5_0", 1)


def test_forms_and_faults_of_json_of_perftest(tmp_path: Path) -> None:
    assert read(tmp_path, perftest(name="RDMA_Write_Bidirectional_BW_Test")).directions == 2
    content = perftest(CPU_util="1.5,").replace('"MsgSize"', 'sl: 3,\n"MsgSize"').replace('"OFF",', '"OFF"')
    run = read(tmp_path, content)
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(385e9 / 8, rel=1e-4)
    assert run.remarks[0].startswith("the file is not valid JSON")
    run = read(tmp_path, UNQUOTED)
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(393.81e9 / 8)
    assert run.device == "mlx5_0"
    assert run.measurements[0].collective == "RDMA_Write_BW_Test"
    run = read(tmp_path, SIDES)
    assert (run.measurements[0].bus_bytes_per_second, run.directions) == (pytest.approx(393.81e9 / 8), 2)
    content = perftest(MsgRate=None)
    with pytest.raises(BenchmarkError, match="does not say the unit of its bandwidth; give --unit=MiB/s, or"):
        read(tmp_path, content)
    assert read(tmp_path, content, unit="Gb/s").measurements[0].bus_bytes_per_second == 385e9 / 8
    (remark,) = read(tmp_path, perftest(), unit="MiB/s").remarks
    assert remark.endswith("do not fit that unit")


@pytest.mark.parametrize("version", ["v4.0", "v4.2"])
def test_bandwidths_of_inspector_are_as_documented(tmp_path: Path, version: str) -> None:
    lines = inspector_line("AllReduce", 17179869184, 61974, version=version)
    lines += inspector_line("ReduceScatter", 2147483648, 41057, version=version)
    reduce, scatter = read(tmp_path, lines).measurements
    found = [(row.algorithm_bytes_per_second, row.bus_bytes_per_second) for row in (reduce, scatter)]
    assert found[0] == pytest.approx((277.210914e9, 485.119099e9), rel=1e-8)
    assert found[1] == pytest.approx((418.439467e9, 366.134533e9), rel=1e-8)
    assert scatter.size_bytes == 8 * 2147483648
    assert (reduce.algorithm, reduce.protocol) == (("ring", "simple") if version == "v4.2" else ("", ""))


def test_operations_of_one_kind_are_one_row(tmp_path: Path) -> None:
    stats = json.dumps({"header": {"n_ranks": 8, "nnodes": 1}, "dump_stats": {"coll_dropped_since_last_dump": 5}})
    lines = inspector_line("AllReduce", 1 << 20, 100) + inspector_line("AllReduce", 1 << 20, 300)
    run = read(tmp_path, f'{stats}\n{lines}{inspector_line("AllReduce", 9, 0)}{{"header":')
    (row,) = run.measurements
    assert (row.operations, row.seconds, row.ranks, row.nodes) == (2, pytest.approx(200e-6), 8, 1)
    assert run.remarks == (
        "1 lines that are not complete or have an invalid value were skipped",
        "1 operations without a time were skipped",
        "NCCL Inspector dropped 5 operations",
    )
    assert not run.complete


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
    "old": {"wrong": None},
    "unchecked values": {"ranks": 8, "nodes": 1, "wrong": None},
    "single iterations": {"ranks": 8, "nodes": 1},
    "time stamps": {"ranks": 8, "nodes": 1},
    "single iterations and time stamps": {"ranks": 8, "nodes": 1},
    "an error with an asterisk": {"ranks": 8, "nodes": 1},
    "types of ROCm": {"ranks": 8, "nodes": 1},
}


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
    assert run.device == "mlx5_0"
    assert (run.complete, run.directions, run.remarks) == (
        complete,
        directions,
        tuple([run.remarks[0]] if note else []),
    )
    assert note in "".join(run.remarks)


def test_consecutive_tests_of_perftest_stay_apart(tmp_path: Path) -> None:
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


@for_each(OTHERS)
def test_other_files_are_refused_by_name(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError) as refusal:
        read(tmp_path, content)
    assert sentence in str(refusal.value)
    assert "again" not in str(refusal.value)
