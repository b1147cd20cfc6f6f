"""Converts samples to Arrow columns and back, and the metadata of a recording to its header and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from ibpulse.base.errors import RecordingError
from ibpulse.base.installation import how_to_install
from ibpulse.core.arrays import Bools, Singles
from ibpulse.core.events import Event
from ibpulse.core.events.event import MAX_STRIDE
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings.recording import (
    MAX_BYTES_PER_SECOND,
    MAX_SECONDS,
    RecordedPort,
    Recording,
    RecordingMeta,
    events_from_json,
    events_to_json,
    jobs_from_json,
    jobs_to_json,
)
from ibpulse.core.signals import MEANINGS
from ibpulse.core.statistics.gains import MISSING, PortSignals
from ibpulse.core.statistics.plausible import MAX_STEPS, STEPS, Steps

if TYPE_CHECKING:
    from pydantic import TypeAdapter


try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise RecordingError(f"recordings are Parquet files, which need pyarrow; {how_to_install('pyarrow')}") from error

__all__ = ["pa", "pq"]


KEY = b"ibpulse_recording"
"""The key of the JSON among the metadata of the file's schema."""
VERSION_MEMBER = "ibpulse_recording_version"
VERSION = 1
EVENTS_KEY = b"events"
"""The key of the JSON of events among the metadata of a batch, in a file that still grows."""
MAX_HEADER_BYTES = 4_000_000


def write_header(meta: RecordingMeta) -> bytes:
    """The JSON of `meta`."""
    members = dataclasses.asdict(dataclasses.replace(meta, events=(), jobs=()))
    lists = {"events": events_to_json(meta.events), "jobs": jobs_to_json(meta.jobs)}
    # a signal is a list
    return orjson.dumps({VERSION_MEMBER: VERSION, **members, **lists}, default=list)


def read_header(raw: bytes) -> RecordingMeta:
    """The metadata in a header.

    Raises:
        ValueError: the header is not valid; the message continues a sentence that begins with the file name.
    """
    if len(raw) > MAX_HEADER_BYTES:
        raise ValueError(f"has metadata of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are read")
    members = _parse(raw)
    version = members.pop(VERSION_MEMBER, None) if isinstance(members, dict) else None
    if type(version) is not int or version != VERSION:
        shown = repr(version)[:20]
        raise ValueError(f"is of version {shown}, this program reads version {VERSION}; use a newer ibpulse")
    events, jobs = members.pop("events", []), members.pop("jobs", [])
    return dataclasses.replace(_read_members(members), events=events_from_json(events), jobs=jobs_from_json(jobs))


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError("has metadata that is not JSON; copy the file again from its origin") from error


@cache
def _adapter() -> TypeAdapter[RecordingMeta]:
    # writing does not need pydantic, which takes 9 MB
    from pydantic import TypeAdapter

    return TypeAdapter(RecordingMeta)


def _read_members(members: dict[str, Any]) -> RecordingMeta:
    from pydantic import ValidationError

    from ibpulse.base.values import explain

    try:
        meta = _adapter().validate_json(json.dumps(members), strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))[:100] or "(top level)"
        raise ValueError(f"has invalid metadata: {place}: {explain(fault)}") from error
    for port in meta.ports:
        _check_numbers(port)
    return dataclasses.replace(meta, ports=tuple(map(_know_signals, meta.ports)))


def _know_signals(port: RecordedPort) -> RecordedPort:
    """The port with each signal once, without those of a newer version."""
    usable = (signal for signal in port.signals if signal.name in MEANINGS and 0 < signal.bits <= MAX_BITS)
    known = tuple({signal.name: signal for signal in usable}.values())
    return port if known == port.signals else dataclasses.replace(port, signals=known)


def _check_numbers(port: RecordedPort) -> None:
    """Numbers with which nothing that is computed from them can overflow."""
    rate, seconds = port.rate_bytes_per_second or 1.0, port.resolution_seconds or 0.0
    sound = 1.0 <= rate <= MAX_BYTES_PER_SECOND and 0.0 <= seconds <= MAX_SECONDS and port.stride <= MAX_STRIDE
    if not sound:
        reason = f"has invalid metadata: a number of port {port.id} is out of bounds"
        raise ValueError(f"{reason}; use the file that ibpulse wrote")


