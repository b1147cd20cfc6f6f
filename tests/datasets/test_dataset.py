"""The files of a dataset: their paths, whole or not at all, other places, and spans."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.errors import DatasetError
from ibpulse.workbench.fleet import dataset
from ibpulse.workbench.fleet.collection import HOUR_NS, CoveredSpans, cut_span, max_samples
from tests.datasets.known_traffic import START_NS

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


def test_other_paths_are_ignored() -> None:
    paths = ("dataset.json", "tier=raw/node=a/part-1.parquet", "a/b/c/d/e/f", "part-x.parquet", "")
    assert [dataset.parse_path(path) for path in paths] == [None] * 5


def test_no_key_is_a_column() -> None:
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
