"""Reads recordings from files, and writes them.

Files are untrusted, so every size is checked before memory is allocated for it. A file of a megabyte can hold a hundred
million equal rows.

A finished recording is a Parquet file. While it grows it is an Arrow stream in `NAME.partial`, because a truncated
Parquet file is unreadable, but a truncated stream can be read up to its end. `NAME` appears only when it is complete.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from ibpulse.base import limits
from ibpulse.base.errors import RecordingError
from ibpulse.base.text import count_text, size_text, split_lines
from ibpulse.core.events import Event
from ibpulse.core.recordings.file_format import (
    KEY,
    MAX_HEADER_BYTES,
    RATE_COLUMNS,
    SECONDS_COLUMNS,
    UNCERTAINTY_COLUMNS,
    batch_times,
    columns,
    decode,
    encode,
    is_events,
    missing_column,
    pa,
    pq,
    read_events,
    read_header,
    schema,
    write_events,
)
from ibpulse.core.recordings.recording import LATEST_NS, Recording, RecordingMeta, concatenate, meta_between, meta_with

PARTIAL = ".partial"
# memory for everything that a report or a picture computes, measured: at most this much for each sample of a port, and
# this much for each time at which ports were sampled
ROW_BYTES = 220
TICK_BYTES = 350
# decoded at once; ibpulse writes 65,536
MAX_GROUP_ROWS = 1_048_576
# kinds of messages
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
_PARQUET, _STREAM = b"PAR1", b"\xff\xff\xff\xff"
_OTHERWISE = "copy it again from its origin"
_NO_SAMPLE = ("holds no sample", "record again, for longer")
TEMPORARY = ".tmp"
GROUP_ROWS = 65_536
# maximum number of missing samples to fill in: a day at 10 ms
MAX_GAP_TICKS = 8_640_000
_EXCLUSIVELY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "version": "2.6",
    "use_dictionary": ["device", "port", *UNCERTAINTY_COLUMNS],
    "column_encoding": {
        "time": "DELTA_BINARY_PACKED",
        **dict.fromkeys((*RATE_COLUMNS, *SECONDS_COLUMNS), "BYTE_STREAM_SPLIT"),
    },
}


@dataclass(frozen=True, slots=True)
class RecordingExtent:
    """The extent of the recording in a file: wall time of its first sample, and number of samples per port."""

    meta: RecordingMeta
    start_ns: int
    ticks: int


def load(path: Path, first: int = 0, end: int | None = None) -> Recording:
    """The recording in a file, or in `path`.partial if only that exists, because the recording was killed.

    Only the samples from index `first` up to but not including `end`, if given; the metadata is that of the whole.

    Raises:
        RecordingError: the file does not exist, or is not a recording, damaged, of another version, or there is not
            enough memory to analyse it.
    """
    extent = read_extent(path)
    first, end, _ = slice(first, end).indices(extent.ticks)
    _check_memory(path, end - first, len(extent.meta.ports))
    with _as_reading_error(path):
        return concatenate(list(cut_pieces(scan(path), first, end)))


def scan_part(path: Path, first: int = 0, end: int | None = None) -> Iterator[Recording]:
    """The samples from index `first` to before `end` of the recording in a file, as contiguous pieces."""
    return cut_pieces(scan(path), first, sys.maxsize if end is None else end)


def cut_pieces(pieces: Iterator[Recording], first: int, end: int) -> Iterator[Recording]:
    """The samples from `first` to before `end` of contiguous pieces."""
    place = 0
    for piece in pieces:
        if place + piece.ticks > first:
            yield piece.cut(max(0, first - place), min(piece.ticks, end - place))
        place += piece.ticks
        if place >= end:
            return


def _check_memory(path: Path, ticks: int, ports: int) -> None:
    need_bytes, spare_bytes = ticks * (ports * ROW_BYTES + TICK_BYTES), limits.spare_bytes()
    if need_bytes > spare_bytes:
        _refuse(
            path,
            f"has {ticks} samples of {count_text(ports, 'port')} to analyse, which takes {size_text(need_bytes)} of "
            f"memory; {size_text(spare_bytes)} can be spared",
            "choose a shorter part with --from and --to, or use a machine with more memory",
        )


def read_extent(path: Path) -> RecordingExtent:
    """The extent of the recording in a file."""
    with _opened(path) as opened:
        batch = next(opened.batches, None)
        if batch is None:
            _refuse(path, *_NO_SAMPLE)
        first = decode(batch, opened.meta)
        rows = opened.rows or batch.num_rows + sum(other.num_rows for other in opened.batches)
        return RecordingExtent(opened.meta, first.start_ns, rows // len(opened.meta.ports))


def scan(path: Path, meta: RecordingMeta | None = None) -> Iterator[Recording]:
    """The recording in a file as contiguous pieces, at least one.

    `meta` is the metadata with all events of a file that grew, if it is known; otherwise the file is read twice.
    """
    found = False
    with _opened(path, meta) as opened:
        for batch in opened.batches:
            found = True
            yield decode(batch, opened.meta)
    if not found:
        _refuse(path, *_NO_SAMPLE)


def read_meta(path: Path) -> RecordingMeta:
    """The metadata of the recording in a file, without reading its samples."""
    with _opened(path) as opened:
        return opened.meta


@dataclass(frozen=True, slots=True)
class _Opened:
    """The metadata of an open file, its batches of samples, and the number of their rows, 0 if it is not known yet."""

    meta: RecordingMeta
    batches: Iterator[Any]
    rows: int = 0


@contextmanager
def _opened(path: Path, meta: RecordingMeta | None = None) -> Iterator[_Opened]:
    """The content of the file."""
    partial = path.with_name(path.name + PARTIAL)
    there = partial if not path.exists() and partial.exists() else path
    with _as_reading_error(path), there.open("rb") as file:
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


def _open_parquet(path: Path, file: Any) -> _Opened:
    limit = 2 * MAX_HEADER_BYTES
    whole = pq.ParquetFile(file, thrift_string_size_limit=limit, pre_buffer=False)
    about, names = whole.metadata, whole.schema_arrow.names
    groups = range(about.num_row_groups)
    rows = [about.row_group(group).num_rows for group in groups]
    if max(rows, default=0) > MAX_GROUP_ROWS:
        _refuse(path, f"has a row group of more than {MAX_GROUP_ROWS} rows", "use the file that ibpulse wrote")
    meta = _check_schema(path, whole.schema_arrow)
    # the name of a device is then kept once, and not in each row
    parquet = pq.ParquetFile(
        file, metadata=about, read_dictionary=["device"], thrift_string_size_limit=limit, pre_buffer=False
    )
    wanted = columns(meta)
    known = [name for name in names if name in wanted]
    tables = (parquet.read_row_group(group, columns=known) for group in groups)
    batches = (batch for table in tables for batch in table.combine_chunks().to_batches())
    return _Opened(meta, batches, sum(rows))


def _open_stream(path: Path, file: Any, meta: RecordingMeta | None) -> _Opened:
    _check_rows(path, pa.ipc.MessageReader.open_stream(_Bounded(file)))
    file.seek(0)
    if meta is None:
        meta = _check_schema(path, _stream(file).schema)
        file.seek(0)
        meta = _meta_of_stream(path, file, meta)
        file.seek(0)
    return _Opened(meta, (batch for batch, metadata in _batches(path, _stream(file)) if not is_events(metadata)))


def _check_rows(path: Path, messages: Any) -> None:
    """Refuse a stream with a batch of too many rows, without decoding it."""
    with suppress(StopIteration, OSError, pa.ArrowException, struct.error):
        while True:
            if _rows_of(messages.read_next_message().metadata) > MAX_GROUP_ROWS:
                _refuse(path, f"has a batch of more than {MAX_GROUP_ROWS} rows", "use the file that ibpulse wrote")


def _rows_of(message: Any) -> int:
    """The rows that a message of a stream claims (format/Message.fbs of Arrow, in the binary format of FlatBuffers)."""
    raw = bytes(message)

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, raw, at)[0])

    def field(table: int, place: int) -> int:
        """Where a field of a table is; 0 if it has the default value."""
        known = table - number("<i", table)
        offset = number("<H", known + 4 + 2 * place) if 4 + 2 * place < number("<H", known) else 0
        return table + offset if offset else 0

    def table(at: int) -> int:
        return at + number("<I", at)

    root = table(0)
    kind, header = number("<B", field(root, 1)), table(field(root, 2))
    if kind == DICTIONARY_BATCH:
        kind, header = RECORD_BATCH, table(field(header, 1))
    return number("<q", at) if kind == RECORD_BATCH and (at := field(header, 0)) else 0


def _meta_of_stream(path: Path, file: Any, meta: RecordingMeta) -> RecordingMeta:
    """The metadata of a file that grew, with its events and jobs up to its last sample."""
    events: list[Event] = []
    begin_ns = end_ns = 0
    for batch, metadata in _batches(path, _stream(file)):
        if is_events(metadata):
            events += read_events(metadata)
        elif batch.num_rows:
            first_ns, last_ns = batch_times(batch)
            begin_ns, end_ns = begin_ns or first_ns, last_ns + meta.interval_ns
    return meta_with(meta, events, begin_ns, end_ns)


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
        except MemoryError:
            # Arrow's is one of the following as well, but not the end of the file
            raise
        except (StopIteration, OSError, pa.ArrowException):
            return
        yield batch, metadata


def _check_schema(path: Path, found: Any) -> RecordingMeta:
    raw = (found.metadata or {}).get(KEY)
    if raw is None:
        _refuse(path, f"is not a recording of ibpulse: it lacks the metadata {KEY.decode()}", "name another file")
    meta = read_header(raw)
    column = missing_column(found, meta)
    if column:
        _refuse(path, f"lacks the column {column}, or has it with another type", "use the file that ibpulse wrote")
    return meta


def _refuse(path: Path, reason: str, otherwise: str) -> NoReturn:
    raise RecordingError(f"recording {path} {reason}; {otherwise}")


@contextmanager
def _as_reading_error(path: Path) -> Iterator[None]:
    """Convert errors of numpy, Arrow and the system to a RecordingError that names the file."""
    try:
        yield
    except MemoryError as error:
        raise RecordingError(
            f"recording {path} takes more memory than the {size_text(limits.spare_bytes())} that can be spared, or is "
            f"damaged; {_OTHERWISE}, or use a machine with more memory"
        ) from error
    except (pa.ArrowException, EOFError) as error:
        reason = (split_lines(str(error)) or ["unreadable"])[0][:200]
        raise RecordingError(f"recording {path} is cut off or damaged: {reason}; {_OTHERWISE}") from error
    except OSError as error:
        if error.strerror is None:
            raise RecordingError(f"recording {path} is cut off or damaged: {str(error)[:200]}; {_OTHERWISE}") from error
        raise RecordingError(f"recording {path} cannot be read: {error.strerror}; name another file") from error
    except ValueError as error:
        raise RecordingError(f"recording {path} {error}") from error


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
    into = schema(meta)
    with _as_writing_error(path):
        try:
            with open(_create(temporary), "wb") as file:
                with pq.ParquetWriter(file, into, **_OPTIONS) as writer:
                    for piece in pieces:
                        writer.write_batch(encode(piece, into), row_group_size=len(meta.ports) * piece.ticks)
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
        with _as_writing_error(self.partial):
            # exclusive, so that the partial file of another recording is not lost
            self._file = os.fdopen(os.open(self.partial, _EXCLUSIVELY, 0o640), "wb")
            self._schema = schema(self._meta)
            # without threads, which would take 4 MB
            options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
            self._stream = pa.ipc.new_stream(self._file, self._schema, options=options)
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
            with _as_writing_error(self.partial):
                self._stream.write_batch(encode(part, self._schema))
                self._file.flush()
            self._first_ns = part.start_ns if self._first_ns is None else self._first_ns
            self.ticks += part.ticks
            self._next_ns = part.end_ns

    def add_events(self, events: Sequence[Event]) -> None:
        """Write events, of any time; those outside of the samples are left out of the finished file."""
        if not events:
            return
        none = np.empty((len(self._meta.ports), 2, 0))
        batch = encode(Recording(self._meta, 0, none, none), self._schema)
        with _as_writing_error(self.partial):
            self._stream.write_batch(batch, custom_metadata=write_events(events))
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
        with _as_writing_error(self.partial):
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
def _as_writing_error(path: Path) -> Iterator[None]:
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
