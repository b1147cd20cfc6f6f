"""Resamples uneven samples to a recording on a regular grid.

Counters are running sums, so the bytes between two instants are the difference of two interpolated values: none is lost
or counted twice. Spans without data, because they are too long or because a counter dropped, remain missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.base import limits
from ibpulse.base.text import elapsed_text, size_text
from ibpulse.base.units import SECOND_NS, format_duration
from ibpulse.core.arrays import Floats
from ibpulse.core.recordings.recording import MAX_INTERVAL_NS, RecordedPort, Recording, RecordingMeta
from ibpulse.workbench.recorder.counter_log import LogColumns, PortLog

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


@dataclass(frozen=True, slots=True)
class _Spans:
    """Bytes of one direction of a port between each two instants; `known` marks the spans with data."""

    time_ns: npt.NDArray[np.int64]
    moved: Floats
    known: npt.NDArray[np.bool_]


def resample(logs: Sequence[PortLog], columns: LogColumns, options: GridOptions) -> Recording:
    """The recording of the ports of a log; its first interval begins at the first sample.

    Invariant: between two instants of the grid without missing samples, the bytes are the increase of the log's
    interpolated running sum.

    Raises:
        ValueError: there are fewer than two samples or a negative amount, or the grid would be too long, or nearly
            empty.
    """
    typical_ns = _typical_distance(logs)
    interval_ns = options.interval_ns or _suggest_interval(logs, typical_ns)
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
                spans = _spans(log, values, columns, longest_ns)
                rates[row, way] = _on_grid(spans, start_ns, edges) * (SECOND_NS / interval_ns)
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


def _typical_distance(logs: Sequence[PortLog]) -> int:
    distances = [np.diff(log.time_ns) for log in logs if len(log.time_ns) > 1]
    if not distances:
        raise ValueError("has fewer than two samples of each port; log for longer")
    return int(np.median(np.concatenate(distances)))


def _suggest_interval(logs: Sequence[PortLog], typical_ns: int) -> int:
    """The distance of a regular log in three digits; otherwise 1, 2 or 5 times a power of ten, about that or longer."""
    distances = np.concatenate([np.diff(log.time_ns) for log in logs])
    low, high = np.quantile(distances, [0.1, 0.9])
    if high - low <= REGULAR * typical_ns:
        digit = _power_of_ten(typical_ns, 2)
        return min(MAX_INTERVAL_NS, round(typical_ns / digit) * digit)
    power = _power_of_ten(typical_ns)
    fitting = (factor * power for factor in (1, 2, 5, 10) if factor * power >= MIN_PART * typical_ns)
    return min(MAX_INTERVAL_NS, next(fitting))


def _power_of_ten(value: int, below: int = 0) -> int:
    """The power of ten of the first digit of an integer, or of a lower digit; at least 1."""
    return int("1" + "0" * max(0, len(str(value)) - 1 - below))


def _spans(log: PortLog, values: npt.NDArray[np.generic], columns: LogColumns, longest_ns: int) -> _Spans:
    time_ns, numbers = log.time_ns, np.asarray(values)
    missing = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(len(numbers), dtype=np.bool_)
    counting = not (columns.since_before or columns.is_rate)
    if counting:
        # the counter continues across missing reads
        time_ns, numbers, missing = time_ns[~missing], numbers[~missing], missing[~missing]
    distance = np.diff(time_ns)
    moved = np.diff(numbers) if counting else numbers[1:]
    if columns.is_rate:
        moved = moved * (distance / SECOND_NS)
    if not counting and (moved < 0).any():
        raise ValueError(f"has a negative amount of {log.name}; if the column counts, leave --since-before out")
    # a counter that dropped was reset, and the bytes before the reset are unknown
    known = (distance <= longest_ns) & (moved >= 0)
    return _Spans(time_ns, np.where(known, moved, 0.0) * columns.scale, known)


def _on_grid(spans: _Spans, start_ns: int, edges: npt.NDArray[np.int64]) -> Floats:
    """Bytes between each two edges (ns after the start); NaN if any part of that time is missing."""
    if len(spans.time_ns) < 2:
        return np.full(len(edges) - 1, np.nan)
    at = (spans.time_ns - start_ns).astype(np.float64)
    running = np.concatenate(([0.0], np.cumsum(spans.moved)))
    unknown = np.concatenate(([0.0], np.cumsum(np.where(spans.known, 0.0, np.diff(at)))))
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
    ports = len(recording.meta.ports)
    what = f"{ports} port" if ports == 1 else f"{ports} ports"
    interval = format_duration(recording.meta.interval_ns)
    return f"{what}, {recording.ticks} samples of {interval}, {100 * missing:.1f} % missing"
