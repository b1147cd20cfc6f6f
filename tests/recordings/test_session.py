"""When a recording is enough, what it counts, and what is kept when it cannot go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import Recording, RecordingMeta, RecordingWriter, load
from ibpulse.workbench.recorder.session import Recorder, RecorderOptions
from tests.recordings.recordings import INTERVAL_NS, START_NS, make_meta, make_recording

S = 1_000_000_000


def flow(rates: Sequence[float], meta: RecordingMeta, first_tick: int = 0) -> Recording:
    """A piece whose ports together move so many bytes per second at its ticks; NaN is a hole."""
    per_series = np.broadcast_to(
        np.array(rates, dtype=np.float64) / (2 * len(meta.ports)), (len(meta.ports), 2, len(rates))
    )
    seconds = np.where(np.isnan(per_series), 0.0, INTERVAL_NS / 1e9)
    return Recording(meta, START_NS + first_tick * INTERVAL_NS, per_series.copy(), seconds)


def recorded(
    path: Path, options: RecorderOptions, *parts: Sequence[float], meta: RecordingMeta | None = None
) -> Recorder:
    """A recorder that was given the parts one after the other, and its file finished."""
    meta = meta or make_meta()
    with RecordingWriter(path, meta) as writer:
        recorder = Recorder(writer, meta, options)
        first = 0
        for part in parts:
            if not recorder.done:
                recorder.add([flow(part, meta, first)])
            first += len(part)
    return recorder


def test_it_ends_after_its_duration_to_the_tick(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "a", RecorderOptions(duration_ns=S), [1e9] * 60, [1e9] * 60, [1e9] * 60)
    assert recorder.done
    assert load(tmp_path / "a").ticks == 100
    progress = recorder.progress()
    assert (progress.seconds, progress.ticks, progress.ports, progress.remaining_seconds) == (1.0, 100, 2, 0.0)


def test_it_ends_when_the_rails_were_idle_after_being_active(tmp_path: Path) -> None:
    options = RecorderOptions(until_idle_ns=S // 2)
    quiet, busy, pause = [0.0] * 100, [1e9] * 50, [0.05e9] * 49
    recorder = recorded(tmp_path / "a", options, quiet, quiet, busy, pause, busy, pause, [0.0], busy)
    assert recorder.done
    assert load(tmp_path / "a").ticks == 100 + 100 + 50 + 49 + 50 + 49 + 1
    assert recorder.active_ticks == (200, 348)
    assert recorder.progress().remaining_seconds is None


def test_holes_are_neither_idle_nor_active(tmp_path: Path) -> None:
    options = RecorderOptions(until_idle_ns=S // 2)
    recorder = recorded(tmp_path / "a", options, [np.nan] * 10 + [1e9] * 10, [np.nan] * 200, [0.0] * 49)
    assert not recorder.done
    assert recorder.active_ticks == (10, 19)
    assert recorder.progress().kept_ratio == pytest.approx(59 / 269)


def test_what_is_no_rail_keeps_nothing_going(tmp_path: Path) -> None:
    meta = make_meta()
    meta = replace(meta, ports=(meta.ports[0], replace(meta.ports[1], rail=False)))
    rates = np.zeros((2, 2, 100))
    rates[1] = 1e9
    with RecordingWriter(tmp_path / "a", meta) as writer:
        recorder = Recorder(writer, meta, RecorderOptions())
        recorder.add([Recording(meta, START_NS, rates, np.full(rates.shape, 0.01))])
        assert recorder.active_ticks is None
        assert recorder.progress().bandwidth_bytes_per_second == 0.0


def test_progress_tells_the_bandwidth_of_the_last_piece(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "a", RecorderOptions(), [8e9] * 10, [1e9, 3e9, np.nan])
    assert recorder.progress().bandwidth_bytes_per_second == pytest.approx(2e9)
    assert recorder.progress().bytes_written > 100
    recorder = recorded(tmp_path / "b", RecorderOptions(), [8e9] * 10, [np.nan])
    assert recorder.progress().bandwidth_bytes_per_second is None


def test_a_gap_between_pieces_counts_as_ticks(tmp_path: Path) -> None:
    meta = make_meta()
    with RecordingWriter(tmp_path / "a", meta) as writer:
        recorder = Recorder(writer, meta, RecorderOptions(until_idle_ns=S))
        recorder.add([flow([1e9] * 10, meta), flow([1e9] * 10, meta, 30)])
        assert recorder.active_ticks == (0, 39)
        assert recorder.progress().ticks == 40
        assert recorder.progress().kept_ratio == 0.5


def test_nothing_comes_after_enough(tmp_path: Path) -> None:
    meta = make_meta()
    with RecordingWriter(tmp_path / "a", meta) as writer:
        recorder = Recorder(writer, meta, RecorderOptions(duration_ns=1))
        recorder.add([flow([1e9] * 10, meta), flow([1e9] * 10, meta, 10)])
        assert recorder.progress().ticks == 1


def test_before_the_first_piece_nothing_is_known(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "a", RecorderOptions(duration_ns=S, until_idle_ns=S))
    assert not recorder.done
    progress = recorder.progress()
    assert (progress.seconds, progress.kept_ratio, progress.remaining_seconds) == (0.0, 1.0, 1.0)


@pytest.mark.needs("root")
@pytest.mark.real("process")
def test_a_full_disk_says_what_is_kept_and_where(tiny_tmpfs: Path) -> None:
    path, whole = tiny_tmpfs / "a.parquet", make_recording(60_000)
    writer = RecordingWriter(path, whole.meta)
    recorder = Recorder(writer, whole.meta, RecorderOptions())
    sentence = rf"No space left on device; .*; the first [0-9.]+ s are kept in {path}\.partial, and every command"
    with pytest.raises(RecordingError, match=sentence) as stopped:
        recorder.add(whole.cut(first, first + 1000) for first in range(0, 60_000, 1000))
    with pytest.raises(RecordingError, match="No space left on device"):
        writer.close()
    kept = load(path)
    assert f"the first {kept.ticks / 100:g} s" in str(stopped.value)
    np.testing.assert_array_equal(kept.seconds, whole.seconds[:, :, : kept.ticks])
