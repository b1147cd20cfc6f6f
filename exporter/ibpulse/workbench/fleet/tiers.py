"""The stage of one part, which runs in any process: computes the small tiers from a raw file, with bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import RecordingError
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Singles
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording, RecordingExtent, RecordingMeta, read_extent, scan
from ibpulse.core.recordings.file_format import pa
from ibpulse.core.recordings.recording import SampleTimes, history_of, trace_holdings, trace_owners
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.core.statistics.rates import coarsest_ticks, finest_ticks
from ibpulse.core.statistics.steps.edges import MAX_MISSING, EdgeTimes, find_least_idle, find_step_edges
from ibpulse.core.statistics.steps.runs import SILENT_BYTES_PER_SECOND, find_equal_runs, mark_long_runs, silence_level
from ibpulse.workbench.fleet import dataset

# 64 MB of rates: an hour of 20 rails at 10 ms. Longer spans are cut into several parts
MAX_VALUES = 16_000_000
# two ports step together if their active samples correlate this much; those of two pipelines a fifth of a step apart
# do not, and a few ms of lateness do not matter
MIN_CORRELATION = 0.5


@dataclass(frozen=True, slots=True)
class PartOrigin:
    """Facts about a part beyond its samples: their source, the labels of the node, and its clock at `measured_ns`."""

    source: str
    labels: Mapping[str, str] = field(default_factory=dict)
    offset: ClockOffset | None = None
    synchronised: bool | None = None
    measured_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PartSummary:
    """Size and content of a part that was written: the bytes of its raw file and of its small tiers."""

    part: dataset.Part
    raw_bytes: int
    tier_bytes: int
    seconds: float
    observed_ratio: float
    steps: int


def finish_part(place: str, part: dataset.Part, origin: PartOrigin) -> PartSummary:
    """Compute the small tiers of a part from its raw file; the file of the tier `files` is the last one.

    The same part gives the same files, so it may be repeated.

    Raises:
        IbpulseError: the raw file cannot be read, or the tiers cannot be written.
    """
    store = dataset.DatasetStore(place)
    with _raw_file(store, part) as path:
        extent = read_extent(path)
        try:
            tables, numbers = compute_tiers(extent, scan(path), part.job, origin.labels)
        except ValueError as error:
            raise RecordingError(f"recording {path} is damaged: {error}; collect it again") from error
        raw_bytes = path.stat().st_size
    meta, offset = extent.meta, origin.offset
    row = numbers | {
        "start_ns": extent.start_ns,
        "end_ns": _end_ns(extent),
        "interval_ns": meta.interval_ns,
        "samples": extent.ticks,
        "ports": len(meta.ports),
        "source": origin.source,
        "ibpulse_version": meta.ibpulse_version,
        "simulated": meta.simulated,
        "clock_offset_ns": offset.offset_ns if offset else None,
        "clock_bound_ns": offset.uncertainty_ns if offset else None,
        "clock_synchronised": origin.synchronised,
        "clock_measured_ns": origin.measured_ns,
        **{name: origin.labels.get(name) for name in dataset.PLACES},
    }
    tables[dataset.FILES] = dataset.make_table(dataset.FILES, {name: [value] for name, value in row.items()})
    written = sum(store.write_table(tier, part, table) for tier, table in tables.items())
    seconds = extent.ticks * meta.interval_ns / SECOND_NS
    steps = tables[dataset.STEPS].num_rows
    return PartSummary(part, raw_bytes, written, seconds, numbers["observed_ratio"], steps)


@contextmanager
def _raw_file(store: dataset.DatasetStore, part: dataset.Part) -> Iterator[Path]:
    """The raw file of a part on this machine."""
    local = store.local_path(dataset.RAW, part)
    if local is not None:
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="ibpulse-") as folder:
        copy = Path(folder) / "part.parquet"
        store.copy_out(dataset.RAW, part, copy)
        yield copy


def _end_ns(extent: RecordingExtent) -> int:
    """The time at which the next sample would be."""
    return extent.start_ns + extent.ticks * extent.meta.interval_ns


def choose_rails(meta: RecordingMeta, job: str = "") -> list[int]:
    """The rows of the ports whose traffic counts: those of the job if it is known, else the rails, else all ports.

    A job is named by its id, or by its scheduler and id (`slurm:42`).
    """
    owned = {
        str(port)
        for record in trace_holdings(meta.jobs, meta.events)
        if job in (record.job.claim.id, ":".join(record.job.claim.key))
        for holding in record.holdings
        for port in holding.ports
    }
    return (
        [row for row, port in enumerate(meta.ports) if str(port.id) in owned]
        or [row for row, port in enumerate(meta.ports) if port.rail]
        or list(range(len(meta.ports)))
    )


def compute_tiers(
    extent: RecordingExtent, pieces: Iterable[Recording], job: str = "", labels: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The small tiers of the contiguous pieces of a part, which together have the given extent.

    `job` selects the ports whose traffic counts, `labels` are those of the node. The result is the tables by the names
    of their tiers, and the columns of the tier `files` that depend on the samples; `resolution_ns` of them is the
    longest time between two changes of the counters of a rail.

    Law: the tiers depend only on the samples, not on how they are cut into pieces.

    Raises:
        ValueError: the pieces are not those of the extent.
    """
    meta = extent.meta
    rows = choose_rails(meta, job)
    rates = np.full((len(rows), 2, extent.ticks), np.nan, dtype=np.float32)
    seconds = _RailSeconds(len(rows), extent)
    place = 0
    for piece in pieces:
        if piece.start_ns != extent.start_ns + place * meta.interval_ns or place + piece.ticks > extent.ticks:
            raise ValueError(f"a piece begins at {piece.start_ns} ns, which does not follow the one before")
        mine = piece.bytes_per_second[rows]
        seconds.add(piece.start_ns, mine, piece.peaks[rows])
        rates[:, :, place : place + piece.ticks] = mine
        place += piece.ticks
    if place != extent.ticks:
        raise ValueError(f"the pieces have {place} samples; {extent.ticks} were expected")
    steps, groups = _step_table(extent, rows, rates, labels or {})
    tables = {
        dataset.NODE_SUMS: _sum_table(extent, rates),
        dataset.RAIL_SECONDS: seconds.table([str(meta.ports[row].id) for row in rows]),
        dataset.STEPS: steps,
    }
    return tables, {
        "resolution_ns": _find_resolution(meta, rows),
        "rails": len(rows),
        "line_rate_bytes_per_second": _line_rate(meta, rows),
        "observed_ratio": float((~np.isnan(rates)).mean()) if rates.size else 0.0,
        "step_groups": groups,
    }


