"""When a recording is enough, what it counts, and what is kept when it cannot go on."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import IbpulseError, RecordingError, SamplerError
from ibpulse.core.events import Event
from ibpulse.core.recordings import Recording, RecordingMeta, RecordingWriter, load
from ibpulse.core.recordings.from_ring import SampleSource
from ibpulse.workbench.recorder import session
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
    path: Path, options: session.RecorderOptions, *parts: Sequence[float], meta: RecordingMeta | None = None
) -> session.Recorder:
    """A recorder that was given the parts one after the other, and its file finished."""
    meta = meta or make_meta()
    with RecordingWriter(path, meta) as writer:
        recorder = session.Recorder(writer, meta, options)
        first = 0
        for part in parts:
            if not recorder.done:
                recorder.add([flow(part, meta, first)])
            first += len(part)
    return recorder


def test_it_ends_after_its_duration_or_when_the_rails_were_idle(tmp_path: Path) -> None:
    recorder = recorded(tmp_path / "a", session.RecorderOptions(duration_ns=S), [1e9] * 60, [1e9] * 60, [1e9] * 60)
    assert recorder.done
    assert load(tmp_path / "a").ticks == 100
    progress = recorder.progress()
    assert (progress.seconds, progress.ticks, progress.ports, progress.remaining_seconds) == (1.0, 100, 2, 0.0)
    options = session.RecorderOptions(until_idle_ns=S // 2)
    quiet, busy, pause = [0.0] * 100, [1e9] * 50, [0.05e9] * 49
    recorder = recorded(tmp_path / "a", options, quiet, quiet, busy, pause, busy, pause, [0.0], busy)
    assert recorder.done
    assert load(tmp_path / "a").ticks == 100 + 100 + 50 + 49 + 50 + 49 + 1
    assert recorder.active_ticks == (200, 348)
    assert recorder.progress().remaining_seconds is None
    recorder = recorded(tmp_path / "a", options, [np.nan] * 10 + [1e9] * 10, [np.nan] * 200, [0.0] * 49)
    assert not recorder.done
    assert recorder.active_ticks == (10, 19)
    assert recorder.progress().kept_ratio == pytest.approx(59 / 269)


def test_other_ports_keep_nothing_going_and_gaps_count_as_ticks(tmp_path: Path) -> None:
    meta = make_meta()
    meta = replace(meta, ports=(meta.ports[0], replace(meta.ports[1], rail=False)))
    rates = np.zeros((2, 2, 100))
    rates[1] = 1e9
    with RecordingWriter(tmp_path / "a", meta) as writer:
        recorder = session.Recorder(writer, meta, session.RecorderOptions())
        recorder.add([Recording(meta, START_NS, rates, np.full(rates.shape, 0.01))])
        assert recorder.active_ticks is None
        assert recorder.progress().bandwidth_bytes_per_second == 0.0
    meta = make_meta()
    with RecordingWriter(tmp_path / "a", meta) as writer:
        recorder = session.Recorder(writer, meta, session.RecorderOptions(until_idle_ns=S))
        recorder.add([flow([1e9] * 10, meta), flow([1e9] * 10, meta, 30)])
        assert recorder.active_ticks == (0, 39)
        assert recorder.progress().ticks == 40
        assert recorder.progress().kept_ratio == 0.5


@pytest.mark.needs("root")
@pytest.mark.real("process")
def test_a_full_disk_says_what_is_kept_and_where(tiny_tmpfs: Path) -> None:
    path, whole = tiny_tmpfs / "a.parquet", make_recording(60_000)
    writer = RecordingWriter(path, whole.meta)
    recorder = session.Recorder(writer, whole.meta, session.RecorderOptions())
    sentence = rf"No space left on device; .*; the first [0-9.]+ s are kept in {path}\.partial, and every command"
    with pytest.raises(RecordingError, match=sentence) as stopped:
        recorder.add(whole.cut(first, first + 1000) for first in range(0, 60_000, 1000))
    with pytest.raises(RecordingError, match="No space left on device"):
        writer.close()
    kept = load(path)
    assert f"the first {kept.ticks / 100:g} s" in str(stopped.value)
    np.testing.assert_array_equal(kept.seconds, whole.seconds[:, :, : kept.ticks])


HALF = session.Progress(30.0, 3000, 8, 1.0, 213.44e9, 1_234_000, 30.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "WRITE_SECONDS", 0.001)


def run(
    path: Path,
    pieces: list[Recording],
    check: Callable[[], None] = lambda: None,
    options: session.RecorderOptions | None = None,
    trim: bool = False,
    events: Sequence[Event] = (),
) -> str:
    """Record pieces that come one at a time, each with an event; what the command says."""
    coming, happened = iter(pieces), iter(events)

    class Given(SampleSource):
        meta = make_meta()

        def read(self) -> Iterator[Recording]:
            yield from (piece for piece in [next(coming, None)] if piece is not None)

        async def read_events(self) -> Sequence[Event]:
            return [event for event in [next(happened, None)] if event is not None]

        def check(self) -> None:
            check()

    @asynccontextmanager
    async def opening() -> AsyncIterator[SampleSource]:
        yield Given()

    options = options or session.RecorderOptions(duration_ns=len(pieces) * S)
    return asyncio.run(session.record(path, opening(), options, trim))


def seconds_of(recording: Recording) -> list[Recording]:
    return [recording.cut(first, first + 100) for first in range(0, recording.ticks, 100)]


def test_what_was_recorded_is_said_and_its_events_are_kept(tmp_path: Path) -> None:
    path, recording = tmp_path / "a.parquet", make_recording(300)
    said = run(path, seconds_of(recording))
    assert said.startswith(f"{path}: 3.0s of 2 ports, 300 samples per port, ")
    assert load(path) == recording
    events = [Event(START_NS + second * S, "clock-step", "", "The clock was set.") for second in (0, 2, 9)]
    run(path, seconds_of(recording), events=events)
    assert load(path).meta.events == tuple(events[:2])


@pytest.mark.parametrize(("pieces", "left"), [(2, "what was recorded until then is in {path}"), (0, "nothing was rec")])
def test_a_source_that_ends_says_why_and_what_is_kept(tmp_path: Path, pieces: int, left: str) -> None:
    path, recording = tmp_path / "a.parquet", make_recording(300)
    looks = iter([*[None] * pieces, SamplerError("the sampler cannot be started")])

    def check() -> None:
        error = next(looks)
        if error:
            raise error

    with pytest.raises(SamplerError) as stopped:
        run(path, seconds_of(recording), check)
    assert str(stopped.value).startswith(f"the sampler cannot be started; {left.format(path=path)}")
    assert (load(path).ticks if path.exists() else 0) == 100 * pieces
    assert not path.with_name("a.parquet.partial").exists()


def test_silence_is_cut_off_at_both_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recording = make_recording(300)
    recording.bytes_per_second[:] = 0.0
    recording.seconds[:] = 0.01
    run(tmp_path / "silent.parquet", seconds_of(recording), trim=True)
    assert load(tmp_path / "silent.parquet").ticks == 300
    assert f"recording {tmp_path / 'silent.parquet'} has no active samples, so nothing was trimmed" in caplog.text
    recording.bytes_per_second[:, :, 120:250] = 1e9
    said = run(tmp_path / "a.parquet", seconds_of(recording), trim=True)
    assert said.endswith("; 1.7s of silence cut off")
    kept = load(tmp_path / "a.parquet")
    np.testing.assert_array_equal(kept.bytes_per_second, recording.cut(120, 250).bytes_per_second)


def test_a_file_that_cannot_be_finished_stays_readable(tmp_path: Path) -> None:
    path, recording = tmp_path / "a.parquet", make_recording(300)
    path.with_name("a.parquet.tmp").mkdir()
    with pytest.raises(RecordingError, match=r"Is a directory.*; all of it is kept in .*\.partial, and every command"):
        run(path, seconds_of(recording))
    assert load(path).ticks == 300


def test_what_is_there_is_replaced_only_when_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.mkdir()
    with pytest.raises(RecordingError, match=r"a\.parquet exists already; name another file, or replace it with --fo"):
        session.refuse_existing(path, force=False)
    session.refuse_existing(path, force=True)
    with pytest.raises(IbpulseError, match=r"a\.parquet cannot be replaced: Is a directory; name another file"):
        run(path, seconds_of(make_recording(100)))


def test_a_signal_before_the_first_sample_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="ended before its first sample, so nothing was written; record longer"):
        run(tmp_path / "a.parquet", [], lambda: os.kill(os.getpid(), signal.SIGTERM), session.RecorderOptions())
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_that_is_overwritten_or_a_line_of_the_log_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    said = session.say_progress(HALF)
    assert said == "30.0s of 8 ports, 213.4 GB/s, 1.2 MB (41.1 kB/s), 30.0s left"
    screen, piped = Terminal(), io.StringIO()
    lines = [session.ProgressLine(stream) for stream in (screen, piped)]
    for line in lines:
        line.show(HALF)
    assert caplog.text == ""
    monkeypatch.setattr(session, "LOG_SECONDS", 0.0)
    for line in lines:
        line.show(HALF)
        line.end()
    assert (screen.getvalue(), piped.getvalue()) == (2 * f"\r{said}\x1b[K" + "\n", "")
    assert "recorded 30.0s of 8 ports, 213.4 GB/s" in caplog.text


def test_many_missing_samples_are_said() -> None:
    assert session.say_missing(replace(HALF, kept_ratio=0.95)) == ""
    assert session.say_missing(replace(HALF, kept_ratio=0.57)).startswith("43.00 % of the samples are missing")
