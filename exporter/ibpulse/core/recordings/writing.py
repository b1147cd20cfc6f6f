"""Writes recordings to files.

A finished recording is a Parquet file. While it grows it is an Arrow stream in `NAME.partial`, because a truncated
Parquet file is unreadable, but a truncated stream can be read up to its end. `NAME` appears only when it is complete.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ibpulse.base.errors import RecordingError
from ibpulse.base.text import split_lines
from ibpulse.core.events import Event
from ibpulse.core.recordings import file_format
from ibpulse.core.recordings.reading import PARTIAL, cut_pieces, scan
from ibpulse.core.recordings.recording import LATEST_NS, Recording, RecordingMeta, concatenate, meta_between, meta_with

TEMPORARY = ".tmp"
GROUP_ROWS = 65_536
# maximum number of missing samples to fill in: a day at 10 ms
MAX_GAP_TICKS = 8_640_000
_EXCLUSIVELY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "version": "2.6",
    "use_dictionary": ["device", "port", *file_format.UNCERTAINTY_COLUMNS],
    "column_encoding": {
        "time": "DELTA_BINARY_PACKED",
        **dict.fromkeys((*file_format.RATE_COLUMNS, *file_format.SECONDS_COLUMNS), "BYTE_STREAM_SPLIT"),
    },
}


def save(path: Path, recording: Recording) -> None:
    """Write a recording to `path` atomically."""
    ticks = ticks_per_group(recording.meta)
    save_pieces(
        path, recording.meta, (recording.cut(first, first + ticks) for first in range(0, recording.ticks, ticks))
    )


def save_pieces(path: Path, meta: RecordingMeta, pieces: Iterable[Recording]) -> None:
    """Write contiguous pieces to `path` atomically; each becomes a row group.

    Each piece has at least one sample; `meta` replaces theirs.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    into = file_format.schema(meta)
    with _as_recording_error(path):
        try:
            with open(_create(temporary), "wb") as file:
                with file_format.pq.ParquetWriter(file, into, **_OPTIONS) as writer:
                    for piece in pieces:
                        writer.write_batch(
                            file_format.encode(piece, into), row_group_size=len(meta.ports) * piece.ticks
                        )
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(path.parent)


def finish(partial: Path, first_tick: int = 0) -> Path:
    """Convert the partial file of a killed recording to a Parquet file without `.partial`, and remove it.

    Keeps only the samples from `first_tick` on, counted from 0.
    """
    return _finish(partial, None, first_tick, None)


def _finish(partial: Path, meta: RecordingMeta | None, first_tick: int, last_tick: int | None) -> Path:
    path = partial.with_name(partial.name.removesuffix(PARTIAL))
    pieces = scan(partial, meta)
    first = next(pieces)
    meta = dataclasses.replace(first.meta, complete=True)
    begin_ns = first.start_ns + first_tick * meta.interval_ns
    end_ns = LATEST_NS if last_tick is None else first.start_ns + (last_tick + 1) * meta.interval_ns
    meta = meta_between(meta, begin_ns, end_ns)
    end = sys.maxsize if last_tick is None else last_tick + 1
    kept = cut_pieces(itertools.chain([first], pieces), first_tick, end)
    save_pieces(path, meta, _regroup(meta, (piece for piece in kept if piece.ticks)))
    partial.unlink()
    return path