def _find_resolution(meta: RecordingMeta, rows: Iterable[int]) -> int:
    """The longest time between two changes of the counters of some ports, in ns."""
    ports = [meta.ports[row] for row in rows]
    ticks = (max(port.stride, finest_ticks(port.resolution_seconds, meta.interval_ns, port.stride)) for port in ports)
    return coarsest_ticks(ticks) * meta.interval_ns


def _line_rate(meta: RecordingMeta, rows: Iterable[int]) -> float | None:
    """The sum of the rates of some links, None if one of them is unknown."""
    rates = [meta.ports[row].rate_bytes_per_second for row in rows]
    return None if None in rates else float(sum(rate or 0.0 for rate in rates))


def _sum_table(extent: RecordingExtent, rates: Singles) -> Any:
    missing: Bools = np.asarray(np.isnan(rates).all(axis=0))
    # one direction at a time: float64 of all ports would take twice the memory of the rates
    sums = [np.where(missing[way], np.nan, np.nansum(rates[:, way], axis=0, dtype=np.float64)) for way in range(2)]
    return dataset.make_table(
        dataset.NODE_SUMS,
        {
            "time_ns": extent.start_ns + extent.meta.interval_ns * np.arange(extent.ticks, dtype=np.int64),
            "transmit_bytes_per_second": sums[0],
            "receive_bytes_per_second": sums[1],
            "rails_observed": np.count_nonzero(~np.isnan(rates).any(axis=1), axis=0),
            "rails": np.full(extent.ticks, len(rates)),
        },
    )


