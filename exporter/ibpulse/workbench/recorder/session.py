"""Writes samples to a growing file until it is long enough, the traffic has ended, or a signal arrives."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from ibpulse.base.errors import IbpulseError, RecordingError
from ibpulse.base.text import elapsed_text, file_size_text, percent
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.events import Event
from ibpulse.core.recordings import Recording, RecordingMeta
from ibpulse.core.recordings.files import RecordingWriter
from ibpulse.core.recordings.from_ring import SampleSource

log = logging.getLogger(__name__)

# A kill loses the samples not yet written, and those of the last 0.2 s, which are not settled yet.
WRITE_SECONDS = 0.5
LOG_SECONDS = 10.0
MIN_CAPTURED = 0.95
"""Below it, missing samples change the lengths of bursts and gaps, not only their certainty."""


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """When to stop: after `duration_ns`, or when active rails have been idle for `until_idle_ns`.

    A sample is active if the rails together carry more than `active_bytes_per_second`. Without either limit the
    recording continues until it is interrupted.
    """

    duration_ns: int | None = None
    until_idle_ns: int | None = None
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND


class Recorder:
    """Appends pieces to a writer and counts samples. `active_ticks` are the first and the last active one, from 0."""

    def __init__(self, writer: RecordingWriter, meta: RecordingMeta, options: RecorderOptions) -> None:
        self.active_ticks: tuple[int, int] | None = None
        self._writer = writer
        self._options = options
        self._interval_ns = meta.interval_ns
        self._ports = len(meta.ports)
        self._rails = [row for row, port in enumerate(meta.ports) if port.rail] or list(range(len(meta.ports)))
        self._limit = None if options.duration_ns is None else max(1, options.duration_ns // meta.interval_ns)
        self._good = 0
        self._idle_ticks = 0
        self._bandwidth: float | None = None
        self._bytes_written = 0

    @property
    def done(self) -> bool:
        """Whether the recording is complete."""
        if self._limit is not None and self._writer.ticks >= self._limit:
            return True
        until = self._options.until_idle_ns
        return until is not None and self.active_ticks is not None and self._idle_ticks * self._interval_ns >= until

    def add(self, pieces: Iterable[Recording]) -> None:
        """Write the pieces until the recording is complete."""
        for piece in pieces:
            if self.done:
                return
            left = piece.ticks if self._limit is None else min(piece.ticks, self._limit - self._writer.ticks)
            self._append(piece.cut(0, left))

    def add_events(self, events: Sequence[Event]) -> None:
        """Write the events."""
        self._writer.add_events(events)

    def progress(self) -> Progress:
        """The current progress."""
        ticks = self._writer.ticks
        tick_seconds = self._interval_ns / SECOND_NS
        return Progress(
            seconds=ticks * tick_seconds,
            ticks=ticks,
            ports=self._ports,
            kept_ratio=self._good / (ticks * self._ports * 2) if ticks else 1.0,
            bandwidth_bytes_per_second=self._bandwidth,
            bytes_written=self._bytes_written,
            remaining_seconds=None if self._limit is None else max(0, self._limit - ticks) * tick_seconds,
        )

    def _append(self, piece: Recording) -> None:
        before = self._writer.ticks
        try:
            self._writer.append(piece)
        except RecordingError as error:
            seconds = before * self._interval_ns / SECOND_NS
            raise RecordingError(
                f"{error}; the first {seconds:g} s are kept in {self._writer.partial}, "
                f"and every command reads them as {self._writer.path}"
            ) from error
        self._bytes_written = self._writer.bytes_written
        # the writer may have filled in missing samples
        self._watch(self._bandwidth_of(piece), self._writer.ticks - piece.ticks)
        self._good += int(np.count_nonzero(~np.isnan(piece.bytes_per_second)))

    def _bandwidth_of(self, piece: Recording) -> Floats:
        """Sum over the rails and both directions, without missing samples: (samples,), NaN if all are missing."""
        rates = piece.bytes_per_second[self._rails]
        known = ~np.isnan(rates).all(axis=(0, 1))
        return np.where(known, np.nansum(rates, axis=(0, 1)), np.nan)

    def _watch(self, bandwidth: Floats, first_tick: int) -> None:
        known = ~np.isnan(bandwidth)
        self._bandwidth = float(bandwidth[known].mean()) if known.any() else None
        active = np.flatnonzero(known & (np.nan_to_num(bandwidth) > self._options.active_bytes_per_second))
        if len(active):
            first = first_tick + int(active[0]) if self.active_ticks is None else self.active_ticks[0]
            self.active_ticks = (first, first_tick + int(active[-1]))
            known = known[int(active[-1]) + 1 :]
            self._idle_ticks = 0
        # a missing sample is neither active nor idle
        self._idle_ticks += int(np.count_nonzero(known))


def refuse_existing(path: Path, force: bool) -> None:
    """Check that neither the file nor the partial file of a killed recording exists."""
    for there in _both(path):
        if there.exists() and not force:
            raise RecordingError(f"recording {there} exists already; name another file, or replace it with --force")


async def record(
    path: Path, opening: AbstractAsyncContextManager[SampleSource], options: RecorderOptions, trim: bool
) -> str:
    """Record to the file until it is complete or a signal arrives; returns a summary of the recording."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with opening as source:
        _make_way(path)
        writer = RecordingWriter(path, source.meta)
        recorder = Recorder(writer, source.meta, options)
        try:
            await _follow(source, recorder, asked)
        except RecordingError:
            raise
        except IbpulseError as error:
            await asyncio.to_thread(writer.close)
            left = f"what was recorded until then is in {path}" if writer.ticks else "nothing was recorded"
            raise type(error)(f"{error}; {left}") from error
    return await asyncio.to_thread(finish, writer, recorder, trim)


