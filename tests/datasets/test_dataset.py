"""The files of a dataset: paths, places and spans, and the small tiers against known traffic."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.errors import DatasetError
from ibpulse.core.recordings import Recording, RecordingExtent
from ibpulse.workbench.fleet import dataset
from ibpulse.workbench.fleet.collection import HOUR_NS, CoveredSpans, cut_span, max_samples
from ibpulse.workbench.fleet.dataset import NODE_SUMS, RAIL_SECONDS, STEPS
from ibpulse.workbench.fleet.tiers import choose_rails, compute_tiers
from tests.datasets.known_traffic import INTERVAL_NS, LINE_RATE, RATE, START_NS, Node, Pipeline, job
from tests.recordings.recordings import make_recording

PART = dataset.Part("slurm:42", "gpu-1", START_NS)
TABLE = dataset.make_table(dataset.MISSING, {"from_ns": [1], "to_ns": [2], "reason": ["it is away"]})


@given(st.text(max_size=30), st.text(min_size=1, max_size=30), st.integers(0, 2**62), st.sampled_from(dataset.TIERS))
def test_names_survive_the_path(job: str, node: str, start_ns: int, tier: str) -> None:
    part = dataset.Part(job, node, start_ns)
    path = part.path(tier)
    assert path.isascii()
    assert path.count("/") == 5
    assert not {"", ".", ".."} & {folder.partition("=")[2] for folder in path.split("/")[:-1]}
    assert dataset.parse_path(f"somewhere/else/{path}") == (tier, part)


def test_other_paths_are_ignored_and_no_key_is_a_column() -> None:
    paths = ("dataset.json", "tier=raw/node=a/part-1.parquet", "a/b/c/d/e/f", "part-x.parquet", "")
    assert [dataset.parse_path(path) for path in paths] == [None] * 5
    assert not {"tier", "job", "date", "hour", "node"} & {
        name for schema in dataset.SCHEMAS.values() for name in schema.names
    }


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_written_files_are_read(tmp_path: Path, form: str) -> None:
    store = dataset.DatasetStore(form.format(tmp_path / "new" / "dataset"))
    store.begin()
    store.begin()
    store.write_table(dataset.MISSING, PART, TABLE)
    assert store.parts(dataset.MISSING) == [PART]
    assert store.parts(dataset.RAW) == []
    assert store.read_table(dataset.MISSING, PART).equals(TABLE)
    store.copy_out(dataset.MISSING, PART, tmp_path / "copy")
    store.copy_in(dataset.RAW, PART, tmp_path / "copy")
    assert store.parts(dataset.RAW) == [PART]
    for tier in (dataset.RAW, dataset.MISSING, dataset.MISSING):
        store.remove(PART.path(tier))
    assert store.parts(dataset.MISSING) == []
    # nothing is left but folders and the mark
    assert {path.name for path in (tmp_path / "new").rglob("*") if path.is_file()} == {dataset.MARK}


def test_too_many_rows_are_not_read(tmp_path: Path) -> None:
    store = dataset.DatasetStore(str(tmp_path))
    store.begin()
    count = dataset.MAX_ROWS[dataset.MISSING] + 1
    rows = {"from_ns": [1] * count, "to_ns": [2] * count, "reason": ["it is away"] * count}
    store.write_table(dataset.MISSING, PART, dataset.make_table(dataset.MISSING, rows))
    with pytest.raises(
        DatasetError, match=r"has a part of 3601 rows in the tier missing, more than the 3600 of an hour"
    ):
        store.read_table(dataset.MISSING, PART)


def test_unknown_values_are_null_and_times_exact() -> None:
    times = np.ma.masked_array([START_NS + 1, -1, 7], [False, True, False])
    unknown = {name: [None] * 3 for name in dataset.SCHEMAS[dataset.STEPS].names}
    row = {"begin_ns": times, "silent_ratio": np.array([0.5, np.nan, 0.25]), "owner": ["a", None, "a"]}
    found = dataset.make_table(dataset.STEPS, unknown | row)
    assert found.column("begin_ns").to_pylist() == [START_NS + 1, None, 7]
    assert found.column("silent_ratio").to_pylist() == [0.5, None, 0.25]
    assert found.column("owner").to_pylist() == ["a", None, "a"]


def test_unfinished_files_do_not_appear(tmp_path: Path) -> None:
    store = dataset.DatasetStore(str(tmp_path))
    store.begin()
    with pytest.raises(DatasetError, match="cannot be written: No such file"):
        store.copy_in(dataset.RAW, PART, tmp_path / "gone")
    (tmp_path / "unreadable").mkdir()
    with pytest.raises(DatasetError, match="cannot be written: Is a directory"):
        store.copy_in(dataset.RAW, PART, tmp_path / "unreadable")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / dataset.MARK]


def test_other_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("hours of work")
    with pytest.raises(DatasetError, match="is not empty and not a dataset; choose another place"):
        dataset.DatasetStore(str(tmp_path / "full")).begin()
    with pytest.raises(DatasetError, match=f"is not a dataset: it has no {dataset.MARK}"):
        dataset.DatasetStore(str(tmp_path)).check()
    with pytest.raises(DatasetError, match="is not a place for a dataset"):
        dataset.DatasetStore("gopher://hole")
    for content, reason in (
        ("[]", "is not one of ibpulse"),
        ("x", "is not one of ibpulse"),
        ('{"a": 1}', "not one of"),
    ):
        (tmp_path / dataset.MARK).write_text(content)
        with pytest.raises(DatasetError, match=reason):
            dataset.DatasetStore(str(tmp_path)).check()
    (tmp_path / dataset.MARK).write_text(json.dumps({"ibpulse_dataset_version": 9}))
    with pytest.raises(DatasetError, match="is of version 9, this program reads 1"):
        dataset.DatasetStore(str(tmp_path)).begin()


@given(st.integers(0, 10 * HOUR_NS), st.integers(1, 5 * HOUR_NS), st.integers(1, 256), st.sampled_from([10**6, 10**7]))
def test_spans_are_cut_within_hours_the_same_way(begin: int, length: int, ports: int, interval: int) -> None:
    cuts = list(cut_span(begin, begin + length, interval, ports))
    assert [first for first, _ in cuts] == [begin, *(end for _, end in cuts[:-1])]
    assert cuts[-1][1] == begin + length
    for first, end in cuts:
        assert 0 < end - first <= max_samples(ports) * interval
        assert first // HOUR_NS == (end - 1) // HOUR_NS
    longer = list(cut_span(begin, begin + length + 1, interval, ports))
    assert longer[: len(cuts) - 1] == cuts[:-1]


def test_uncovered_spans_are_left() -> None:
    covered = CoveredSpans()
    for begin, end in ((40, 50), (10, 20), (20, 25)):
        covered.add(dataset.Part("", "a", begin), end)
    assert list(covered.left("a", 0, 60)) == [(0, 10), (25, 40), (50, 60)]
    assert list(covered.left("a", 12, 22)) == []
    assert list(covered.left("a", 45, 47)) == []
    assert list(covered.left("a", 30, 35)) == [(30, 35)]
    assert list(covered.left("b", 1, 2)) == [(1, 2)]
    assert [part.start_ns for part in covered.within("a", 20, 41)] == [20, 40]


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


def test_steps_follow_rhythms_and_survive_a_dead_rail() -> None:
    node = Node(pipelines=(Pipeline((0, 1)), Pipeline((2,), first=0.35), Pipeline((3,), late=0.02)), ports=4)
    rows = tiers(node.record(1000)).tables[STEPS].to_pylist()
    assert {row["ports"] for row in rows} == {"mlx5_0:1,mlx5_1:1,mlx5_3:1", "mlx5_2:1"}
    found = tiers(Node(missing=((1, 500, 1000),)).record(1000))
    healthy = tiers(Node().record(1000))
    assert len(column(found, STEPS, "step")) == len(column(healthy, STEPS, "step"))
    assert found.numbers["observed_ratio"] == pytest.approx(0.75)
    assert set(column(found, NODE_SUMS, "rails_observed")[600:]) == {1}
    quiet = tiers(Node(pipelines=()).record(500))
    assert (quiet.numbers["step_groups"], quiet.tables[STEPS].num_rows) == (0, 0)
    steady = tiers(Node(pipelines=(Pipeline((0, 1), begins=0, busy=0.7, bursts=1),)).record(500))
    assert (steady.numbers["step_groups"], steady.tables[STEPS].num_rows) == (1, 0)


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


def test_only_the_ports_of_a_chosen_job_count() -> None:
    node = Node(ports=3, pipelines=(Pipeline((0, 1, 2)),), jobs=(job("7", 1), job("8", 2)), rails=(0, 1))
    meta = node.record(10).meta
    assert choose_rails(meta) == [0, 1]
    assert choose_rails(meta, "7") == choose_rails(meta, "slurm:7") == [1]
    assert choose_rails(meta, "9") == [0, 1]
    found = tiers(node.record(1000), job="8")
    assert set(column(found, STEPS, "ports")) == {"mlx5_2:1"}
    assert found.numbers["line_rate_bytes_per_second"] == LINE_RATE


def test_pieces_of_another_part_are_refused() -> None:
    recording = make_recording(100)
    extent = RecordingExtent(recording.meta, recording.start_ns, 100)
    with pytest.raises(ValueError, match="does not follow"):
        compute_tiers(extent, [recording.cut(0, 10), recording.cut(11, 100)])
    with pytest.raises(ValueError, match="have 90 samples; 100"):
        compute_tiers(extent, [recording.cut(0, 90)])
