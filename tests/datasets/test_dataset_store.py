"""The files of a dataset: their paths, whole or not at all, and places that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.errors import DatasetError
from ibpulse.workbench.fleet.dataset_columns import make_table
from ibpulse.workbench.fleet.dataset_schema import MAX_ROWS, MISSING, RAW, SCHEMAS, TIERS, Part, parse_path
from ibpulse.workbench.fleet.dataset_store import MARK, DatasetStore
from ibpulse.workbench.fleet.span_parts import HOUR_NS, CoveredSpans, cut_span, most_samples
from tests.datasets.known_traffic import START_NS

PART = Part("slurm:42", "gpu-1", START_NS)
TABLE = make_table(MISSING, {"from_ns": [1], "to_ns": [2], "reason": ["it is away"]})


@given(st.text(max_size=30), st.text(min_size=1, max_size=30), st.integers(0, 2**62), st.sampled_from(TIERS))
def test_every_name_is_one_part_of_a_path_and_found_again(job: str, node: str, start_ns: int, tier: str) -> None:
    part = Part(job, node, start_ns)
    path = part.path(tier)
    assert path.isascii()
    assert path.count("/") == 5
    assert not {"", ".", ".."} & {folder.partition("=")[2] for folder in path.split("/")[:-1]}
    assert parse_path(f"somewhere/else/{path}") == (tier, part)


@pytest.mark.parametrize(
    "path", ["dataset.json", "tier=raw/node=a/part-1.parquet", "a/b/c/d/e/f", "part-x.parquet", ""]
)
def test_other_paths_are_no_parts(path: str) -> None:
    assert parse_path(path) is None


def test_no_key_is_a_column() -> None:
    assert not {"tier", "job", "date", "hour", "node"} & {name for schema in SCHEMAS.values() for name in schema.names}


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_what_was_written_is_read(tmp_path: Path, form: str) -> None:
    store = DatasetStore(form.format(tmp_path / "new" / "dataset"))
    store.begin()
    store.begin()
    assert not store.has(MISSING, PART)
    store.write_table(MISSING, PART, TABLE)
    assert store.has(MISSING, PART)
    assert store.parts(MISSING) == [PART]
    assert store.parts(RAW) == []
    assert store.read_table(MISSING, PART).equals(TABLE)
    store.copy_out(MISSING, PART, tmp_path / "copy")
    store.copy_in(RAW, PART, tmp_path / "copy")
    assert store.parts(RAW) == [PART]
    for tier in (RAW, MISSING, MISSING):
        store.remove(tier, PART)
    assert store.parts(MISSING) == []
    # nothing is left but folders and the mark
    assert {path.name for path in (tmp_path / "new").rglob("*") if path.is_file()} == {MARK}


def test_a_part_with_more_rows_than_an_hour_has_is_not_read(tmp_path: Path) -> None:
    store = DatasetStore(str(tmp_path))
    store.begin()
    count = MAX_ROWS[MISSING] + 1
    rows = {"from_ns": [1] * count, "to_ns": [2] * count, "reason": ["it is away"] * count}
    store.write_table(MISSING, PART, make_table(MISSING, rows))
    with pytest.raises(
        DatasetError, match=r"has a part of 3601 rows in the tier missing, more than the 3600 of an hour"
    ):
        store.read_table(MISSING, PART)


def test_a_file_that_cannot_be_finished_does_not_appear(tmp_path: Path) -> None:
    store = DatasetStore(str(tmp_path))
    store.begin()
    with pytest.raises(DatasetError, match="cannot be written: No such file"):
        store.copy_in(RAW, PART, tmp_path / "gone")
    (tmp_path / "unreadable").mkdir()
    with pytest.raises(DatasetError, match="cannot be written: Is a directory"):
        store.copy_in(RAW, PART, tmp_path / "unreadable")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / MARK]


def test_other_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("hours of work")
    with pytest.raises(DatasetError, match="is not empty and not a dataset; choose another place"):
        DatasetStore(str(tmp_path / "full")).begin()
    with pytest.raises(DatasetError, match=f"is not a dataset: it has no {MARK}"):
        DatasetStore(str(tmp_path)).check()
    with pytest.raises(DatasetError, match="is not a place for a dataset"):
        DatasetStore("gopher://hole")
    for content, reason in (
        ("[]", "is not one of ibpulse"),
        ("x", "is not one of ibpulse"),
        ('{"a": 1}', "not one of"),
    ):
        (tmp_path / MARK).write_text(content)
        with pytest.raises(DatasetError, match=reason):
            DatasetStore(str(tmp_path)).check()
    (tmp_path / MARK).write_text(json.dumps({"ibpulse_dataset_version": 9}))
    with pytest.raises(DatasetError, match="is of version 9, this program reads 1"):
        DatasetStore(str(tmp_path)).begin()


@given(st.integers(0, 10 * HOUR_NS), st.integers(1, 5 * HOUR_NS), st.integers(1, 256), st.sampled_from([10**6, 10**7]))
def test_a_span_is_cut_within_hours_and_the_same_each_time(begin: int, length: int, ports: int, interval: int) -> None:
    cuts = list(cut_span(begin, begin + length, interval, ports))
    assert [first for first, _ in cuts] == [begin, *(end for _, end in cuts[:-1])]
    assert cuts[-1][1] == begin + length
    for first, end in cuts:
        assert 0 < end - first <= most_samples(ports) * interval
        assert first // HOUR_NS == (end - 1) // HOUR_NS
    longer = list(cut_span(begin, begin + length + 1, interval, ports))
    assert longer[: len(cuts) - 1] == cuts[:-1]


def test_what_is_not_covered_is_left() -> None:
    covered = CoveredSpans()
    for begin, end in ((40, 50), (10, 20), (20, 25)):
        covered.add(Part("", "a", begin), end)
    assert list(covered.left("a", 0, 60)) == [(0, 10), (25, 40), (50, 60)]
    assert list(covered.left("a", 12, 22)) == []
    assert list(covered.left("a", 45, 47)) == []
    assert list(covered.left("a", 30, 35)) == [(30, 35)]
    assert list(covered.left("b", 1, 2)) == [(1, 2)]
    assert [part.start_ns for part in covered.within("a", 20, 41)] == [20, 40]