class _RailSeconds:
    """Mean and highest rate of each port in each second, added up piece by piece.

    A sample belongs to the second in which its time ends, the end included.
    """

    def __init__(self, ports: int, extent: RecordingExtent) -> None:
        self._interval_ns = extent.meta.interval_ns
        self._first = (extent.start_ns - 1) // SECOND_NS
        seconds = (_end_ns(extent) - self._interval_ns - 1) // SECOND_NS - self._first + 1
        self._sum = np.zeros((ports, 2, seconds))
        self._count = np.zeros((ports, 2, seconds), dtype=np.int64)
        self._both = np.zeros((ports, seconds), dtype=np.int64)
        self._peak = np.full((ports, 2, seconds), np.nan)

    def add(self, start_ns: int, rates: Floats, peaks: Floats) -> None:
        """Add rates and the certain part of them, (ports, 2, samples); the first sample is at `start_ns`."""
        times_ns = start_ns + self._interval_ns * np.arange(rates.shape[2], dtype=np.int64)
        seconds = (times_ns - 1) // SECOND_NS - self._first
        firsts, _ = find_equal_runs(seconds)
        into = seconds[firsts]
        known = ~np.isnan(rates)
        self._sum[..., into] += np.add.reduceat(np.where(known, rates, 0.0), firsts, axis=2)
        self._count[..., into] += np.add.reduceat(known, firsts, axis=2, dtype=np.int64)
        self._both[:, into] += np.add.reduceat(known.all(axis=1), firsts, axis=1, dtype=np.int64)
        self._peak[..., into] = np.fmax(self._peak[..., into], np.fmax.reduceat(peaks, firsts, axis=2))

    def table(self, names: list[str]) -> Any:
        """The tier of ports with these names, by time and then by port, so that files can be read by time."""
        mean = np.divide(self._sum, self._count, out=np.full(self._sum.shape, np.nan), where=self._count > 0)
        seconds = self._first + np.arange(self._sum.shape[2], dtype=np.int64)
        whole = max(1.0, SECOND_NS / self._interval_ns)
        rates = {
            f"{way}{what}_bytes_per_second": values[:, index].T.ravel()
            for what, values in (("", mean), ("_peak", self._peak))
            for index, way in enumerate(DIRECTIONS)
        }
        return dataset.make_table(
            dataset.RAIL_SECONDS,
            {
                "time_ns": np.repeat(seconds * SECOND_NS, len(names)),
                "port": names * len(seconds),
                **rates,
                "observed_ratio": np.minimum(1.0, self._both / whole).T.ravel(),
            },
        )


def _find_owners(extent: RecordingExtent, rows: Iterable[int], labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """For each port the job that had it for the longest time of the part, and its stage; empty where unknown.

    The stage is the label `stage_DEVICE` of the node, or else `stage`.
    """
    meta, ports = extent.meta, [extent.meta.ports[row] for row in rows]
    samples = SampleTimes(extent.start_ns, meta.interval_ns, extent.ticks)
    records, states = trace_holdings(meta.jobs, meta.events), history_of(meta, extent.start_ns)
    held = trace_owners(records, [str(port.id) for port in ports], states, samples)
    found = []
    for port in ports:
        spans = held.get(str(port.id), {})
        longest = max(spans, key=lambda job: sum(end - first for first, end in spans[job]), default=("", ""))
        found.append((longest[1], labels.get(f"stage_{port.device}", labels.get("stage", ""))))
    return found


def _step_table(extent: RecordingExtent, rows: list[int], rates: Singles, labels: Mapping[str, str]) -> tuple[Any, int]:
    """The tier of the steps, and the number of groups of ports."""
    meta = extent.meta
    tables = []
    for number, (places, job, stage) in enumerate(_find_groups(rates, _find_owners(extent, rows, labels))):
        mine = [rows[place] for place in places]
        columns = _describe_steps(extent, mine, rates[places])
        count = len(columns["step"])
        texts = {
            "ports": ",".join(str(meta.ports[row].id) for row in mine),
            "owner": job or None,
            "stage": stage or None,
        }
        words = {name: [text] * count for name, text in texts.items()}
        tables.append(dataset.make_table(dataset.STEPS, {"group": np.full(count, number), **words, **columns}))
    if not tables:
        return dataset.SCHEMAS[dataset.STEPS].empty_table(), 0
    return pa.concat_tables(tables).unify_dictionaries(), len(tables)


def _find_groups(rates: Singles, owners: Sequence[tuple[str, str]]) -> list[tuple[list[int], str, str]]:
    """The groups of ports that step together, with job and stage: `rates` is (ports, 2, samples), NaN for missing data.

    A port moves bytes in the samples that are not silent by its own highest rate. The sum over a whole node mixes the
    pipelines that share it, and then no step has a silence. Each port is in the group of the first port to which it is
    alike.
    """
    highest = np.fmax.reduce(rates, axis=(1, 2), initial=0.0)
    least = silence_level(highest, SILENT_BYTES_PER_SECOND)[:, np.newaxis]
    active = np.fmax(rates[:, 0], rates[:, 1]) > least
    by_owner: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(active.any(axis=1)).tolist():
        by_owner.setdefault(owners[row], []).append(row)
    found = []
    for owner, rows in by_owner.items():
        correlation = _correlate(active[rows])
        groups: list[list[int]] = []
        for place in range(len(rows)):
            fitting = (group for group in groups if correlation[group[0], place] >= MIN_CORRELATION)
            group = next(fitting, None)
            if group is None:
                groups.append(group := [])
            group.append(place)
        found += [([rows[place] for place in group], *owner) for group in groups]
    return sorted(found)


def _correlate(active: Bools) -> Floats:
    """The correlation of each two rows; rows that are active all the time are alike."""
    flags = active.astype(np.float32)
    part = flags.mean(axis=1, dtype=np.float64)
    covariance = (flags @ flags.T).astype(np.float64) / active.shape[1] - np.outer(part, part)
    deviation = np.sqrt(part * (1 - part))
    scale = np.outer(deviation, deviation)
    steady = np.outer(part == 1, part == 1)
    return np.where(steady, 1.0, np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))


