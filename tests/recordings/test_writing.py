"""Growing recordings: what a kill leaves, what a full disk does, what is refused."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import Recording, RecordingWriter, files, finish, load, read_meta, save, scan
from tests.recordings.recordings import make_meta, make_recording, recordings

KILLED = """
import sys
from pathlib import Path
from ibpulse.core.recordings import RecordingWriter
from tests.recordings.recordings import make_recording

recording = make_recording(1000)
writer = RecordingWriter(Path(sys.argv[1]), recording.meta)
for first in range(0, 1000, 100):
    writer.append(recording.cut(first, first + 100))
    print(first, flush=True)
sys.stdin.read()
"""


def killed_writer(path: Path) -> None:
    """A recording of 1,000 ticks, appended in tenths, whose process is killed before it could finish."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while process.stdout.readline().strip() != "900":
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()


@pytest.mark.real("process")
def test_a_kill_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    killed_writer(path)
    loaded = load(path)
    assert not loaded.meta.complete
    assert loaded == make_recording(1000, complete=False)
    assert not path.exists()
    assert finish(path.with_name("a.parquet.partial")) == path
    assert load(path) == make_recording(1000)
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_cut_within_an_append_is_good_up_to_there(tmp_path: Path) -> None:
    path, recording = tmp_path / "b.parquet.partial", make_recording(1000, complete=False)
    with RecordingWriter(tmp_path / "a.parquet", recording.meta) as writer:
        for first in range(0, 1000, 100):
            writer.append(recording.cut(first, first + 100))
        path.write_bytes(writer.partial.read_bytes())
    size = path.stat().st_size
    ticks = set()
    for length in range(size, 0, -997):
        os.truncate(path, length)
        loaded = load_if_any(path)
        assert loaded or length < size / 5
        if loaded:
            ticks.add(loaded.ticks)
            assert loaded == recording.cut(0, loaded.ticks)
    assert len(ticks) > 5
    assert all(count % 100 == 0 for count in ticks)


def load_if_any(path: Path) -> Recording | None:
    """The recording up to where it was cut; None where that is before the first sample."""
    try:
        return load(path)
    except RecordingError as error:
        return None if "damaged" in str(error) or "holds no sample" in str(error) else pytest.fail(str(error))


def test_a_recording_without_a_sample_leaves_nothing(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "a.parquet", make_meta()) as writer:
        assert writer.ticks == 0
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_pieces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    recording = make_recording(10)
    with RecordingWriter(tmp_path / "a.parquet", recording.meta) as writer:
        writer.append(recording.cut(4, 8))
        with pytest.raises(ValueError, match="does not follow"):
            writer.append(recording.cut(7, 10))
        with pytest.raises(ValueError, match="does not follow"):
            writer.append(make_recording(2, start_ns=recording.end_ns + 1))
        with pytest.raises(ValueError, match="does not follow"):
            writer.append(make_recording(2, start_ns=recording.end_ns + 86_401 * 10**9))
        with pytest.raises(ValueError, match="other ports"):
            writer.append(make_recording(2, ports=3, start_ns=recording.end_ns))


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a.parquet"
    for write in (lambda: save(path, make_recording(2)), lambda: RecordingWriter(path, make_meta())):
        with pytest.raises(RecordingError, match=r"a\.parquet.* cannot be written: No such file or directory; free"):
            write()


@pytest.mark.needs("root")
@pytest.mark.real("process")
def test_a_full_disk_leaves_the_old_file_and_no_other(tiny_tmpfs: Path) -> None:
    path, old = tiny_tmpfs / "a.parquet", make_recording(10)
    save(path, old)
    with pytest.raises(RecordingError, match="cannot be written: No space left on device; free some"):
        save(path, make_recording(60_000))
    assert load(path) == old
    assert list(tiny_tmpfs.iterdir()) == [path]


@pytest.mark.parametrize("group_rows", [200, 65_536])
@pytest.mark.parametrize(("first", "last"), [(0, 999), (0, 0), (999, 999), (7, 12), (150, 849), (0, 5000)])
def test_only_the_ticks_between_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, first: int, last: int
) -> None:
    monkeypatch.setattr("ibpulse.core.recordings.files.GROUP_ROWS", group_rows)
    path, whole = tmp_path / "a.parquet", make_recording(1000)
    writer = RecordingWriter(path, whole.meta)
    for begin in range(0, 1000, 125):
        writer.append(whole.cut(begin, begin + 125))
    writer.close(first, last)
    assert load(path) == whole.cut(first, last + 1)
    assert list(tmp_path.iterdir()) == [path]


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
        assert replace(loaded, meta=recording.meta) == recording
        assert [file.name for file in Path(folder).iterdir()] == ["a.parquet"]


def test_small_pieces_are_put_together_to_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 60)
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