def write_events(events: Sequence[Event]) -> dict[bytes, bytes]:
    """The metadata of a batch without samples that holds events."""
    return {EVENTS_KEY: orjson.dumps(events_to_json(events))}


def is_events(metadata: Any) -> bool:
    """Whether a batch with this metadata holds events, not samples."""
    return EVENTS_KEY in dict(metadata or {})


def read_events(metadata: Any) -> tuple[Event, ...]:
    """The events in the metadata of a batch.

    Raises:
        ValueError: they are not valid; the message continues as in `read_header`.
    """
    raw = dict(metadata)[EVENTS_KEY]
    if len(raw) > MAX_HEADER_BYTES:
        raise ValueError(f"has events of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are read")
    return events_from_json(_parse(raw))


RATE_COLUMNS = tuple(f"{direction}_bytes_per_second" for direction in DIRECTIONS)
SECONDS_COLUMNS = tuple(f"{direction}_seconds" for direction in DIRECTIONS)
UNCERTAINTY_COLUMNS = tuple(f"{direction}_uncertainty" for direction in DIRECTIONS)
MERGED_COLUMNS = tuple(f"{direction}_merged" for direction in DIRECTIONS)

_FIELDS = (
    pa.field("time", pa.timestamp("ns", "UTC"), nullable=False),
    pa.field("device", pa.dictionary(pa.int16(), pa.string()), nullable=False),
    pa.field("port", pa.int16(), nullable=False),
    *(pa.field(name, pa.float64()) for name in RATE_COLUMNS),
    *(pa.field(name, pa.float64()) for name in SECONDS_COLUMNS),
    *(pa.field(name, pa.float32()) for name in UNCERTAINTY_COLUMNS),
    *(pa.field(name, pa.bool_()) for name in MERGED_COLUMNS),
)
SIGNAL_SECONDS = "signal_seconds"
MAX_BITS = 64


def signal_names(meta: RecordingMeta) -> list[str]:
    """The columns of signals: those that any port has."""
    had = {signal.name for port in meta.ports for signal in port.signals}
    return [name for name in MEANINGS if name in had]


def _fields(meta: RecordingMeta) -> list[Any]:
    names = signal_names(meta)
    seconds = [pa.field(SIGNAL_SECONDS, pa.float64())] if names else []
    return [*_FIELDS, *seconds, *(pa.field(name, pa.uint64()) for name in names)]


def columns(meta: RecordingMeta) -> frozenset[str]:
    """The names of all columns of a recording."""
    return frozenset(field.name for field in _fields(meta))


def schema(meta: RecordingMeta) -> Any:
    """The Arrow schema of a recording, with `meta` in its metadata."""
    return pa.schema(_fields(meta), metadata={KEY: write_header(meta)})


def missing_column(found: Any, meta: RecordingMeta) -> str:
    """The name of a column that an Arrow schema lacks or has with another type; empty if there is none."""
    types = {field.name: field.type for field in found}
    if len(types) != len(found):
        return "each column once"
    return next(
        (each.name for each in _fields(meta) if each.name not in types or not _like(types[each.name], each.type)), ""
    )


def _like(found: Any, wanted: Any) -> bool:
    # a reader that ignores Arrow's own schema sees plain strings and wider integers
    if pa.types.is_dictionary(wanted):
        return found == pa.string() or bool(pa.types.is_dictionary(found) and found.value_type == pa.string())
    return bool(found == wanted)


