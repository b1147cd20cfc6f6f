"""Runs of active and of inactive samples: bursts and gaps, with their lengths and bytes.

A run that is cut off by missing data has an unknown length: it is *censored*. It counts as busy or idle time, but not
as a burst or gap of known length; the same applies to the first run. If samples are lost with probability p, a run of
n samples stays whole with probability of about (1 - p)^(n + 1), thus missing data biases lengths towards short
runs; `censored_seconds` is the time excluded for this reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.quantiles import quantiles
from ibpulse.arrays import Bools, Floats

Labels = npt.NDArray[np.int8]

GAP, BURST, HOLE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A burst begins above `high` and ends at or below `low`, in bytes per second; no hysteresis if they are equal."""

    high: float
    low: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"burst thresholds low {self.low} and high {self.high}: low must lie between 0 and high")


@dataclass(frozen=True, slots=True)
class RunState:
    """The current run of each row: its label, time and bytes so far, and whether its beginning was seen."""

    label: Labels
    seconds: Floats
    moved_bytes: Floats
    begun: Bools


@dataclass(frozen=True, slots=True)
class Runs:
    """Completed runs, ordered by row and time, and the time spent in either state, including runs still in progress.

    `row`, `burst` (otherwise gap), `whole` (otherwise censored), `seconds` and `moved_bytes` have one value per run.
    `busy_seconds` and `idle_seconds` are (rows,). `began` (rows,) counts bursts that began after a gap.
    """

    row: npt.NDArray[np.intp]
    burst: Bools
    whole: Bools
    seconds: Floats
    moved_bytes: Floats
    busy_seconds: Floats
    idle_seconds: Floats
    began: npt.NDArray[np.int64]

    def bursts(self, row: int = 0) -> Bools:
        """Mask of the whole bursts of a row: `runs.seconds[runs.bursts()]` are durations for a histogram."""
        return np.asarray(self.burst & self.whole & (self.row == row))

    def gaps(self, row: int = 0) -> Bools:
        """Mask of the whole gaps of a row."""
        return np.asarray(~self.burst & self.whole & (self.row == row))

    def censored_seconds(self, row: int = 0) -> float:
        """Total time of the row's censored runs."""
        return float(self.seconds[~self.whole & (self.row == row)].sum())


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Count, duration quantiles and mean bytes of the bursts or gaps of known length; NaN if there are none."""

    count: int
    p50_seconds: float
    p95_seconds: float
    longest_seconds: float
    mean_bytes: float


def describe_runs(seconds: Floats, moved_bytes: Floats) -> RunStatistics:
    """Statistics of runs with these lengths (runs,) and bytes (runs,)."""
    if not len(seconds):
        return RunStatistics(0, math.nan, math.nan, math.nan, math.nan)
    p50, p95 = quantiles(seconds, [0.5, 0.95])
    return RunStatistics(len(seconds), p50, p95, float(seconds.max()), float(moved_bytes.mean()))


def start_runs(rows: int) -> RunState:
    """The state before the first sample, treated as missing data."""
    return RunState(np.full(rows, HOLE, np.int8), np.zeros(rows), np.zeros(rows), np.zeros(rows, np.bool_))


def split_runs(state: RunState, rates: Floats, seconds: Floats, thresholds: Thresholds) -> tuple[RunState, Runs]:
    """Process more samples of every row: rates (rows, samples), NaN where data is missing, and seconds of each.

    A sample above `high` belongs to a burst, one at or below `low` to a gap. A sample in between continues the previous
    run; after missing data it belongs to a gap.

    Laws: `busy_seconds + idle_seconds` is the observed time. The result does not depend on how samples are split into
    calls. Scaling rates and thresholds scales only the bytes.
    """
    label = _label(rates, state.label == BURST, thresholds)
    time = np.where(label == HOLE, 0.0, seconds)
    flow = np.where(label == HOLE, 0.0, rates) * time
    # the current run of a row is prepended to its samples, as one sample of its length
    labels = np.concatenate((state.label[:, None], label), axis=1)
    first = np.ones(labels.shape, dtype=np.bool_)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    starts = np.flatnonzero(first)
    row, kind = starts // labels.shape[1], labels.ravel()[starts]
    length, moved = _add_up(state.seconds, time, starts), _add_up(state.moved_bytes, flow, starts)
    opens, last = np.diff(row, prepend=-1) != 0, np.diff(row, append=-1) != 0
    begun = (kind != HOLE) & np.where(opens, state.begun[row], np.roll(kind, 1) != HOLE)
    ended = ~last & (kind != HOLE)
    followed = np.roll(kind, -1) != HOLE
    runs = Runs(
        row=row[ended],
        burst=kind[ended] == BURST,
        whole=(begun & followed)[ended],
        seconds=length[ended],
        moved_bytes=moved[ended],
        busy_seconds=np.where(label == BURST, time, 0.0).sum(axis=1),
        idle_seconds=np.where(label == GAP, time, 0.0).sum(axis=1),
        began=np.count_nonzero((labels[:, 1:] == BURST) & (labels[:, :-1] == GAP), axis=1),
    )
    return RunState(kind[last], length[last], moved[last], begun[last]), runs


def _add_up(carried: Floats, values: Floats, starts: npt.NDArray[np.intp]) -> Floats:
    """Sums from each start to the next over rows (rows, samples), each preceded by the value carried over."""
    return np.asarray(np.add.reduceat(np.concatenate((carried[:, None], values), axis=1).ravel(), starts))


def _label(rates: Floats, inside: Bools, thresholds: Thresholds) -> Labels:
    """The label of each sample; `inside` (rows,) is true for rows that are in a burst before the first sample."""
    label = np.where(rates > thresholds.high, np.int8(BURST), np.int8(GAP))
    label[np.isnan(rates)] = HOLE
    if thresholds.low < thresholds.high:
        decided = ~((rates > thresholds.low) & (rates <= thresholds.high))
        place = np.maximum.accumulate(np.where(decided, np.arange(rates.shape[1]), -1), axis=1)
        before = np.where(inside, np.int8(BURST), np.int8(GAP))[:, None]
        kept = np.where(place < 0, before, np.take_along_axis(label, np.maximum(place, 0), axis=1))
        label = np.where(decided, label, np.where(kept == BURST, np.int8(BURST), np.int8(GAP)))
    return np.asarray(label, dtype=np.int8)
