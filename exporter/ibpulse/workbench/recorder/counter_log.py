"""Reads counter logs of other programs, CSV or Parquet, and brings their samples to a regular grid.

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
from ibpulse.base.text import count_text, elapsed_text, size_text, split_lines
from ibpulse.base.units import AMOUNT_UNITS, DURATION_UNITS, RATE_UNITS, SECOND_NS, format_duration
from ibpulse.core.arrays import Counts, Floats, Rows, running_sum
from ibpulse.core.recordings.file_format import KEY, MAX_HEADER_BYTES, pa, pq
from ibpulse.core.recordings.recording import MAX_INTERVAL_NS, RecordedPort, Recording, RecordingMeta

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
    time_ns: Counts
    values: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]


def read_log(path: Path, columns: LogColumns) -> list[PortLog]:
    """The ports of a log."""
    with _as_recording_error(path):
        names = _column_names(path)
        wide = _wide_columns(path, names, columns)
        wanted = [columns.time, *([columns.port] if columns.port else [])]
        numbers = [name for pair in wide.values() for name in pair if name]
        wanted += numbers
        if missing := [name for name in wanted if name not in names]:
            _refuse(path, f"has no column {', '.join(missing)}", f"it has {_listed(names)}")
        table = _read_table(path, list(dict.fromkeys(wanted)), numbers)
        if not table.num_rows:
            _refuse(path, "has no row", "log for longer")
        time_ns = _times(path, table, columns)
        return [
            _port_log(path, name or port, rows, time_ns, table, pair)
            for name, rows in _rows_of_ports(path, table, columns)
            for port, pair in wide.items()
        ]


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


def _times(path: Path, table: Any, columns: LogColumns) -> Counts:
    """The times of all rows in ns since 1970: int64."""
    column = table.column(columns.time).combine_chunks()
    if column.null_count:
        _refuse(path, f"has rows without a time in the column {columns.time}", "remove them")
    if pa.types.is_timestamp(column.type):
        times: Counts = np.asarray(column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()))
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
    found: Counts = values.astype(np.int64) * size
    return found


def _rows_of_ports(path: Path, table: Any, columns: LogColumns) -> Iterator[tuple[str, Rows]]:
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


def _port_log(path: Path, name: str, rows: Rows, time_ns: Counts, table: Any, pair: tuple[str, str]) -> PortLog:
    rows = rows[np.argsort(time_ns[rows], kind="stable")]
    times = time_ns[rows]
    twice = np.flatnonzero(np.diff(times) == 0)
    if len(twice):
        _refuse(path, f"has two rows of {name} at {int(times[twice[0]])} ns", "remove one, or name the port's column")
    transmit, receive = (_numbers(path, table, column)[rows] if column else None for column in pair)
    return PortLog(name, times, (transmit, receive))


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


SOURCE = "import"
# a distance between two samples above this multiple of the typical one is missing data
MAX_GAP = 5
# memory for making and writing a recording, measured: at most this much for each sample of a port
SAMPLE_BYTES = 200
# of a longer result, at least this part must have data: one wrong time makes a small log a recording of years
MIN_COVERED = 0.01
FREE_SAMPLES = 1_000_000
# sampling whose distances differ by less is regular
REGULAR = 0.01
# the interval for an uneven log is at least this fraction of its typical distance
MIN_PART = 0.9
_NUMBERED = re.compile(r"(.+)[:/]([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class GridOptions:
    """The grid, and the line rate of each port and direction, which a log does not contain.

    If `interval_ns` or `longest_gap_ns` is None, it is derived from the log's typical distance between samples.
    """

    interval_ns: int | None = None
    longest_gap_ns: int | None = None
    rate_bytes_per_second: float | None = None
    host: str = ""
    reason: str = ""


def resample(logs: Sequence[PortLog], columns: LogColumns, options: GridOptions) -> Recording:
    """The recording of the ports of a log; its first interval begins at the first sample.

    Invariant: between two instants of the grid without missing samples, the bytes are the increase of the log's
    interpolated running sum.

    Raises:
        ValueError: there are fewer than two samples or a negative amount, or the grid would be too long, or nearly
            empty.
    """
    distances_ns = np.concatenate([np.diff(log.time_ns) for log in logs])
    if not distances_ns.size:
        raise ValueError("has fewer than two samples of each port; log for longer")
    typical_ns = int(np.median(distances_ns))
    interval_ns = options.interval_ns or _suggest_interval(distances_ns, typical_ns)
    longest_ns = options.longest_gap_ns or MAX_GAP * max(typical_ns, interval_ns)
    start_ns = min(int(log.time_ns[0]) for log in logs)
    ticks = (max(int(log.time_ns[-1]) for log in logs) - start_ns) // interval_ns
    if ticks < 1:
        raise ValueError(f"is shorter than one interval of {interval_ns / 1e6:g} ms; give a shorter --interval")
    need_bytes, spare_bytes = SAMPLE_BYTES * ticks * len(logs), limits.spare_bytes()
    if need_bytes > spare_bytes:
        raise ValueError(
            f"would have {ticks} samples of {len(logs)} ports at {interval_ns / 1e6:g} ms, which takes "
            f"{size_text(need_bytes)} of memory; {size_text(spare_bytes)} can be spared; give a longer --interval, cut "
            "the log into pieces, or use a machine with more memory"
        )
    if ticks * len(logs) > FREE_SAMPLES:
        _check_coverage(logs, ticks * interval_ns, longest_ns)
    rates, seconds = np.full((len(logs), 2, ticks), np.nan), np.zeros((len(logs), 2, ticks))
    edges = interval_ns * np.arange(ticks + 1, dtype=np.int64)
    for row, log in enumerate(logs):
        for way, values in enumerate(log.values):
            if values is not None:
                moved = _on_grid(log, values, columns, longest_ns, start_ns + edges)
                rates[row, way] = moved * (SECOND_NS / interval_ns)
                seconds[row, way] = np.where(np.isnan(rates[row, way]), 0.0, interval_ns / SECOND_NS)
    ports = tuple(_port(log, columns, options) for log in logs)
    meta = RecordingMeta(options.host, interval_ns, ports, SOURCE, options.reason)
    return Recording(meta, start_ns + interval_ns, rates, seconds)


def _check_coverage(logs: Sequence[PortLog], length_ns: int, longest_ns: int) -> None:
    distances = [np.diff(log.time_ns) for log in logs]
    covered_ns = max(int(distance[distance <= longest_ns].sum()) for distance in distances)
    if covered_ns < MIN_COVERED * length_ns:
        raise ValueError(
            f"has data for {elapsed_text(covered_ns / SECOND_NS)} of {elapsed_text(length_ns / SECOND_NS)}; correct "
            "its times, cut it into pieces, or give a longer --interval"
        )


def _suggest_interval(distances_ns: Counts, typical_ns: int) -> int:
    """The distance of a regular log in three digits; otherwise 1, 2 or 5 times a power of ten, about that or longer."""
    low, high = np.quantile(distances_ns, [0.1, 0.9])
    if high - low <= REGULAR * typical_ns:
        digit = _power_of_ten(typical_ns, 2)
        return min(MAX_INTERVAL_NS, round(typical_ns / digit) * digit)
    power = _power_of_ten(typical_ns)
    fitting = (factor * power for factor in (1, 2, 5, 10) if factor * power >= MIN_PART * typical_ns)
    return min(MAX_INTERVAL_NS, next(fitting))


def _power_of_ten(value: int, below: int = 0) -> int:
    """The power of ten of the first digit of an integer, or of a lower digit; at least 1."""
    return int("1" + "0" * max(0, len(str(value)) - 1 - below))


def _on_grid(log: PortLog, numbers: npt.NDArray[Any], columns: LogColumns, longest_ns: int, edges_ns: Counts) -> Floats:
    """Bytes of one direction between each two edges; NaN if any part of that time is missing."""
    time_ns = log.time_ns
    missing = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(len(numbers), dtype=np.bool_)
    counting = not (columns.since_before or columns.is_rate)
    if counting:
        # the counter continues across missing reads
        time_ns, numbers = time_ns[~missing], numbers[~missing]
    if len(time_ns) < 2:
        return np.full(len(edges_ns) - 1, np.nan)
    distance = np.diff(time_ns)
    moved = np.diff(numbers) if counting else numbers[1:]
    if columns.is_rate:
        moved = moved * (distance / SECOND_NS)
    if not counting and (moved < 0).any():
        raise ValueError(f"has a negative amount of {log.name}; if the column counts, leave --since-before out")
    # a counter that dropped was reset, and the bytes before the reset are unknown
    known = (distance <= longest_ns) & (moved >= 0)
    # exact as floats after the first edge
    at, edges = ((times - edges_ns[0]).astype(np.float64) for times in (time_ns, edges_ns))
    running = running_sum(np.where(known, moved, 0.0) * columns.scale)
    unknown = running_sum(np.where(known, 0.0, np.diff(at)))
    bytes_moved = np.diff(np.interp(edges, at, running))
    inside = (edges[:-1] >= at[0]) & (edges[1:] <= at[-1])
    # half a nanosecond: times are whole ones
    whole = inside & (np.diff(np.interp(edges, at, unknown)) < 0.5)
    return np.where(whole, np.maximum(bytes_moved, 0.0), np.nan)


def _port(log: PortLog, columns: LogColumns, options: GridOptions) -> RecordedPort:
    numbered = _NUMBERED.fullmatch(log.name)
    device, port = (numbered[1], int(numbered[2])) if numbered and int(numbered[2]) <= 255 else (log.name, 1)
    return RecordedPort(
        device,
        port,
        options.rate_bytes_per_second,
        state="",
        source=" ".join(name for name in (columns.transmit, columns.receive) if name),
        resolution_seconds=float(np.median(np.diff(log.time_ns))) / SECOND_NS if len(log.time_ns) > 1 else None,
    )


def describe_import(recording: Recording) -> str:
    """Its size in words, and how much is missing of the directions that have data."""
    ways = ~np.isnan(recording.bytes_per_second).all(axis=(0, 2))
    missing = np.isnan(recording.bytes_per_second[:, ways]).mean() if ways.any() else 1.0
    ports, interval = count_text(len(recording.meta.ports), "port"), format_duration(recording.meta.interval_ns)
    return f"{ports}, {recording.ticks} samples of {interval}, {100 * missing:.1f} % missing"