def encode(piece: Recording, into: Any) -> Any:
    """The record batch of a piece, by the schema of its recording."""
    devices = list(dict.fromkeys(port.device for port in piece.meta.ports))
    codes = np.array([devices.index(port.device) for port in piece.meta.ports], dtype=np.int16)
    numbers = np.array([port.port for port in piece.meta.ports], dtype=np.int16)
    columns = [
        _plain(np.tile(piece.time_ns(), len(codes)), into.field("time").type),
        pa.DictionaryArray.from_arrays(_plain(np.repeat(codes, piece.ticks), pa.int16()), _texts(devices)),
        _plain(np.repeat(numbers, piece.ticks), pa.int16()),
    ]
    missing = [np.isnan(piece.bytes_per_second[:, way]).ravel() for way in range(2)]
    columns += [_plain(piece.bytes_per_second[:, way].ravel(), pa.float64(), missing[way]) for way in range(2)]
    columns += [_plain(piece.seconds[:, way].ravel(), pa.float64(), missing[way]) for way in range(2)]
    shape = piece.seconds.shape
    steps = np.zeros(shape, dtype=np.uint16) if piece.steps is None else piece.steps
    merged = np.zeros(shape, dtype=np.bool_) if piece.merged is None else piece.merged
    columns += [
        _plain(steps[:, way].ravel().astype(np.float32) / np.float32(STEPS), pa.float32(), missing[way])
        for way in range(2)
    ]
    columns += [
        _plain(np.packbits(merged[:, way].ravel(), bitorder="little"), pa.bool_(), missing[way]) for way in range(2)
    ]
    return pa.record_batch([*columns, *_encode_signals(piece)], schema=into)


def _encode_signals(piece: Recording) -> Iterator[Any]:
    """The columns of the signals; those of a port without a signal are null."""
    rows = len(piece.meta.ports) * piece.ticks
    pairs = list(zip(piece.meta.ports, piece.every_signals, strict=True))
    names = signal_names(piece.meta)
    for name in [SIGNAL_SECONDS, *names] if names else []:
        kind = np.float64 if name == SIGNAL_SECONDS else np.uint64
        values, nulls = np.zeros(rows, dtype=kind), np.ones(rows, dtype=np.bool_)
        for number, (port, read) in enumerate(pairs):
            own = [signal.name for signal in port.signals]
            if name not in (SIGNAL_SECONDS, *own):
                continue
            mine = read.seconds if name == SIGNAL_SECONDS else read.counters[:, own.index(name)]
            missing = np.isnan(mine) if name == SIGNAL_SECONDS else mine == MISSING
            at = number * piece.ticks + read.samples
            values[at], nulls[at] = np.where(missing, 0, mine), missing
        yield _plain(values, pa.float64() if name == SIGNAL_SECONDS else pa.uint64(), nulls)


# pa.array() and np.asarray() would do the same, but import pandas where that is installed, which takes 40 MB


def _plain(values: npt.NDArray[Any], kind: Any, nulls: Bools | None = None) -> Any:
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    length = len(values) if nulls is None else len(nulls)
    return pa.Array.from_buffers(kind, length, [valid, pa.py_buffer(np.ascontiguousarray(values))])


