"""The per-node stage: from the samples of one recording to its small tiers, in one pass and with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ibpulse.analysis.resolution import coarsest_ticks, finest_ticks
from ibpulse.arrays import Bools, Singles
from ibpulse.datasets.dataset_columns import make_table, repeat_words
from ibpulse.datasets.dataset_schema import NODE_SUMS, RAIL_SECONDS, SCHEMAS, STEPS
from ibpulse.datasets.group_steps import SampleTiming, describe_steps
from ibpulse.datasets.rail_seconds import RailSeconds
from ibpulse.datasets.step_groups import PortOwner, StepGroup, find_groups, read_stages
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.recordings.file_format import pa
from ibpulse.recordings.recorded_jobs import trace_holdings

# 64 MB of rates: an hour of 20 rails at 10 ms. Longer spans are cut into several parts
MAX_VALUES = 16_000_000


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

    A sample at or below `idle_bytes_per_second` is silent, and so is one at or below 1 % of the highest.
    """

    job: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND / 10


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
    groups = find_groups(rates, owners, options.idle_bytes_per_second)
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
    columns = describe_steps(rates[list(group.rows)], timing, line_rate, options.idle_bytes_per_second)
    count = len(columns["step"])
    once = np.zeros(count, dtype=np.intp)
    words = {
        "ports": ",".join(str(port.id) for port in ports),
        "owner": group.owner.job or None,
        "stage": group.owner.stage or None,
    }
    texts = {name: repeat_words([word], once) for name, word in words.items()}
    return make_table(STEPS, {"group": np.full(count, number), **texts, **columns})
