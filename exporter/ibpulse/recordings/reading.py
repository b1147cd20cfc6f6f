"""Reads recordings from files. Files are untrusted, so every size is checked before memory is allocated for it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ibpulse.errors import RecordingError
from ibpulse.events import Event
from ibpulse.recordings.file_format import (
    KEY,
    MAX_HEADER_BYTES,
    decode,
    is_events,
    last_time,
    missing_column,
    pa,
    pq,
    read_events,
    read_header,
)
from ibpulse.recordings.recording import Recording, RecordingMeta, concatenate, limit_events

PARTIAL = ".partial"
# 32 bytes each; over four hours of 8 ports at 1 ms
MAX_ROWS = 120_000_000
MAX_GROUP_ROWS = 8_000_000
_PARQUET, _STREAM = b"PAR1", b"\xff\xff\xff\xff"
_OTHERWISE = "copy it again from its origin"


def load(path: Path) -> Recording:
    """The whole recording in a file, or in `path`.partial if only that exists, because the recording was killed.

    Raises:
        RecordingError: the file does not exist, or is not a recording, damaged, of another version, or too long.
    """
    pieces, rows = [], 0
    for piece in scan(path):
        rows += piece.ticks * len(piece.meta.ports)
        if rows > MAX_ROWS:
            _refuse(path, f"holds more than {MAX_ROWS} rows", "read it piece by piece with scan()")
        pieces.append(piece)
    with _as_recording_error(path):
        return concatenate(pieces)


def scan(path: Path, meta: RecordingMeta | None = None) -> Iterator[Recording]:
    """The recording in a file as contiguous pieces, at least one.

    `meta` is the metadata with all events of a file that grew, if it is known; otherwise the file is read twice.

    Raises:
        RecordingError: as `load`, possibly after some pieces.
    """
    found = False
    with _opened(path, meta) as (about, batches):
        for batch in batches:
            found = True
            yield decode(batch, about)
    if not found:
        _refuse(path, "holds no sample", "record again, for longer")


def read_meta(path: Path) -> RecordingMeta:
    """The metadata of the recording in a file, without reading its samples.

    Raises:
        RecordingError: as `load`.
    """
    with _opened(path) as (meta, _):
        return meta


@contextmanager
def _opened(path: Path, meta: RecordingMeta | None = None) -> Iterator[tuple[RecordingMeta, Iterator[Any]]]:
    """The metadata of the file, and its batches."""
    with _as_recording_error(path), _there(path).open("rb") as file:
        begin = file.read(4)
        if not begin:
            _refuse(path, "is empty", "record again")
        file.seek(0)
        if begin == _PARQUET:
            yield _open_parquet(path, file)
        elif begin == _STREAM:
            yield _open_stream(path, file, meta)
        else:
            _refuse(path, "is not a recording: it is neither a Parquet file nor an Arrow stream", "name another file")


def _there(path: Path) -> Path:
    partial = path.with_name(path.name + PARTIAL)
    return partial if not path.exists() and partial.exists() else path


def _open_parquet(path: Path, file: Any) -> tuple[RecordingMeta, Iterator[Any]]:
    parquet = pq.ParquetFile(file, thrift_string_size_limit=2 * MAX_HEADER_BYTES, pre_buffer=False)
    about = parquet.metadata
    groups = range(about.num_row_groups)
    if any(about.row_group(group).num_rows > MAX_GROUP_ROWS for group in groups):
        _refuse(path, f"has a row group of more than {MAX_GROUP_ROWS} rows", "use the file that ibpulse wrote")
    meta = _check_schema(path, parquet.schema_arrow)
    return meta, (batch for group in groups for batch in _whole(parquet.read_row_group(group)))


def _whole(table: Any) -> list[Any]:
    """The table as one batch."""
    return list(table.combine_chunks().to_batches())


def _open_stream(path: Path, file: Any, meta: RecordingMeta | None) -> tuple[RecordingMeta, Iterator[Any]]:
    if meta is None:
        meta = _check_schema(path, _stream(file).schema)
        file.seek(0)
        events, left_out = _events_of_stream(path, file, meta)
        meta = dataclasses.replace(meta, events=events, events_left_out=left_out)
        file.seek(0)
    return meta, (batch for batch, metadata in _batches(path, _stream(file)) if not is_events(metadata))


def _events_of_stream(path: Path, file: Any, meta: RecordingMeta) -> tuple[tuple[Event, ...], int]:
    """The events in a file that grew, up to its last sample, and the number of those above the limit."""
    events: list[Event] = []
    end_ns = 0
    for batch, metadata in _batches(path, _stream(file)):
        if is_events(metadata):
            events += read_events(metadata)
        elif batch.num_rows:
            end_ns = last_time(batch) + meta.interval_ns
    return limit_events(event for event in events if event.time_ns < end_ns)


def _stream(file: Any) -> Any:
    return pa.ipc.open_stream(_Bounded(file), options=pa.ipc.IpcReadOptions(use_threads=False))


class _Bounded:
    """An open file for Arrow that allocates only for bytes that exist, whatever length the file claims.

    The file is not mapped, because pages read from a mapping count as memory of the process.
    """

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._bytes = os.fstat(file.fileno()).st_size

    def read(self, count: int = -1) -> bytes:
        """The next bytes: the requested number, or those that remain."""
        left = self._bytes - self._file.tell()
        return bytes(self._file.read(left if count < 0 else min(count, left)))


def _batches(path: Path, stream: Any) -> Iterator[tuple[Any, Any]]:
    """The batches of a stream and their metadata, up to its end, which may be cut off."""
    while True:
        try:
            batch, metadata = stream.read_next_batch_with_custom_metadata()
        except (StopIteration, OSError, pa.ArrowException):
            return
        if batch.num_rows > MAX_GROUP_ROWS:
            _refuse(path, f"has a batch of more than {MAX_GROUP_ROWS} rows", "use the file that ibpulse wrote")
        yield batch, metadata


def _check_schema(path: Path, found: Any) -> RecordingMeta:
    raw = (found.metadata or {}).get(KEY)
    if raw is None:
        _refuse(path, f"is not a recording of ibpulse: it lacks the metadata {KEY.decode()}", "name another file")
    meta = read_header(raw)
    column = missing_column(found)
    if column:
        _refuse(path, f"lacks the column {column}, or has it with another type", "use the file that ibpulse wrote")
    return meta


def _refuse(path: Path, reason: str, otherwise: str) -> NoReturn:
    raise RecordingError(f"recording {path} {reason}; {otherwise}")


@contextmanager
def _as_recording_error(path: Path) -> Iterator[None]:
    """Convert errors of numpy, Arrow and the system to a RecordingError that names the file."""
    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0][:200]
        raise RecordingError(f"recording {path} is cut off or damaged: {reason}; {_OTHERWISE}") from error
    except OSError as error:
        if error.strerror is None:
            raise RecordingError(f"recording {path} is cut off or damaged: {str(error)[:200]}; {_OTHERWISE}") from error
        raise RecordingError(f"recording {path} cannot be read: {error.strerror}; name another file") from error
    except ValueError as error:
        raise RecordingError(f"recording {path} {error}") from error
