"""Growing recordings: what a kill leaves, what a full disk does, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import RecordingError
from ibpulse.base.installation import how_to_install
from ibpulse.core.recordings import Recording, RecordingWriter, finish, load, read_meta, save
from tests.recordings.recordings import make_meta, make_recording

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
    assert process.stdout is not None
    assert process.stdin is not None
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


def test_two_recordings_do_not_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with RecordingWriter(path, make_meta()), pytest.raises(RecordingError, match="exists already: another recording"):
        RecordingWriter(path, make_meta())


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


@pytest.mark.needs("root")
@pytest.mark.real("process")
def test_a_growing_recording_survives_a_full_disk_up_to_there(tiny_tmpfs: Path) -> None:
    recording = make_recording(60_000)
    writer = RecordingWriter(tiny_tmpfs / "a.parquet", recording.meta)

    def append_all() -> None:
        for first in range(0, 60_000, 1000):
            writer.append(recording.cut(first, first + 1000))

    with pytest.raises(RecordingError, match="No space left on device"):
        append_all()
    with pytest.raises(RecordingError, match="No space left on device"):
        writer.close()
    loaded = load(tiny_tmpfs / "a.parquet")
    assert loaded.ticks >= 1000
    np.testing.assert_array_equal(loaded.seconds, recording.seconds[:, :, : loaded.ticks])


@pytest.mark.real("process")
def test_nothing_needs_pyarrow_but_files() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from ibpulse.core.recordings import Recording, RecordingMeta\n"
        "from ibpulse.base.errors import RecordingError\n"
        "for name in ('load', 'save'):\n"
        "    try:\n"
        "        __import__('ibpulse.core.recordings', fromlist=[name])\n"
        "        getattr(sys.modules['ibpulse.core.recordings'], name)\n"
        "    except RecordingError as error:\n"
        "        print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    sentence = f"recordings are Parquet files, which need pyarrow; {how_to_install('pyarrow')}\n"
    assert said == 2 * sentence


def test_a_name_that_the_room_does_not_have_is_none() -> None:
    import ibpulse.core.recordings

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ibpulse.core.recordings.nothing  # noqa: B018


def test_what_a_recording_says_is_read_while_it_grows(tmp_path: Path) -> None:
    recording = make_recording(4)
    with RecordingWriter(tmp_path / "a.parquet", recording.meta) as writer:
        writer.append(recording)
        found = read_meta(tmp_path / "a.parquet")
        assert (found.host, found.complete) == ("node7", False)
        assert writer.bytes_written == writer.partial.stat().st_size > 0
