"""The numbers of one node of a dataset: bandwidth while active, its variation, silence, missing data, long silences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.statistics.failovers import Failover, find_failovers
from ibpulse.core.statistics.stalls import SILENT_PERIODS, SampleTimes, Silence, find_silences
from ibpulse.core.statistics.steps.edges import MAX_MISSING
from ibpulse.core.statistics.steps.runs import (
    SILENT_BYTES_PER_SECOND,
    find_runs,
    join_runs,
    mark_long_runs,
    silence_level,
)
from ibpulse.workbench.fleet.report_source import FleetNode, NodeSums


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Numbers of a node, transmit and receive together; None if unknown.

    `active_bandwidth` is the mean of the samples with traffic, in bytes per second, `variation` their standard
    deviation over it. `silent_ratio` is the share of known samples without traffic, `missing_ratio` that of all
    samples that are missing, `partial_ratio` that of sums without all rails. Between the times of `quiet`, in seconds
    after the origin, it certainly moves nothing, for a step or longer; `traffic` is from its first to its last traffic.
    """

    node: str
    active_bandwidth: float | None
    variation: float | None
    silent_ratio: float | None
    missing_ratio: float
    partial_ratio: float
    silences: tuple[Silence, ...]
    observed: tuple[tuple[float, float], ...]
    quiet: tuple[tuple[float, float], ...]
    traffic: tuple[float, float] | None


def describe_node(node: FleetNode, samples: NodeSums, origin_ns: int, shortest: float) -> NodeNumbers:
    """The numbers of a node; silences of at least `shortest` seconds are on the collector's clock after the origin."""
    total = samples.rates.sum(axis=0, dtype=np.float64)
    known = total[~np.isnan(total)]
    threshold = float(silence_level(known.max(initial=0.0), SILENT_BYTES_PER_SECOND))
    active = known[known > threshold]
    mean = float(active.mean()) if active.size else None
    interval = samples.interval_ns / SECOND_NS
    start = (samples.start_ns - samples.interval_ns - origin_ns - node.offset_ns) / SECOND_NS
    bound = None if node.bound_ns is None else node.bound_ns / SECOND_NS
    times = SampleTimes(start, interval, bound, node.resolution_ns / SECOND_NS)
    silences = find_silences(samples.rates, times, threshold, shortest)
    places = np.flatnonzero(total > threshold).tolist()
    partial = (samples.rails_observed < samples.rails) & (samples.rails_observed > 0)
    return NodeNumbers(
        node.name,
        mean,
        float(active.std() / mean) if mean else None,
        1 - active.size / known.size if known.size else None,
        1 - known.size / len(total),
        float(partial.mean()),
        tuple(silences),
        _observed(~np.isnan(total), times, samples.interval_ns),
        _quiet(total, threshold, times, shortest / SILENT_PERIODS),
        (start + places[0] * interval, start + (places[-1] + 1) * interval) if places else None,
    )


def _quiet(total: Floats, threshold: float, times: SampleTimes, shortest: float) -> tuple[tuple[float, float], ...]:
    """Spans without traffic, between which less is missing than a step needs."""
    unknown = mark_long_runs(np.isnan(total), MAX_MISSING)
    runs = zip(*(each.tolist() for each in find_runs(~(total > threshold) & ~unknown)), strict=True)
    return tuple(
        (times.start + first * times.interval, times.start + end * times.interval)
        for first, end in runs
        if (end - first) * times.interval >= shortest
    )


def _observed(known: Bools, times: SampleTimes, interval_ns: int) -> tuple[tuple[float, float], ...]:
    """Spans with samples; data missing for less than a second does not divide them."""
    first, end = join_runs(*find_runs(known), max(0, SECOND_NS // interval_ns - 1))
    begins, ends = (times.start + each * times.interval for each in (first, end))
    return tuple(zip(begins.tolist(), ends.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class NodeRails:
    """The mean rates (2, rails) of the rails of a node over the seconds that all of them have, and its failovers.

    `minutes` (minutes, rails) are the bytes of both directions; failovers count seconds from `begin_ns` on.
    """

    node: str
    rails: tuple[str, ...]
    means: Floats
    minutes: Floats
    begin_ns: int
    failovers: tuple[Failover, ...]


def describe_rails(name: str, rails: Sequence[str], seconds_ns: Counts, rates: Floats) -> NodeRails:
    """The rails of a node from their seconds, (2, seconds, rails)."""
    complete = ~np.isnan(rates).any(axis=(0, 2))
    means = rates[:, complete].mean(axis=1) if complete.any() else np.full((2, len(rails)), np.nan)
    moved = rates.sum(axis=0)
    begin_ns = int(seconds_ns[0]) if len(seconds_ns) else 0
    minute = ((seconds_ns - begin_ns) // (60 * SECOND_NS)).astype(np.int64)
    minutes = np.zeros((int(minute[-1]) + 1 if len(minute) else 0, len(rails)))
    np.add.at(minutes, minute[complete], moved[complete])
    return NodeRails(name, tuple(rails), means, minutes, begin_ns, tuple(find_failovers(rails, moved)))
