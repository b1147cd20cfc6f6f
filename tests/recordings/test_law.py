"""What is saved is what is loaded, however it was written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.recordings import Recording, RecordingWriter, concatenate, load, read_meta, save, scan, writing
from tests.recordings.recordings import make_meta, make_recording, recordings


@settings(max_examples=50, deadline=None)
@given(recordings())
def test_what_is_loaded_is_what_was_saved(recording: Recording) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        save(path, recording)
        assert load(path) == recording
        assert read_meta(path) == recording.meta


@settings(max_examples=25, deadline=None)
@given(recordings(), st.lists(st.integers(1, 8)))
def test_what_is_appended_piece_by_piece_is_loaded_whole(recording: Recording, cuts: Sequence[int]) -> None:
    edges = sorted({0, recording.ticks, *(cut for cut in cuts if cut < recording.ticks)})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        with RecordingWriter(path, recording.meta) as writer:
            for first, end in itertools.pairwise(edges):
                writer.append(recording.cut(first, end))
        loaded = load(path)
        assert loaded.meta.complete
        assert Recording(recording.meta, loaded.start_ns, loaded.bytes_per_second, loaded.seconds) == recording
        assert [file.name for file in Path(folder).iterdir()] == ["a.parquet"]


def test_a_long_recording_has_several_row_groups_and_comes_back_piece_by_piece(tmp_path: Path) -> None:
    recording = make_recording(2 * writing.GROUP_ROWS // 8 + 5, ports=8)
    save(tmp_path / "a.parquet", recording)
    pieces = list(scan(tmp_path / "a.parquet"))
    assert [piece.ticks for piece in pieces] == [8192, 8192, 5]
    assert concatenate(pieces) == recording


def test_small_pieces_are_put_together_to_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GROUP_ROWS", 60)
    recording = make_recording(100)
    with RecordingWriter(tmp_path / "a.parquet", recording.meta) as writer:
        for first in range(0, 100, 7):
            writer.append(recording.cut(first, first + 7))
    assert [piece.ticks for piece in scan(tmp_path / "a.parquet")] == [35, 35, 30]
    assert load(tmp_path / "a.parquet") == recording


def test_a_gap_between_two_pieces_becomes_holes(tmp_path: Path) -> None:
    recording = make_recording(30)
    with RecordingWriter(tmp_path / "a.parquet", recording.meta) as writer:
        writer.append(recording.cut(0, 10))
        writer.append(recording.cut(25, 30))
        assert writer.ticks == 30
    loaded = load(tmp_path / "a.parquet")
    assert loaded.cut(0, 10) == recording.cut(0, 10)
    assert loaded.cut(25, 30) == recording.cut(25, 30)
    assert np.isnan(loaded.bytes_per_second[:, :, 10:25]).all()
    assert not loaded.seconds[:, :, 10:25].any()


def test_bytes_are_kept_to_the_last_one(tmp_path: Path) -> None:
    recording = make_recording(1000, ports=1)
    save(tmp_path / "a.parquet", recording)
    loaded = load(tmp_path / "a.parquet")
    moved = [np.nansum(np.rint(each.bytes_per_second * each.seconds)) for each in (recording, loaded)]
    assert moved[0] == moved[1] > 0


def test_a_recording_is_unlike_another_one() -> None:
    recording = make_recording(5)
    assert recording == make_recording(5)
    assert hash(recording) == hash(make_recording(5))
    assert recording != make_recording(5, seed=1)
    assert recording != make_recording(5, host="other")
    assert recording != make_recording(6)
    assert recording != make_meta()


def test_a_cut_has_the_times_of_its_ticks() -> None:
    recording = make_recording(10)
    part = recording.cut(3, 7)
    assert part.time_ns().tolist() == recording.time_ns()[3:7].tolist()
    assert part.end_ns == recording.start_ns + 7 * recording.meta.interval_ns
    assert recording.cut(8, 99).ticks == 2