async def _follow(source: SampleSource, recorder: Recorder, asked: asyncio.Event) -> None:
    shown = ProgressLine(sys.stderr)
    try:
        while not (asked.is_set() or recorder.done):
            try:
                await asyncio.wait_for(asked.wait(), WRITE_SECONDS)
            except TimeoutError:
                pass
            source.check()
            # the disk may be slow, and would delay the supervisor
            await asyncio.to_thread(recorder.add, source.read())
            await asyncio.to_thread(recorder.add_events, await source.read_events())
            shown.show(recorder.progress())
    finally:
        shown.end()


def finish(writer: RecordingWriter, recorder: Recorder, trim: bool) -> str:
    """Finish the file, cutting idle time at both ends if `trim`; returns a summary of the recording."""
    path, progress = writer.path, recorder.progress()
    first, last = 0, progress.ticks - 1
    if trim and recorder.active_ticks is None:
        log.warning("recording %s has no active samples, so nothing was trimmed", path)
    elif trim and recorder.active_ticks is not None:
        first, last = recorder.active_ticks
    try:
        writer.close(first, last)
    except RecordingError as error:
        raise RecordingError(
            f"{error}; all of it is kept in {writer.partial}, and every command reads it as {path}"
        ) from error
    if not progress.ticks:
        raise RecordingError(f"recording {path} ended before its first sample, so nothing was written; record longer")
    cut_seconds = progress.seconds * (1 - (last - first + 1) / progress.ticks)
    if warning := say_missing(progress):
        log.warning("%s", warning)
    return say_end(path, progress, path.stat().st_size, cut_seconds)


def _both(path: Path) -> tuple[Path, Path]:
    """The file, and its name while it grows."""
    return path, path.with_name(f"{path.name}.partial")


def _make_way(path: Path) -> None:
    for there in _both(path):
        try:
            there.unlink(missing_ok=True)
        except OSError as error:
            raise RecordingError(
                f"recording {there} cannot be replaced: {error.strerror}; name another file"
            ) from error


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a recording. `bandwidth_bytes_per_second` is that of the last piece, None without samples."""

    seconds: float
    ticks: int
    ports: int
    kept_ratio: float
    bandwidth_bytes_per_second: float | None
    bytes_written: int
    remaining_seconds: float | None


class ProgressLine:
    """Shows the progress of a recording: one changing line on a terminal, otherwise periodic log lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._logged = time.monotonic()

    def show(self, progress: Progress) -> None:
        """Show the progress."""
        if self._live:
            # return to the first column and clear the line
            self._stream.write(f"\r{say_progress(progress)}\x1b[K")
            self._stream.flush()
        elif time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            log.info("recorded %s", say_progress(progress))

    def end(self) -> None:
        """End the line."""
        if self._live:
            self._stream.write("\n")
            self._stream.flush()


def say_progress(progress: Progress) -> str:
    """One line: time, bandwidth of the rails, size of the file and its growth, remaining time if limited."""
    bandwidth = progress.bandwidth_bytes_per_second
    parts = [
        f"{elapsed_text(progress.seconds)} of {progress.ports} ports",
        "nothing measured" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
        f"{file_size_text(progress.bytes_written)}"
        + (f" ({file_size_text(progress.bytes_written / progress.seconds)}/s)" if progress.seconds else ""),
    ]
    if progress.kept_ratio < 1:
        parts.append(f"{percent(progress.kept_ratio)} kept")
    if progress.remaining_seconds is not None:
        parts.append(f"{elapsed_text(progress.remaining_seconds)} left")
    return ", ".join(parts)


def say_missing(progress: Progress) -> str:
    """A warning about missing samples, empty if enough were captured."""
    if progress.kept_ratio >= MIN_CAPTURED:
        return ""
    return (
        f"{percent(1 - progress.kept_ratio)} of the samples are missing: bursts, gaps and steps are not "
        "reliable; see ibpulse doctor"
    )


def say_end(path: Path, progress: Progress, file_bytes: int, trimmed_seconds: float) -> str:
    """A summary of the recording in one sentence."""
    cut = f"; {elapsed_text(trimmed_seconds)} of silence cut off" if trimmed_seconds >= 0.05 else ""
    return (
        f"{path}: {elapsed_text(progress.seconds - trimmed_seconds)} of {progress.ports} ports, "
        f"{progress.ticks} samples per port, {percent(progress.kept_ratio)} captured, "
        f"{file_size_text(file_bytes)}{cut}"
    )
