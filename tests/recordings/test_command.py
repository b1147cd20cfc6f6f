"""`ibpulse record` from a source that the test holds: how it ends, what it says, and what it leaves behind."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import IbpulseError, RecordingError, SamplerError
from ibpulse.core.events import Event
from ibpulse.core.recordings import Recording, load
from ibpulse.core.recordings.from_ring import SampleSource
from ibpulse.workbench.recorder import session
from ibpulse.workbench.recorder.session import Progress, ProgressLine, RecorderOptions, record, refuse_existing
from tests.recordings.recordings import START_NS, make_meta, make_recording

S = 1_000_000_000
HALF = Progress(30.0, 3000, 8, 1.0, 213.44e9, 1_234_000, 30.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "WRITE_SECONDS", 0.001)


def run(
    path: Path,
    pieces: list[Recording],
    check: Callable[[], None] = lambda: None,
    options: RecorderOptions | None = None,
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

    options = options or RecorderOptions(duration_ns=len(pieces) * S)
    return asyncio.run(record(path, opening(), options, trim))


def seconds_of(recording: Recording) -> list[Recording]:
    return [recording.cut(first, first + 100) for first in range(0, recording.ticks, 100)]


def test_what_was_recorded_is_said_in_one_sentence(tmp_path: Path) -> None:
    path, recording = tmp_path / "a.parquet", make_recording(300)
    said = run(path, seconds_of(recording))
    assert said.startswith(f"{path}: 3.0s of 2 ports, 300 samples per port, ")
    assert load(path) == recording


def test_the_events_of_the_source_are_recorded(tmp_path: Path) -> None:
    path, recording = tmp_path / "a.parquet", make_recording(300)
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
        refuse_existing(path, force=False)
    refuse_existing(path, force=True)
    with pytest.raises(IbpulseError, match=r"a\.parquet cannot be replaced: Is a directory; name another file"):
        run(path, seconds_of(make_recording(100)))


def test_a_signal_before_the_first_sample_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="ended before its first sample, so nothing was written; record longer"):
        run(tmp_path / "a.parquet", [], lambda: os.kill(os.getpid(), signal.SIGTERM), RecorderOptions())
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_progress_is_one_line() -> None:
    screen = Terminal()
    line = ProgressLine(screen)
    line.show(HALF)
    line.show(HALF)
    line.end()
    assert screen.getvalue() == 2 * "\r30.0s of 8 ports, 213.4 GB/s, 1.2 MB (41.1 kB/s), 30.0s left\x1b[K" + "\n"


def test_elsewhere_the_progress_is_a_line_of_the_log_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    stream = io.StringIO()
    line = ProgressLine(stream)
    line.show(HALF)
    assert caplog.text == ""
    monkeypatch.setattr(session, "LOG_SECONDS", 0.0)
    line.show(HALF)
    line.end()
    assert "recorded 30.0s of 8 ports, 213.4 GB/s" in caplog.text
    assert stream.getvalue() == ""