def _texts(texts: Sequence[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def decode(batch: Any, meta: RecordingMeta) -> Recording:
    """The piece in a batch.

    Raises:
        ValueError: the rows are not on a regular grid or not of these ports; the message continues as in `read_header`.
        pa.ArrowInvalid: the batch is damaged.
    """
    # offsets and indices in a damaged file can point anywhere
    batch.validate(full=True)
    ports = len(meta.ports)
    ticks, rest = divmod(batch.num_rows, ports)
    if rest or not ticks:
        raise ValueError(f"has {batch.num_rows} rows; expected a positive multiple of {ports}, the number of ports")
    if any(batch.column(name).null_count for name in ("time", "device", "port")):
        raise ValueError("has rows without a time or a port; use the file that ibpulse wrote")
    time_ns = _values(batch.column("time"), np.int64).reshape(ports, ticks)
    start_ns = int(time_ns[0, 0])
    regular = start_ns + meta.interval_ns * np.arange(ticks, dtype=np.int64)
    if not (time_ns == regular).all() or not _ports_in_order(batch, meta, ticks):
        raise ValueError("has its rows in another order than ibpulse writes them; use the file that ibpulse wrote")
    rates = np.stack([_floats(batch, name, np.nan, ports) for name in RATE_COLUMNS], axis=1)
    seconds = np.stack([_floats(batch, name, 0.0, ports) for name in SECONDS_COLUMNS], axis=1)
    steps, merged = _read_steps(batch, ports), _read_merged(batch, ports)
    return Recording(meta, start_ns, rates, seconds, steps, merged, _decode_signals(batch, meta))


def _decode_signals(batch: Any, meta: RecordingMeta) -> tuple[PortSignals, ...]:
    names = signal_names(meta)
    if not names:
        return ()
    ports = len(meta.ports)
    seconds = _floats(batch, SIGNAL_SECONDS, np.nan, ports)
    if not (np.isnan(seconds) | ((seconds >= 0) & (seconds <= MAX_SECONDS))).all():
        raise ValueError("has a time between readings that is negative or not finite; use the file that ibpulse wrote")
    counters = {name: _floats(batch, name, MISSING, ports, np.uint64) for name in names}
    found = []
    for row, port in enumerate(meta.ports):
        own = np.full((len(port.signals), batch.num_rows // ports), MISSING)
        for column, signal in enumerate(port.signals):
            own[column] = counters[signal.name][row]
        samples = np.flatnonzero((own != MISSING).any(axis=0))
        found.append(PortSignals(samples, seconds[row, samples], own[:, samples].T))
    return tuple(found)


def _read_steps(batch: Any, ports: int) -> Steps:
    columns = [_floats(batch, name, 0.0, ports, np.float32) for name in UNCERTAINTY_COLUMNS]
    uncertainty: Singles = np.stack(columns, axis=1)
    if not (np.isfinite(uncertainty) & (uncertainty >= 0)).all():
        raise ValueError("has an uncertainty that is negative or not finite; use the file that ibpulse wrote")
    # limited before the product, which could be infinite
    steps: Steps = np.rint(np.minimum(uncertainty, MAX_STEPS / STEPS) * np.float32(STEPS)).astype(np.uint16)
    return steps


def _read_merged(batch: Any, ports: int) -> Bools:
    columns = []
    for name in MERGED_COLUMNS:
        array = batch.column(name)
        # bits for the validity, if there are nulls, and bits for the values
        bits = [_bits(array, buffer) for buffer in array.buffers() if buffer is not None]
        columns.append(np.logical_and.reduce(bits).reshape(ports, -1))
    return np.stack(columns, axis=1)


def _bits(array: Any, buffer: Any) -> Bools:
    bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def batch_times(batch: Any) -> tuple[int, int]:
    """Wall times of the first and the last sample in a batch.

    Raises:
        pa.ArrowInvalid: the batch is damaged.
    """
    batch.validate()
    times = _values(batch.column("time"), np.int64)
    return int(times[0]), int(times[-1])


def _ports_in_order(batch: Any, meta: RecordingMeta, ticks: int) -> bool:
    numbers = np.repeat(np.array([port.port for port in meta.ports], dtype=np.int16), ticks)
    if not np.array_equal(_values(batch.column("port"), np.int16), numbers):
        return False
    devices = batch.column("device").dictionary_encode()
    names = devices.dictionary.to_pylist()
    codes = _values(devices.indices.cast(pa.int32()), np.int32).reshape(len(meta.ports), ticks)
    same = codes == codes[:, :1]
    return bool(same.all()) and [names[code] for code in codes[:, 0]] == [port.device for port in meta.ports]


def _floats(
    batch: Any, name: str, missing: float | np.uint64, ports: int, kind: type[np.number[Any]] = np.float64
) -> npt.NDArray[Any]:
    """A column as (ports, samples), with `missing` in place of nulls."""
    array = batch.column(name)
    values = _values(array, kind)
    if array.null_count:
        values = np.where(_bits(array, array.buffers()[0]), values, missing)
    return values.reshape(ports, -1)


def _values(array: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The values of an Arrow array as a view; those of nulls are undefined."""
    whole = np.frombuffer(array.buffers()[1] or b"", dtype=kind)
    return whole[array.offset : array.offset + len(array)]
