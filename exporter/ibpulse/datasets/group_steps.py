"""The steps of a group of ports: their edges, bytes and silence, from the samples of its ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.steps.edges import MOST_MISSING, EdgeTimes, find_least_idle, find_step_edges
from ibpulse.analysis.steps.runs import mark_long_runs, silence_level
from ibpulse.arrays import Bools, Counts, Floats
from ibpulse.datasets.dataset_schema import EDGES
from ibpulse.units import SECOND_NS


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
    left_out: Bools = np.array([mark_long_runs(row, MOST_MISSING) for row in missing]) & ~missing.all(axis=0)
    summed: Floats = np.sum(np.where(left_out[:, np.newaxis], 0, rates), axis=0, dtype=np.float64)
    return summed


def describe_steps(
    rates: npt.NDArray[np.floating], timing: SampleTiming, line_rate: float | None, idle_below: float
) -> Mapping[str, npt.NDArray[Any]]:
    """The columns of the tier `steps` about the steps of a group; times are in whole ns, NaN if unknown.

    `rates` are those of the ports of the group, (ports, 2, samples), NaN for missing data. Only steps that lie between
    two silences are listed.
    """
    interval_ns = timing.interval_ns
    summed = sum_ports(rates)
    observed: Floats = np.asarray(np.nansum(rates, axis=0, dtype=np.float64))
    threshold = float(silence_level(np.max(observed, initial=0.0), idle_below))
    least = find_least_idle(summed.max(axis=0), threshold, interval_ns)
    found = find_step_edges(summed, interval_ns, line_rate, least_idle=least)
    first, end = found.first_idle[:-1], found.first_idle[1:]
    times = found.times
    of_edges = {
        "begin": _part(times.end_before, slice(None, -1)),
        "transmit_first": _part(times.transmit, slice(None, -1)),
        "receive_first": _part(times.receive, slice(None, -1)),
        "transmit_end": _part(found.transmit_end, slice(1, None)),
        "receive_end": _part(found.receive_end, slice(1, None)),
    }
    columns: dict[str, npt.NDArray[Any]] = {"step": np.arange(len(first), dtype=np.int32)}
    for name in EDGES:
        columns |= _edge_columns(name, of_edges[name], timing)
    columns["end_ns"] = _edge_columns("end", _part(times.end_before, slice(1, None)), timing)["end_ns"]
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


def _part(times: EdgeTimes, part: slice) -> EdgeTimes:
    return EdgeTimes(times.low[part], times.at[part], times.high[part], times.resolved[part])


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
