"""Reads counter logs of other programs, CSV or Parquet, as samples of ports.

The caller names the columns. A log is *long*, with a column for the port name, or *wide*, with separate columns for
each port; the caller's patterns for wide logs contain `{port}`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ibpulse.base import limits
from ibpulse.base.errors import RecordingError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import size_text, split_lines
from ibpulse.base.units import AMOUNT_UNITS, DURATION_UNITS, RATE_UNITS
from ibpulse.core.recordings.file_format import KEY, MAX_HEADER_BYTES, pa, pq

# memory for reading a log, measured: at most this many times the size of its columns, and this much for each row
COLUMN_COPIES = 4
ROW_BYTES = 64
# of a log in Parquet, decoded at once
BATCH_ROWS = 65_536
# the reader takes a kilobyte for each
MAX_COLUMNS = 10_000
BLOCK_BYTES = 4 << 20
PLACE = "{port}"
ONLY_PORT = "port0"
MORE_MEMORY = "cut it into pieces, or use a machine with more memory"
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"

# a number of seconds below this is before the year 5138; the same digits as milliseconds are from 1973 on
_LEAST_OF = (("ns", 1e17), ("us", 1e14), ("ms", 1e11), ("s", 0.0))


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The meaning of a log's columns and numbers.

    `transmit` and `receive` name a column, or a pattern such as `{port}_tx` in a wide log; one of them may be empty.
    `port` is the column that names the port in a long log, or empty. `unit` is a key of `AMOUNT_UNITS` or
    `RATE_UNITS`. Amounts are running counters or, with `since_before`, differences to the previous row. `time_unit` is
    s, ms, us or ns; empty to guess it from the magnitude of the numbers.
    """

    time: str
    transmit: str = ""
    receive: str = ""
    port: str = ""
    unit: str = "bytes"
    since_before: bool = False
    time_unit: str = ""

    @property
    def is_rate(self) -> bool:
        """Whether the numbers are rates."""
        return self.unit in RATE_UNITS

    @property
    def scale(self) -> float:
        """Bytes, or bytes per second, of one unit."""
        return RATE_UNITS[self.unit] if self.is_rate else AMOUNT_UNITS[self.unit]


@dataclass(frozen=True, slots=True)
class PortLog:
    """The samples of one port in order of time: `time_ns` int64 (rows,), `values` one array (rows,) each for transmit
    and receive, int64 or float64 in the log's unit, or None without such a column. NaN is a missing value.
    """

    name: str
    time_ns: npt.NDArray[np.int64]
    values: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]


def read_log(path: Path, columns: LogColumns) -> list[PortLog]:
    """The ports of a log.

    Raises:
        RecordingError: the file cannot be read, lacks a column, or has an invalid time or number.
    """
    with _as_recording_error(path):
        names = _column_names(path)
        wide = _wide_columns(path, names, columns)
        wanted = [columns.time, *([columns.port] if columns.port else [])]
        wanted += [name for pair in wide.values() for name in pair if name]
        _check_columns(path, names, wanted)
        numbers = [name for pair in wide.values() for name in pair if name]
        table = _read_table(path, list(dict.fromkeys(wanted)), numbers)
        if not table.num_rows:
            _refuse(path, "has no row", "log for longer")
        time_ns = _times(path, table, columns)
        logs = []
        for name, rows in _rows_of_ports(path, table, columns):
            for port, pair in wide.items():
                logs.append(_port_log(path, name or port, rows, time_ns, table, pair))
        return logs


