"""`ibpulse nccl` beyond the contract, and runs written into recordings, whose trains are found with their bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.cli import main
from ibpulse.commands.options.explain import ALGORITHMS, COLLECTIVES, UNITS
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.nccl import results
from ibpulse.workbench.nccl.formats import UNITS as KNOWN_UNITS
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.report import align, total_bytes
from ibpulse.workbench.nccl.results import BenchmarkRun
from tests.nccl.benchmark_writers import nccl_json
from tests.recordings.recordings import make_meta


def test_every_choice_is_known_and_ranks_fit_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "x", "--ranks=9", "--nodes=2"], {}) == 2
    assert "9 is not a multiple of 2 nodes" in capsys.readouterr().err
    assert set(COLLECTIVES) <= set(results.COLLECTIVES)
    assert tuple(KNOWN_UNITS) == UNITS
    assert set(ALGORITHMS) | {"direct"} == {name for names in results.ALGORITHMS.values() for name in names}


RAILS, RANKS, NODES = 8, 16, 2
SAMPLE = 0.01
THRESHOLD = 0.1e9


def read(tmp_path: Path) -> BenchmarkRun:
    path = tmp_path / "run.json"
    path.write_text(nccl_json())
    return read_benchmark(path)[0]


def record(run: BenchmarkRun, ratio: float, shares: tuple[float, ...] = (1 / RAILS,) * RAILS) -> Recording:
    """The recording of a node: warm-up, then for each row the synchronising and timed operations, and a check.

    It is built from operations that each take their time and send their ring's bytes, on a time line of 10 ms.
    """
    rate: list[float] = [0.0] * 37
    plan = run.plan

    def operations(count: int, seconds: float, size: float) -> None:
        sent, lasts = 2 * size * (RANKS - 1) / RANKS * count * ratio, seconds * count
        whole = lasts / SAMPLE
        samples = [1.0] * int(whole) + [whole - int(whole)]
        rate.extend(sent / lasts * part for part in samples)

    for row in run.measurements[::2]:
        operations(plan.warmups, row.seconds or 0, row.size_bytes)
    rate.extend([0.0] * 11)
    for row in run.measurements:
        operations(1 + plan.iterations, row.seconds or 0, row.size_bytes)
        rate.extend([0.0] * 9)
        operations(plan.checks, row.seconds or 0, row.size_bytes)
        rate.extend([0.0] * 13)
    rates = np.zeros((RAILS, 2, len(rate)))
    rates[:, 0] = np.array(shares)[:, None] * np.array(rate)
    rates[:, 1] = rates[:, 0]
    meta = make_meta(RAILS)
    return Recording(meta, 1_763_683_200 * 10**9, rates, np.full_like(rates, SAMPLE))


@pytest.mark.parametrize("ratio", [1.0059, 1.0730, 2.0117, 0.5365])
def test_every_train_is_found_with_its_ratio(tmp_path: Path, ratio: float) -> None:
    run = read(tmp_path)
    found = align(run, RANKS, NODES, record(run, ratio), list(range(RAILS)), THRESHOLD)
    # 21 operations of 256 MiB take 29 ms
    assert (len(found.found), found.expected, found.short, found.problem) == (6, 8, 2, "")
    assert [one.train.row for one in found.found] == list(run.measurements[2:])
    assert [one.ratio for one in found.found] == pytest.approx([ratio] * 6, rel=1e-3)
    assert [one.first for one in found.found] == sorted(one.first for one in found.found)


def test_a_late_recording_has_the_remaining_trains(tmp_path: Path) -> None:
    run = read(tmp_path)
    recording = record(run, 1.0059)
    begin = align(run, RANKS, NODES, recording, list(range(RAILS)), THRESHOLD).found[2].first
    found = align(run, RANKS, NODES, recording.cut(begin - 5, recording.ticks), list(range(RAILS)), THRESHOLD).found
    assert [one.train.row for one in found] == list(run.measurements[4:])
    assert found[0].ratio == pytest.approx(1.0059, rel=1e-3)


def test_silence_another_run_and_a_file_without_its_plan_are_not_aligned(tmp_path: Path) -> None:
    run = read(tmp_path)
    other = replace(run, measurements=tuple(replace(row, seconds=(row.seconds or 0) * 5) for row in run.measurements))
    found = align(other, RANKS, NODES, record(run, 0.3), list(range(RAILS)), THRESHOLD)
    assert found.found == ()
    recording = record(run, 1e-9)
    assert align(run, RANKS, NODES, recording, list(range(RAILS)), THRESHOLD).problem.startswith("cannot align")
    run = replace(read(tmp_path), plan=None)
    found = align(run, RANKS, NODES, record(read(tmp_path), 1.0), list(range(RAILS)), THRESHOLD)
    assert found.problem.startswith("the file does not say how many operations")


def test_bytes_of_a_run_follow_from_its_plan(tmp_path: Path) -> None:
    run = read(tmp_path)
    sizes = [2**28, 2**29, 2**30, 2**31]
    sent = [2 * size * 15 / 16 for size in sizes]
    expected = 1 * sum(sent) + sum(2 * (1 + 20 * 1 + 1) * one for one in sent)
    assert total_bytes(run, run.plan, RANKS, NODES) == pytest.approx(expected)
    recording = record(run, 1.0)
    moved = float((recording.bytes_per_second[:, 0] * recording.seconds[:, 0]).sum())
    assert moved == pytest.approx(expected)


def test_the_command_compares_with_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = read(tmp_path)
    idle = (0.0, *[1 / 7] * 7)
    save(tmp_path / "run.parquet", record(run, 1.0059, idle))
    words = ["nccl", str(tmp_path / "run.json"), f"--against={tmp_path / 'run.parquet'}", "--mtu=4096"]
    assert main([*words, "--format=json"], {}) == 0
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    wire = told["wire"]
    assert (len(wire["trains"]), wire["expected_trains"]) == (6, 8)
    assert wire["median_ratio"] == pytest.approx(1.0059, rel=1e-3)
    assert wire["trains"][0]["explanations"] == ["ring, simple"]
    assert wire["rails"][0] == {"rail": "mlx5_0:1", "share_ratio": 0.0}
    assert [(one["rail"], one["kind"]) for one in told["suspects"]] == [("mlx5_0:1", "idle rail")]
    assert (told["hardware"]["rails"], told["hardware"]["rail_bytes_per_second"]) == (8, 50e9)
    assert told["rows"][0]["bound_bytes_per_second"] == [400e9, pytest.approx(750e9)]
    assert main(words, {}) == 0
    text = capsys.readouterr().out
    assert "6 of 8 trains found, 2 too short to resolve" in text
    assert "suspects (guesses):\n  mlx5_0:1: idle rail: it carried 0.00 % of the bytes\n" in text