def ticks_per_group(meta: RecordingMeta) -> int:
    """Samples per port in one row group of the file."""
    return max(1, GROUP_ROWS // len(meta.ports))


class RecordingWriter:
    """A growing recording: appended samples survive a crash of the process. Use it in a `with` block."""

    def __init__(self, path: Path, meta: RecordingMeta) -> None:
        """Begin `path`.partial."""
        self.path = path
        self.partial = path.with_name(path.name + PARTIAL)
        self._meta = dataclasses.replace(meta, complete=False)
        self._first_ns: int | None = None
        self._next_ns: int | None = None
        self._events: list[Event] = []
        self.ticks = 0
        with _as_recording_error(self.partial):
            # exclusive, so that the partial file of another recording is not lost
            self._file = os.fdopen(os.open(self.partial, _EXCLUSIVELY, 0o640), "wb")
            self._schema = file_format.schema(self._meta)
            # without threads, which would take 4 MB
            options = file_format.pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
            self._stream = file_format.pa.ipc.new_stream(self._file, self._schema, options=options)
            self._file.flush()

    def append(self, piece: Recording) -> None:
        """Write a piece that begins at or after the end of the last one; skipped samples are missing (NaN).

        Raises:
            ValueError: the piece begins earlier, off the grid or much later, or has other ports.
            RecordingError: it cannot be written.
        """
        if (piece.meta.ports, piece.meta.interval_ns) != (self._meta.ports, self._meta.interval_ns):
            raise ValueError("the piece has other ports or another interval than its recording")
        for part in (*self._gap_before(piece), piece):
            with _as_recording_error(self.partial):
                self._stream.write_batch(file_format.encode(part, self._schema))
                self._file.flush()
            self._first_ns = part.start_ns if self._first_ns is None else self._first_ns
            self.ticks += part.ticks
            self._next_ns = part.end_ns

    def add_events(self, events: Sequence[Event]) -> None:
        """Write events, of any time; those outside of the samples are left out of the finished file."""
        if not events:
            return
        none = np.empty((len(self._meta.ports), 2, 0))
        batch = file_format.encode(Recording(self._meta, 0, none, none), self._schema)
        with _as_recording_error(self.partial):
            self._stream.write_batch(batch, custom_metadata=file_format.write_events(events))
            self._file.flush()
        self._events += events

    def _gap_before(self, piece: Recording) -> Iterator[Recording]:
        if self._next_ns is None:
            return
        missing, off = divmod(piece.start_ns - self._next_ns, self._meta.interval_ns)
        if off or not 0 <= missing <= MAX_GAP_TICKS:
            raise ValueError(f"the piece begins at {piece.start_ns} ns, which does not follow {self._next_ns} ns")
        at_once = ticks_per_group(self._meta)
        for first in range(0, missing, at_once):
            shape = (len(self._meta.ports), 2, min(at_once, missing - first))
            start_ns = self._next_ns + first * self._meta.interval_ns
            yield Recording(piece.meta, start_ns, np.full(shape, np.nan), np.zeros(shape))

    @property
    def bytes_written(self) -> int:
        """Size of the file so far."""
        return self._file.tell()

    def close(self, first_tick: int = 0, last_tick: int | None = None) -> None:
        """Convert the stream to the Parquet file; without samples, remove both. If that fails, the stream remains.

        Keeps only the samples `first_tick` to `last_tick`, counted from 0; all by default.
        """
        if self._file.closed:
            return
        with _as_recording_error(self.partial):
            self._stream.close()
            self._file.close()
            if not self.ticks:
                self.partial.unlink()
        if self.ticks:
            meta = meta_with(self._meta, self._events, self._first_ns or 0, self._next_ns or 0)
            _finish(self.partial, meta, first_tick, last_tick)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _regroup(meta: RecordingMeta, pieces: Iterable[Recording]) -> Iterator[Recording]:
    """The pieces merged to about one row group each."""
    held: list[Recording] = []
    for piece in pieces:
        held.append(dataclasses.replace(piece, meta=meta))
        if sum(each.ticks for each in held) >= ticks_per_group(meta):
            yield concatenate(held)
            held = []
    if held:
        yield concatenate(held)


def _create(path: Path) -> int:
    """Make a new file in place of what a killed process left, or of a link that leads elsewhere."""
    path.unlink(missing_ok=True)
    return os.open(path, _EXCLUSIVELY, 0o666)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_recording_error(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise RecordingError(
            f"recording {path} exists already: another recording is running or was killed; read it, or remove it"
        ) from error
    except OSError as error:
        reason = error.strerror or split_lines(str(error))[0]
        raise RecordingError(
            f"recording {path} cannot be written: {reason}; free some space or choose another file"
        ) from error