def _wide_columns(path: Path, names: Sequence[str], columns: LogColumns) -> dict[str, tuple[str, str]]:
    """The columns (transmit, receive) of each port of a wide log; those of a single port for any other log."""
    if not (columns.transmit or columns.receive):
        _refuse(path, "cannot be read without a column of bytes", "name one with --transmit or --receive")
    patterns = (columns.transmit, columns.receive)
    if not any(PLACE in pattern for pattern in patterns):
        return {ONLY_PORT: patterns}
    if columns.port:
        _refuse(path, f"is either long or wide: --port and {PLACE} exclude each other", "leave one of them out")
    found: dict[str, list[str]] = {}
    for way, pattern in enumerate(patterns):
        matcher = re.compile(re.escape(pattern).replace(re.escape(PLACE), "(.+)", 1))
        for name in names:
            match = matcher.fullmatch(name) if pattern else None
            if match and match.groups():
                found.setdefault(match[1], ["", ""])[way] = name
    if not found:
        shown = " or ".join(pattern for pattern in patterns if pattern)
        _refuse(path, f"has no column like {shown}", f"it has {_listed(names)}")
    return {port: (pair[0], pair[1]) for port, pair in found.items()}


def _check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        _refuse(path, f"has no column {', '.join(missing)}", f"it has {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])[:400]
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _column_names(path: Path) -> list[str]:
    if _begins(path) == _PARQUET:
        found = _open_parquet(path).schema_arrow
        if KEY in (found.metadata or {}):
            _refuse(path, "is already a recording of ibpulse", "use it directly")
        return list(found.names)
    open_file: Any = gzip.open if _begins(path).startswith(_GZIP) else open
    with open_file(path, "rb") as file:
        if file.readline(BLOCK_BYTES).count(b",") >= MAX_COLUMNS:
            _refuse(path, f"has more than {MAX_COLUMNS} columns", "remove those that are no counters")
    names: list[str] = _open_csv(path, None, None).schema.names
    if len(set(names)) < len(names):
        _refuse(path, "has two columns with the same name", "rename one")
    return names


def _begins(path: Path) -> bytes:
    with _file(path).opened() as file:
        begin = file.read(4)
    if not begin:
        _refuse(path, "is empty", "name another file")
    return begin


def _open_parquet(path: Path, **options: Any) -> Any:
    return pq.ParquetFile(path, thrift_string_size_limit=2 * MAX_HEADER_BYTES, pre_buffer=False, **options)


def _open_csv(path: Path, names: Sequence[str] | None, types: Mapping[str, Any] | None) -> Any:
    from pyarrow import csv  # not needed for recording

    stream = pa.input_stream(str(path), compression="gzip" if _begins(path).startswith(_GZIP) else None)
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(block_size=BLOCK_BYTES),
        convert_options=csv.ConvertOptions(
            include_columns=list(names) if names else None, column_types=dict(types) if types else None
        ),
    )


def _read_table(path: Path, names: Sequence[str], numbers: Sequence[str]) -> Any:
    if _begins(path) == _PARQUET:
        types = {name: _open_parquet(path).schema_arrow.field(name).type for name in names}
        nested = next((name for name in names if pa.types.is_nested(types[name])), "")
        if nested:
            _refuse(path, f"has lists or structures in the column {nested}", "name a column of numbers")
        # a text is then kept once, and not in each row that has it
        file = _open_parquet(path, read_dictionary=[name for name in names if _is_text(types[name])])
        return _collect(path, file.iter_batches(columns=list(names), batch_size=BATCH_ROWS))
    try:
        return _collect(path, _open_csv(path, names, None))
    except pa.ArrowInvalid:
        # a column begins with integers and continues with fractions
        return _collect(path, _open_csv(path, names, dict.fromkeys(numbers, pa.float64())))


def _is_text(kind: Any) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _collect(path: Path, batches: Any) -> Any:
    found, rows, need_bytes, spare_bytes = [], 0, 0, limits.spare_bytes()
    for batch in batches:
        rows += batch.num_rows
        need_bytes += COLUMN_COPIES * batch.nbytes + ROW_BYTES * batch.num_rows
        if need_bytes > spare_bytes:
            _refuse(
                path,
                f"takes more than {size_text(need_bytes)} of memory from row {rows} on; "
                f"{size_text(spare_bytes)} can be spared",
                MORE_MEMORY,
            )
        found.append(batch)
    if not found:
        _refuse(path, "has no row", "log for longer")
    return pa.Table.from_batches(found)