def _sum_ports(rates: Singles) -> Floats:
    """The sum over ports, (2, samples), of rates (ports, 2, samples); NaN where one of them misses a sample.

    A port that misses many samples in a row is left out of them, unless all ports are missing.
    """
    missing: Bools = np.asarray(np.isnan(rates).any(axis=1))
    left_out: Bools = np.array([mark_long_runs(row, MAX_MISSING) for row in missing]) & ~missing.all(axis=0)
    summed: Floats = np.sum(np.where(left_out[:, np.newaxis], 0, rates), axis=0, dtype=np.float64)
    return summed


def _describe_steps(extent: RecordingExtent, rows: list[int], rates: Singles) -> dict[str, npt.NDArray[Any]]:
    """The columns of the tier `steps` about the steps of a group of ports; times are in whole ns.

    `rates` are those of the ports in `rows`, (ports, 2, samples), NaN for missing data. Only steps between two silences
    are listed.
    """
    interval_ns = extent.meta.interval_ns
    resolution_ns = _find_resolution(extent.meta, rows)
    # an interval in which counters change several times adds nothing to the error of an edge
    least_bound_ns = resolution_ns if resolution_ns > interval_ns else 0
    summed = _sum_ports(rates)
    observed: Floats = np.asarray(np.nansum(rates, axis=0, dtype=np.float64))
    threshold = float(silence_level(np.max(observed, initial=0.0), SILENT_BYTES_PER_SECOND))
    least = find_least_idle(summed.max(axis=0), threshold, interval_ns)
    found = find_step_edges(summed, interval_ns, _line_rate(extent.meta, rows), least_idle=least)
    times, this, following = found.times, slice(None, -1), slice(1, None)
    of_edges = (
        times.end_before.chosen(this),
        times.transmit.chosen(this),
        times.receive.chosen(this),
        found.transmit_end.chosen(following),
        found.receive_end.chosen(following),
    )
    first, end = found.first_idle[this], found.first_idle[following]
    columns: dict[str, npt.NDArray[Any]] = {"step": np.arange(len(first), dtype=np.int32)}
    begin_ns = extent.start_ns - interval_ns
    for name, edge in zip(dataset.EDGES, of_edges, strict=True):
        known = ~np.isnan(edge.at)
        columns[f"{name}_ns"] = _whole_ns(edge, begin_ns)
        widest = np.ceil(np.fmax(edge.at - edge.low, edge.high - edge.at))
        columns[f"{name}_bound_ns"] = np.maximum(widest, least_bound_ns)
        columns[f"{name}_resolved"] = np.ma.masked_array(edge.resolved & (not least_bound_ns), ~known)
    columns["end_ns"] = _whole_ns(times.end_before.chosen(following), begin_ns)
    missing: Bools = np.asarray(np.isnan(summed).any(axis=0))
    silent: Bools = ~missing & (observed.max(axis=0) <= threshold)
    samples = _total(~missing, first, end)
    for way, name in enumerate(DIRECTIONS):
        columns[f"{name}_bytes"] = _total(observed[way], first, end) * interval_ns / SECOND_NS
    columns["silent_ratio"] = np.divide(
        _total(silent, first, end), samples, out=np.full(len(first), np.nan), where=samples > 0
    )
    columns["missing_ratio"] = _total(np.isnan(rates).any(axis=1).mean(axis=0), first, end) / (end - first)
    columns["bridged_samples"] = _total(missing, first, found.first_active[this])
    return columns


def _whole_ns(edge: EdgeTimes, begin_ns: int) -> npt.NDArray[Any]:
    """The times of an edge as whole ns since the epoch, masked if unknown; float64 is wrong by up to 128 ns there."""
    times: Any = np.ma.masked_invalid(edge.at)
    return np.ma.masked_array(begin_ns + np.rint(times.filled(0)).astype(np.int64), np.ma.getmaskarray(times))


def _total(values: Bools | Floats, first: Counts, end: Counts) -> Floats:
    sums = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    total: Floats = sums[end] - sums[first]
    return total
