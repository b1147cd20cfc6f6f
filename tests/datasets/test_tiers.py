"""The small tiers of a recording: sums, seconds and steps against known traffic, in whatever pieces it comes."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from ibpulse.core.recordings import Recording, RecordingExtent
from ibpulse.workbench.fleet.dataset import NODE_SUMS, RAIL_SECONDS, STEPS
from ibpulse.workbench.fleet.tiers import choose_rails, compute_tiers
from tests.datasets.known_traffic import INTERVAL_NS, LINE_RATE, RATE, START_NS, Node, Pipeline, job
from tests.recordings.recordings import make_recording

TICKS = 3000


class Tiers(NamedTuple):
    tables: dict[str, Any]
    numbers: dict[str, Any]


def tiers(recording: Recording, cuts: tuple[int, ...] = (), **options: Any) -> Tiers:
    extent = RecordingExtent(recording.meta, recording.start_ns, recording.ticks)
    bounds = (0, *cuts, recording.ticks)
    pieces = [recording.cut(first, end) for first, end in itertools.pairwise(bounds)]
    return Tiers(*compute_tiers(extent, pieces, **options))


def column(found: Tiers, tier: str, name: str) -> list[Any]:
    values: list[Any] = found.tables[tier].column(name).to_pylist()
    return values


@pytest.fixture(scope="module")
def two_pipelines() -> Tiers:
    """Two pipelines of one node, half a step apart; the second one transmits 5 ms later than it receives."""
    node = Node(
        pipelines=(Pipeline((0, 1)), Pipeline((2, 3), first=0.35, late=0.005)),
        ports=5,
        noise=0.02,
        jobs=(job("7", 0, 1),),
    )
    return tiers(node.record(TICKS), labels={"stage": "0", "stage_mlx5_2": "1", "stage_mlx5_3": "1"})


def test_tiers_do_not_depend_on_the_pieces() -> None:
    recording = make_recording(1000, ports=3)
    whole, cut = tiers(recording), tiers(recording, (1, 7, 333, 998))
    for tier in (NODE_SUMS, RAIL_SECONDS, STEPS):
        assert whole.tables[tier].equals(cut.tables[tier])


def test_node_sums_count_observed_rails() -> None:
    recording = make_recording(500, ports=3)
    recording.bytes_per_second[:, 1, 77], recording.seconds[:, 1, 77] = np.nan, 0
    found = tiers(recording)
    rates = recording.bytes_per_second.astype(np.float32)
    for way, name in enumerate(("transmit", "receive")):
        sums = [
            None if np.isnan(each).all() else float(np.float32(np.nansum(each.astype(np.float64))))
            for each in rates[:, way].T
        ]
        assert column(found, NODE_SUMS, f"{name}_bytes_per_second") == sums
    observed = np.count_nonzero(~np.isnan(rates).any(axis=1), axis=0)
    assert column(found, NODE_SUMS, "rails_observed") == observed.tolist()
    assert set(column(found, NODE_SUMS, "rails")) == {3}
    assert column(found, NODE_SUMS, "time_ns") == recording.time_ns().tolist()


def test_seconds_have_the_samples_that_end_in_them() -> None:
    recording = make_recording(730, ports=2, start_ns=START_NS + 37 * INTERVAL_NS)
    found = tiers(recording)
    second = (recording.time_ns() - 1) // 10**9
    rows = found.tables[RAIL_SECONDS].to_pylist()
    assert [(row["time_ns"], row["port"]) for row in rows[:3]] == [
        (START_NS, "mlx5_0:1"),
        (START_NS, "mlx5_1:1"),
        (START_NS + 10**9, "mlx5_0:1"),
    ]
    for row in rows:
        port = int(row["port"][5])
        mine = second * 10**9 == row["time_ns"]
        rates, peaks = recording.bytes_per_second[port][:, mine], recording.peaks[port][:, mine]
        assert row["receive_bytes_per_second"] == pytest.approx(np.nanmean(rates[1]), rel=1e-6)
        assert row["transmit_peak_bytes_per_second"] == pytest.approx(np.nanmax(peaks[0]), rel=1e-6)
        assert row["observed_ratio"] == pytest.approx(np.count_nonzero(~np.isnan(rates).any(axis=0)) / 100)


def test_pipelines_on_one_node_are_two_groups_with_their_bytes(two_pipelines: Tiers) -> None:
    rows = two_pipelines.tables[STEPS].to_pylist()
    groups = {row["group"]: (row["ports"], row["owner"], row["stage"]) for row in rows}
    assert groups == {0: ("mlx5_0:1,mlx5_1:1", "7", "0"), 1: ("mlx5_2:1,mlx5_3:1", None, "1")}
    # 42 silences of 43 steps have traffic on both sides, so there is one whole step less
    assert [sum(row["group"] == group for row in rows) for group in (0, 1)] == [41, 40]
    (row, *_) = two_pipelines.tables[STEPS].to_pylist()
    # two ports, and bursts that are 280 ms of a step: three pauses of 40 ms
    assert row["receive_bytes"] == pytest.approx(2 * RATE * 0.28, rel=0.01)
    assert row["transmit_bytes"] == pytest.approx(2 * RATE * 0.28, rel=0.01)
    assert row["silent_ratio"] == pytest.approx(1 - 0.28 / 0.7, abs=0.12)
    assert row["missing_ratio"] == 0


def test_pipelines_of_one_owner_differ_by_rhythm() -> None:
    node = Node(pipelines=(Pipeline((0, 1)), Pipeline((2,), first=0.35), Pipeline((3,), late=0.02)), ports=4)
    rows = tiers(node.record(1000)).tables[STEPS].to_pylist()
    assert {row["ports"] for row in rows} == {"mlx5_0:1,mlx5_1:1,mlx5_3:1", "mlx5_2:1"}


def test_edges_match_the_known_traffic(two_pipelines: Tiers) -> None:
    rows = two_pipelines.tables[STEPS].to_pylist()
    pipelines = (Pipeline((0, 1)), Pipeline((2, 3), first=0.35, late=0.005))
    for group, pipeline in enumerate(pipelines):
        mine = [row for row in rows if row["group"] == group]
        transmit, receive, end = (START_NS + 1e9 * each for each in pipeline.edges(len(mine) + 2))
        # the first silence follows the first step
        truth = {
            "begin": end[:-2],
            "transmit_first": transmit[1:-1],
            "receive_first": receive[1:-1],
            "transmit_end": end[1:-1],
            "receive_end": end[1:-1],
        }
        for name, times in truth.items():
            found = np.array([row[f"{name}_ns"] for row in mine])
            bound = np.array([row[f"{name}_bound_ns"] for row in mine])
            assert np.sqrt(np.mean(np.square(found - times))) < 0.3e6, name
            assert (np.abs(found - times) <= bound + 1).all(), name
            assert all(row[f"{name}_resolved"] for row in mine), name
        own = np.median([row["transmit_first_ns"] - row["receive_first_ns"] for row in mine])
        assert own == pytest.approx(1e9 * pipeline.late, abs=0.2e6)


def test_missing_samples_are_bridged_or_widen_bounds() -> None:
    # the second silence is from 1.354 to 1.654 s
    healthy = tiers(Node().record(1000)).tables[STEPS].to_pylist()
    silent = tiers(Node(missing=((0, 145, 148),)).record(1000)).tables[STEPS].to_pylist()
    assert [row["transmit_first_ns"] for row in silent] == [row["transmit_first_ns"] for row in healthy]
    assert [row["bridged_samples"] for row in silent[:3]] == [0, 3, 0]
    assert silent[1]["missing_ratio"] == pytest.approx(3 / 70 / 2)
    edge = tiers(Node(missing=((0, 164, 166),)).record(1000)).tables[STEPS].to_pylist()
    doubted, known = edge[1], healthy[1]
    assert not doubted["transmit_first_resolved"]
    assert doubted["transmit_first_bound_ns"] > known["transmit_first_bound_ns"]
    assert abs(doubted["transmit_first_ns"] - known["transmit_first_ns"]) <= doubted["transmit_first_bound_ns"]


def test_a_dead_rail_keeps_the_steps_of_others() -> None:
    found = tiers(Node(missing=((1, 500, 1000),)).record(1000))
    healthy = tiers(Node().record(1000))
    assert len(column(found, STEPS, "step")) == len(column(healthy, STEPS, "step"))
    assert found.numbers["observed_ratio"] == pytest.approx(0.75)
    assert set(column(found, NODE_SUMS, "rails_observed")[600:]) == {1}


def test_only_the_ports_of_a_chosen_job_count() -> None:
    node = Node(ports=3, pipelines=(Pipeline((0, 1, 2)),), jobs=(job("7", 1), job("8", 2)), rails=(0, 1))
    meta = node.record(10).meta
    assert choose_rails(meta) == [0, 1]
    assert choose_rails(meta, "7") == choose_rails(meta, "slurm:7") == [1]
    assert choose_rails(meta, "9") == [0, 1]
    found = tiers(node.record(1000), job="8")
    assert set(column(found, STEPS, "ports")) == {"mlx5_2:1"}
    assert found.numbers["line_rate_bytes_per_second"] == LINE_RATE


def test_steady_traffic_and_silence_have_no_steps() -> None:
    quiet = tiers(Node(pipelines=()).record(500))
    assert (quiet.numbers["step_groups"], quiet.tables[STEPS].num_rows) == (0, 0)
    steady = tiers(Node(pipelines=(Pipeline((0, 1), begins=0, busy=0.7, bursts=1),)).record(500))
    assert (steady.numbers["step_groups"], steady.tables[STEPS].num_rows) == (1, 0)


def test_pieces_of_another_part_are_refused() -> None:
    recording = make_recording(100)
    extent = RecordingExtent(recording.meta, recording.start_ns, 100)
    with pytest.raises(ValueError, match="does not follow"):
        compute_tiers(extent, [recording.cut(0, 10), recording.cut(11, 100)])
    with pytest.raises(ValueError, match="have 90 samples; 100"):
        compute_tiers(extent, [recording.cut(0, 90)])