def _times(path: Path, table: Any, columns: LogColumns) -> npt.NDArray[np.int64]:
    """The times of all rows in ns since 1970: int64."""
    column = table.column(columns.time).combine_chunks()
    if column.null_count:
        _refuse(path, f"has rows without a time in the column {columns.time}", "remove them")
    if pa.types.is_timestamp(column.type):
        times: npt.NDArray[np.int64] = np.asarray(column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()))
        return times
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        text = str(column[0])[:40]
        _refuse(path, f"has no time in the column {columns.time}: {text!r}", "write numbers, or 2026-11-21 12:00:00.5")
    values = np.asarray(column)
    if not np.isfinite(values).all():
        _refuse(path, f"has rows without a time in the column {columns.time}", "remove them")
    typical = float(np.median(np.abs(values)))
    unit = columns.time_unit or next(name for name, least in _LEAST_OF if typical >= least)
    size = DURATION_UNITS[unit]
    if float(values.min()) < 0 or float(values.max()) * size >= 2**62:
        _refuse(path, f"has times outside of 1970 to 2116, read as {unit}", "say what they are with --time-unit")
    if values.dtype.kind == "f":
        values = np.rint(values * size)
        size = 1
    found: npt.NDArray[np.int64] = values.astype(np.int64) * size
    return found


def _rows_of_ports(path: Path, table: Any, columns: LogColumns) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """The name of each port of a long log with its rows; an empty name and all rows for any other log."""
    if not columns.port:
        yield "", np.arange(table.num_rows)
        return
    column = table.column(columns.port).cast(pa.string()).combine_chunks()
    coded = column.dictionary_encode()
    if column.null_count or "" in coded.dictionary.to_pylist():
        _refuse(path, f"has rows without a port in the column {columns.port}", "remove them")
    codes = np.asarray(coded.indices)
    order = np.argsort(codes, kind="stable")
    names = coded.dictionary.to_pylist()
    ends = np.searchsorted(codes[order], np.arange(1, len(names)))
    yield from zip(names, np.split(order, ends), strict=True)


def _port_log(
    path: Path,
    name: str,
    rows: npt.NDArray[np.intp],
    time_ns: npt.NDArray[np.int64],
    table: Any,
    pair: tuple[str, str],
) -> PortLog:
    rows = rows[np.argsort(time_ns[rows], kind="stable")]
    times = time_ns[rows]
    twice = np.flatnonzero(np.diff(times) == 0)
    if len(twice):
        _refuse(path, f"has two rows of {name} at {int(times[twice[0]])} ns", "remove one, or name the port's column")
    values = [_numbers(path, table, column)[rows] if column else None for column in pair]
    return PortLog(name, times, (values[0], values[1]))


def _numbers(path: Path, table: Any, name: str) -> npt.NDArray[Any]:
    """A column as int64, or as float64 with NaN for null."""
    column = table.column(name).combine_chunks()
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        shown = str(next(value for value in column if value.is_valid))[:40]
        _refuse(path, f"has no number in the column {name}: {shown!r}", "name a column of numbers")
    # keep integers exact, because a counter needs all its digits
    exact = pa.types.is_signed_integer(kind) and not column.null_count
    values = np.asarray(column.cast(pa.int64() if exact else pa.float64(), safe=False))
    if np.isinf(values).any():
        _refuse(path, f"has an infinite number in the column {name}", "remove that row")
    return values


def _file(path: Path) -> ForeignFile:
    return ForeignFile(path, RecordingError, "log", "name another file")


def _refuse(path: Path, reason: str, otherwise: str) -> NoReturn:
    _file(path).refuse(reason, otherwise)


@contextmanager
def _as_recording_error(path: Path) -> Iterator[None]:
    """Convert errors of Arrow and the system to a RecordingError that names the file."""
    try:
        yield
    except MemoryError:
        spare = size_text(limits.spare_bytes())
        _refuse(path, f"takes more memory than the {spare} that can be spared", MORE_MEMORY)
    except (pa.ArrowException, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = (split_lines(str(error)) or ["unreadable"])[0][:200]
        _refuse(path, f"is neither CSV nor Parquet, or damaged: {reason}", "name another file")
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror or str(error)[:200]}", "name another file")
