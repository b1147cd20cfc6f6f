"""The per-node stage: from the samples of one recording to its small tiers, in one pass and with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Singles
from ibpulse.core.recordings import Recording, RecordingMeta
from ibpulse.core.recordings.file_format import pa
from ibpulse.core.recordings.recorded_jobs import trace_holdings
from ibpulse.core.statistics.resolution import coarsest_ticks, finest_ticks
from ibpulse.core.statistics.steps.edges import MAX_MISSING, EdgeTimes, find_least_idle, find_step_edges
from ibpulse.core.statistics.steps.runs import SILENT_BYTES_PER_SECOND, mark_long_runs, silence_level
from ibpulse.workbench.fleet.dataset_columns import make_table, repeat_words
from ibpulse.workbench.fleet.dataset_schema import EDGES, NODE_SUMS, RAIL_SECONDS, SCHEMAS, STEPS
from ibpulse.workbench.fleet.rail_seconds import RailSeconds

# 64 MB of rates: an hour of 20 rails at 10 ms. Longer spans are cut into several parts
MAX_VALUES = 16_000_000
# two ports step together if their active samples correlate this much; those of two pipelines a fifth of a step apart
# do not, and a few ms of lateness do not matter
ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class PartExtent:
    """The samples of a part: the metadata of the recording, the time of the first one, and their number."""

    meta: RecordingMeta
    start_ns: int
    ticks: int

    @property
    def end_ns(self) -> int:
        """The time at which the next sample would be."""
        return self.start_ns + self.ticks * self.meta.interval_ns


@dataclass(frozen=True, slots=True)
class TierOptions:
    """`job` is the id of the job whose ports count, or its scheduler and id (`slurm:42`); without it, all rails do.

    `labels` are those of the node.
    """

    job: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeTiers:
    """The tables of the small tiers by their names, and what the tier `files` says about the samples.

    `resolution_ns` is the longest time between two changes of the counters of a rail.
    """

    tables: Mapping[str, Any]
    rails: int
    resolution_ns: int
    line_rate_bytes_per_second: float | None
    observed_ratio: float
    step_groups: int


def choose_rails(meta: RecordingMeta, job: str = "") -> list[int]:
    """The rows of the ports whose traffic counts: those of the job if it is known, else the rails, else all ports."""
    owned = {
        str(port)
        for record in trace_holdings(meta.jobs, meta.events)
        if job in (record.job.claim.id, ":".join(record.job.claim.key))
        for holding in record.holdings
        for port in holding.ports
    }
    for chosen in (
        [row for row, port in enumerate(meta.ports) if str(port.id) in owned],
        [row for row, port in enumerate(meta.ports) if port.rail],
    ):
        if chosen:
            return chosen
    return list(range(len(meta.ports)))


def compute_tiers(extent: PartExtent, pieces: Iterable[Recording], options: TierOptions) -> NodeTiers:
    """The tiers of the contiguous pieces of a part, which together have the extent that is given.

    Law: the tiers depend only on the samples, not on how they are cut into pieces.

    Raises:
        ValueError: the pieces are not those of the extent.
    """
    meta = extent.meta
    rows = choose_rails(meta, options.job)
    rates = np.full((len(rows), 2, extent.ticks), np.nan, dtype=np.float32)
    seconds = RailSeconds(len(rows), extent.start_ns, extent.end_ns, meta.interval_ns)
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
    steps, groups = _step_table(extent, rows, rates, options)
    known = [meta.ports[row].rate_bytes_per_second for row in rows]
    tables = {
        NODE_SUMS: _node_table(extent, rates),
        RAIL_SECONDS: _second_table([str(meta.ports[row].id) for row in rows], seconds),
        STEPS: steps,
    }
    observed = float((~np.isnan(rates)).mean()) if rates.size else 0.0
    line_rate = None if None in known else float(sum(rate or 0.0 for rate in known))
    return NodeTiers(tables, len(rows), find_resolution(meta, rows), line_rate, observed, groups)


def find_resolution(meta: RecordingMeta, rows: Iterable[int]) -> int:
    """The longest time between two changes of the counters of some ports, in ns."""
    ports = [meta.ports[row] for row in rows]
    ticks = (max(port.stride, finest_ticks(port.resolution_seconds, meta.interval_ns, port.stride)) for port in ports)
    return coarsest_ticks(ticks) * meta.interval_ns


def _node_table(extent: PartExtent, rates: Singles) -> Any:
    observed = np.count_nonzero(~np.isnan(rates).any(axis=1), axis=0)
    missing: Bools = np.asarray(np.isnan(rates).all(axis=0))
    # one direction at a time: float64 of all ports would take twice the memory of the rates
    sums = [np.where(missing[way], np.nan, np.nansum(rates[:, way], axis=0, dtype=np.float64)) for way in range(2)]
    return make_table(
        NODE_SUMS,
        {
            "time_ns": extent.start_ns + extent.meta.interval_ns * np.arange(extent.ticks, dtype=np.int64),
            "transmit_bytes_per_second": sums[0],
            "receive_bytes_per_second": sums[1],
            "rails_observed": observed,
            "rails": np.full(extent.ticks, len(rates)),
        },
    )


def _second_table(names: list[str], seconds: RailSeconds) -> Any:
    found = seconds.rates()
    ports, count = len(names), len(found.time_ns)
    # by time and then by port, so that files can be read by time
    values = {
        f"{way}{what}_bytes_per_second": values[:, index].T.ravel()
        for what, values in (("", found.mean), ("_peak", found.peak))
        for index, way in enumerate(("transmit", "receive"))
    }
    return make_table(
        RAIL_SECONDS,
        {
            "time_ns": np.repeat(found.time_ns, ports),
            "port": repeat_words(names, np.tile(np.arange(ports), count)),
            **values,
            "observed_ratio": found.observed.T.ravel(),
        },
    )


def find_owners(extent: PartExtent, rows: Iterable[int], labels: Mapping[str, str]) -> list[PortOwner]:
    """The owner of each port: the job that had it for the longest time of the part, and its stage by the labels."""
    held: dict[str, dict[str, int]] = {}
    for record in trace_holdings(extent.meta.jobs, extent.meta.events):
        for holding in record.holdings:
            begin = extent.start_ns if holding.since is None else max(extent.start_ns, holding.since.time_ns)
            end = extent.end_ns if holding.until is None else min(extent.end_ns, holding.until.time_ns)
            for port in holding.ports if begin < end else ():
                of_port = held.setdefault(str(port), {})
                of_port[record.job.claim.id] = of_port.get(record.job.claim.id, 0) + end - begin
    ports = [extent.meta.ports[row] for row in rows]
    longest = [max(jobs, key=jobs.__getitem__) if (jobs := held.get(str(port.id))) else "" for port in ports]
    return [PortOwner(job, read_stages(labels, port.device)) for job, port in zip(longest, ports, strict=True)]


def _step_table(extent: PartExtent, rows: list[int], rates: Singles, options: TierOptions) -> tuple[Any, int]:
    owners = find_owners(extent, rows, options.labels)
    groups = find_groups(rates, owners)
    tables = [_group_table(extent, rows, rates, (number, group), options) for number, group in enumerate(groups)]
    if not tables:
        return SCHEMAS[STEPS].empty_table(), 0
    return pa.concat_tables([table.unify_dictionaries() for table in tables]).unify_dictionaries(), len(groups)


def _group_table(
    extent: PartExtent, rows: list[int], rates: Singles, numbered: tuple[int, StepGroup], options: TierOptions
) -> Any:
    number, group = numbered
    mine = [rows[place] for place in group.rows]
    ports = [extent.meta.ports[row] for row in mine]
    lines = [port.rate_bytes_per_second for port in ports]
    line_rate = None if None in lines else sum(rate or 0.0 for rate in lines)
    timing = SampleTiming(extent.start_ns, extent.meta.interval_ns, find_resolution(extent.meta, mine))
    columns = describe_steps(rates[list(group.rows)], timing, line_rate)
    count = len(columns["step"])
    once = np.zeros(count, dtype=np.intp)
    words = {
        "ports": ",".join(str(port.id) for port in ports),
        "owner": group.owner.job or None,
        "stage": group.owner.stage or None,
    }
    texts = {name: repeat_words([word], once) for name, word in words.items()}
    return make_table(STEPS, {"group": np.full(count, number), **texts, **columns})


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Whose traffic a port carries: the id of a job and the stage of a pipeline, empty if unknown."""

    job: str = ""
    stage: str = ""


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Ports that step together, by their rows, and their owner."""

    rows: tuple[int, ...]
    owner: PortOwner


def find_groups(rates: Singles, owners: Sequence[PortOwner]) -> list[StepGroup]:
    """The groups of the ports that have traffic: `rates` is (ports, 2, samples), NaN for missing samples.

    A port moves bytes in the samples that are not silent by its own highest rate. The sum over a whole node mixes the
    pipelines that share it, and then no step has a silence.
    """
    highest = np.fmax.reduce(rates, axis=(1, 2), initial=0.0)
    least = silence_level(highest, SILENT_BYTES_PER_SECOND)[:, np.newaxis]
    active = np.fmax(rates[:, 0], rates[:, 1]) > least
    by_owner: dict[PortOwner, list[int]] = {}
    for row in np.flatnonzero(active.any(axis=1)).tolist():
        by_owner.setdefault(owners[row], []).append(row)
    found = []
    for owner, rows in by_owner.items():
        found += [StepGroup(tuple(together), owner) for together in _alike(rows, active[rows])]
    return sorted(found, key=lambda group: group.rows)


def _alike(rows: Sequence[int], active: Bools) -> list[list[int]]:
    """The rows in groups; each row is in that of the first row to which it is alike."""
    likeness = _correlate(active)
    groups: list[list[int]] = []
    for place in range(len(rows)):
        mine = next((group for group in groups if likeness[group[0], place] >= ALIKE), None)
        if mine is None:
            groups.append([place])
        else:
            mine.append(place)
    return [[rows[place] for place in group] for group in groups]


def _correlate(active: Bools) -> Floats:
    """The correlation of each two rows; rows that are active all the time are alike."""
    flags = active.astype(np.float32)
    part = flags.mean(axis=1, dtype=np.float64)
    covariance = (flags @ flags.T).astype(np.float64) / active.shape[1] - np.outer(part, part)
    deviation = np.sqrt(part * (1 - part))
    scale = np.outer(deviation, deviation)
    steady = part == 1
    return np.where(
        np.outer(steady, steady), 1.0, np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    )


def read_stages(labels: Mapping[str, str], device: str) -> str:
    """The stage of a port by the labels of its node: `stage_DEVICE` or else `stage`; empty if neither is given."""
    return labels.get(f"stage_{device}", labels.get("stage", ""))


@dataclass(frozen=True, slots=True)
class SampleTiming:
    """The first sample ends at `start_ns`; each is `interval_ns` long. Counters change every `resolution_ns`."""

    start_ns: int
    interval_ns: int
    resolution_ns: int

    @property
    def least_bound_ns(self) -> int:
        """By how much any edge may be wrong: an interval in which counters change several times adds nothing."""
        return self.resolution_ns if self.resolution_ns > self.interval_ns else 0


def sum_ports(rates: npt.NDArray[np.floating]) -> Floats:
    """The sum over ports, (2, samples), of rates (ports, 2, samples); NaN where one of them misses a sample.

    A port that misses many samples in a row is left out of them, unless all ports are missing.
    """
    missing = np.isnan(rates).any(axis=1)
    left_out: Bools = np.array([mark_long_runs(row, MAX_MISSING) for row in missing]) & ~missing.all(axis=0)
    summed: Floats = np.sum(np.where(left_out[:, np.newaxis], 0, rates), axis=0, dtype=np.float64)
    return summed


def describe_steps(
    rates: npt.NDArray[np.floating], timing: SampleTiming, line_rate: float | None
) -> Mapping[str, npt.NDArray[Any]]:
    """The columns of the tier `steps` about the steps of a group; times are in whole ns, NaN if unknown.

    `rates` are those of the ports of the group, (ports, 2, samples), NaN for missing data. Only steps that lie between
    two silences are listed.
    """
    interval_ns = timing.interval_ns
    summed = sum_ports(rates)
    observed: Floats = np.asarray(np.nansum(rates, axis=0, dtype=np.float64))
    threshold = float(silence_level(np.max(observed, initial=0.0), SILENT_BYTES_PER_SECOND))
    least = find_least_idle(summed.max(axis=0), threshold, interval_ns)
    found = find_step_edges(summed, interval_ns, line_rate, least_idle=least)
    first, end = found.first_idle[:-1], found.first_idle[1:]
    times = found.times
    of_edges = {
        "begin": times.end_before.chosen(slice(None, -1)),
        "transmit_first": times.transmit.chosen(slice(None, -1)),
        "receive_first": times.receive.chosen(slice(None, -1)),
        "transmit_end": found.transmit_end.chosen(slice(1, None)),
        "receive_end": found.receive_end.chosen(slice(1, None)),
    }
    columns: dict[str, npt.NDArray[Any]] = {"step": np.arange(len(first), dtype=np.int32)}
    for name in EDGES:
        columns |= _edge_columns(name, of_edges[name], timing)
    columns["end_ns"] = _edge_columns("end", times.end_before.chosen(slice(1, None)), timing)["end_ns"]
    missing: Bools = np.asarray(np.isnan(summed).any(axis=0))
    silent: Bools = ~missing & (observed.max(axis=0) <= threshold)
    known = _total(~missing, first, end)
    for way, name in enumerate(("transmit", "receive")):
        columns[f"{name}_bytes"] = _total(observed[way], first, end) * interval_ns / SECOND_NS
    columns["silent_ratio"] = np.divide(
        _total(silent, first, end), known, out=np.full(len(first), np.nan), where=known > 0
    )
    columns["missing_ratio"] = _total(np.isnan(rates).any(axis=1).mean(axis=0), first, end) / (end - first)
    columns["bridged_samples"] = _total(missing, first, found.first_active[:-1]).astype(np.int32)
    return columns


def _edge_columns(name: str, times: EdgeTimes, timing: SampleTiming) -> dict[str, npt.NDArray[Any]]:
    """The time of an edge as whole ns since the epoch. As float64 they would be wrong by up to 128 ns."""
    known = ~np.isnan(times.at)
    begin_ns, least = timing.start_ns - timing.interval_ns, timing.least_bound_ns
    at = np.where(known, begin_ns + np.rint(np.nan_to_num(times.at)).astype(np.int64), -1)
    bound = np.maximum(np.ceil(np.fmax(times.at - times.low, times.high - times.at)), least)
    return {
        f"{name}_ns": np.ma.masked_array(at, ~known),
        f"{name}_bound_ns": bound,
        f"{name}_resolved": np.where(known, (times.resolved & (not least)).astype(np.float64), np.nan),
    }


def _total(values: Bools | Floats, first: Counts, end: Counts) -> Floats:
    """The sum over each span of samples."""
    sums = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    total: Floats = sums[end] - sums[first]
    return total
