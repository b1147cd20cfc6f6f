"""Files of every variant, rebuilt from the sources of their programs, are read with their units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import BenchmarkError
from ibpulse.workbench.nccl.benchmark_files import read_benchmark
from ibpulse.workbench.nccl.measurement import IN_PLACE, OUT_OF_PLACE, BenchmarkRun, RunPlan
from tests.nccl.benchmark_writers import SIZES, inspector_line, nccl_document, nccl_json, nccl_text, perftest


def read(tmp_path: Path, text: str, **options: str) -> BenchmarkRun:
    path = tmp_path / "benchmark"
    path.write_text(text)
    (run,) = read_benchmark(path, **options)
    return run


VARIANTS: dict[str, dict[str, Any]] = {
    "newest": {},
    "old": {"old": True},
    "single iterations": {"per_iteration": True},
    "time stamps": {"stamps": True},
    "stamps and iterations": {"per_iteration": True, "stamps": True},
    "unchecked": {"checked": False},
    "prefix of mpirun": {"prefix": "[1,0]<stdout>: "},
    "prefix of srun": {"prefix": "0: "},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_text_is_read_in_every_variant(tmp_path: Path, options: dict[str, Any]) -> None:
    run = read(tmp_path, nccl_text(**options))
    assert [(row.size_bytes, row.placement) for row in run.measurements] == [
        (size, place) for size in SIZES for place in (OUT_OF_PLACE, IN_PLACE)
    ]
    assert {row.bus_bytes_per_second for row in run.measurements} == {360e9}
    assert run.measurements[4].seconds == pytest.approx(2**30 * 1.875 / 360e9, rel=1e-3)
    assert (run.ranks, run.nodes, run.groups, run.complete) == (16, 2, 1, True)
    assert run.plan == RunPlan(SIZES[0], SIZES[-1], 1, 20, 1, 1)
    assert run.measurements[0].collective == ("" if options.get("old") else "all_reduce")
    assert run.measurements[0].wrong == (None if options.get("old") or options.get("checked") is False else 0)


def test_time_of_the_cpu_is_not_time_of_the_operation(tmp_path: Path) -> None:
    run = read(tmp_path, nccl_text(cpu_time=True))
    assert {row.seconds for row in run.measurements} == {None}


def test_a_replay_has_only_in_place_results(tmp_path: Path) -> None:
    run = read(tmp_path, nccl_text(blank_out_of_place=True))
    assert [row.placement for row in run.measurements] == [IN_PLACE] * len(SIZES)


def test_wide_numbers_of_the_text_are_read(tmp_path: Path) -> None:
    run = read(tmp_path, nccl_text(sizes=(1 << 40,), rate=9e9))
    assert run.measurements[0].seconds == pytest.approx(2**40 * 1.875 / 9e9, rel=0.05)


def test_a_collective_that_is_not_named_can_be_given(tmp_path: Path) -> None:
    assert read(tmp_path, nccl_text(old=True), collective="alltoall").measurements[0].collective == "alltoall"
    assert read(tmp_path, nccl_text(), collective="alltoall").measurements[0].collective == "all_reduce"


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
    for text in (json.dumps(document), nccl_text().replace("graph: 0", "graph: 4")):
        run = read(tmp_path, text)
        assert run.plan is None
        assert run.measurements[0].operations is None
        assert run.remarks[0].startswith("the run used CUDA graphs")


def test_a_last_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    text = nccl_text()
    cut = text[: text.index("\n# Out of bounds") - 4]
    run = read(tmp_path, cut)
    assert [row.size_bytes for row in run.measurements[::2]] == list(SIZES[:-1])
    assert not run.complete


def test_a_newer_version_of_json_is_named(tmp_path: Path) -> None:
    (remark,) = read(tmp_path, nccl_json(version=4)).remarks
    assert remark.startswith("version 4 of the format is newer than 3")


def test_missing_values_of_json_stay_missing(tmp_path: Path) -> None:
    document = nccl_document()
    document["results"][0] |= {"out_of_place": None, "in_place": {"cpu_time": 5.0, "bus_bw": "nan", "nwrong": None}}
    row = read(tmp_path, json.dumps(document)).measurements[0]
    assert (row.placement, row.seconds, row.bus_bytes_per_second, row.wrong) == (IN_PLACE, None, None, None)


def test_parallel_groups_have_their_own_ranks_and_nodes(tmp_path: Path) -> None:
    run = read(tmp_path, nccl_json(processes=4, nodes=4, groups=2))
    assert (run.ranks, run.nodes, run.groups) == (16, 2, 2)


def test_infinity_of_printf_is_missing(tmp_path: Path) -> None:
    text = nccl_json().replace('"bus_bw":360.0', '"bus_bw":inf')
    run = read(tmp_path, text)
    assert {row.bus_bytes_per_second for row in run.measurements} == {None}
    assert run.remarks == ("the file is not valid JSON; known faults of its writer were repaired",)


@pytest.mark.parametrize("gigabits", [True, False])
def test_the_unit_of_perftest_is_inferred_and_said(tmp_path: Path, gigabits: bool) -> None:
    run = read(tmp_path, perftest(gigabits=gigabits))
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(385e9 / 8, rel=1e-4)
    unit = "Gb/s" if gigabits else "MiB/s"
    assert run.remarks == (f"bandwidth is in {unit}, inferred from size and rate of the messages",)
    assert (run.device, run.link_layer, run.mtu_bytes, run.directions) == ("mlx5_0", "InfiniBand", 4096, 1)


def test_the_unit_of_perftest_must_be_given_if_it_cannot_be_inferred(tmp_path: Path) -> None:
    text = perftest(MsgRate=None)
    with pytest.raises(BenchmarkError, match="does not say the unit of its bandwidth; give --unit=MiB/s, or"):
        read(tmp_path, text)
    assert read(tmp_path, text, unit="Gb/s").measurements[0].bus_bytes_per_second == 385e9 / 8
    (remark,) = read(tmp_path, perftest(), unit="MiB/s").remarks
    assert remark.endswith("do not fit that unit")


def test_a_bidirectional_perftest_has_two_directions(tmp_path: Path) -> None:
    assert read(tmp_path, perftest(name="RDMA_Write_Bidirectional_BW_Test")).directions == 2


def test_faults_of_perftests_json_are_repaired(tmp_path: Path) -> None:
    text = perftest(CPU_util="1.5,").replace('"MsgSize"', 'sl: 3,\n"MsgSize"').replace('"OFF",', '"OFF"')
    run = read(tmp_path, text)
    assert run.measurements[0].bus_bytes_per_second == pytest.approx(385e9 / 8, rel=1e-4)
    assert run.remarks[0].startswith("the file is not valid JSON")


@pytest.mark.parametrize("version", ["v4.0", "v4.2"])
def test_operations_of_inspector_have_the_bandwidth_that_its_documentation_computes(
    tmp_path: Path, version: str
) -> None:
    lines = inspector_line("AllReduce", 17179869184, 61974, version=version)
    lines += inspector_line("ReduceScatter", 2147483648, 41057, version=version)
    reduce, scatter = read(tmp_path, lines).measurements
    found = [(row.algorithm_bytes_per_second, row.bus_bytes_per_second) for row in (reduce, scatter)]
    assert found[0] == pytest.approx((277.210914e9, 485.119099e9), rel=1e-8)
    assert found[1] == pytest.approx((418.439467e9, 366.134533e9), rel=1e-8)
    assert scatter.size_bytes == 8 * 2147483648
    assert (reduce.algorithm, reduce.protocol) == (("ring", "simple") if version == "v4.2" else ("", ""))


def test_operations_of_one_kind_are_one_row_and_lost_ones_are_counted(tmp_path: Path) -> None:
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
