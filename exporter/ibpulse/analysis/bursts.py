"""Runs of active and of inactive ticks: how long they last and what they carry.

A hole ends a run without ending the burst or gap behind it, so nobody knows how long that lasted: such a run is
*censored*. It counts as busy or idle time and never as a burst or a gap of known length. So does the first run ever
seen. If a tick is lost with probability p, a run of n ticks stays whole with probability about (1 - p)^(n + 1), so
lengths are biased towards short ones where holes are many; `censored_seconds` says how much time is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Bools, Floats

Labels = npt.NDArray[np.int8]

GAP, BURST, HOLE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rates, in bytes per second, above which a burst begins and at or below which it ends; equal: no hysteresis."""

    high: float
    low: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"burst thresholds low {self.low} and high {self.high}: low must lie between 0 and high")


@dataclass(frozen=True, slots=True)
class RunState:
    """The run that each row is in: its label, time and bytes so far, and whether its beginning was seen."""

    label: Labels
    seconds: Floats
    moved_bytes: Floats
    begun: Bools


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs that ended, in order of row and time, and the time spent in either state, also in runs that go on.

    `row`, `burst` (else gap), `whole` (else censored), `seconds` and `moved_bytes` are one per run. `busy_seconds` and
    `idle_seconds` are (rows,). `began` (rows,) counts bursts that began after a gap.
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
        """Which runs are whole bursts of a row: `runs.seconds[runs.bursts()]` are durations for a histogram."""
        return np.asarray(self.burst & self.whole & (self.row == row))

    def gaps(self, row: int = 0) -> Bools:
        """Which runs are whole gaps of a row."""
        return np.asarray(~self.burst & self.whole & (self.row == row))

    def censored_seconds(self, row: int = 0) -> float:
        """Time of the row's runs whose length is not known."""
        return float(self.seconds[~self.whole & (self.row == row)].sum())


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Bursts, or gaps, of known length: how many, quantiles of their seconds, mean bytes; NaN where there is none."""

    count: int
    p50_seconds: float
    p95_seconds: float
    longest_seconds: float
    mean_bytes: float


def describe_runs(seconds: Floats, moved_bytes: Floats) -> RunStatistics:
    """The statistics of runs of these lengths and bytes, one each."""
    if not len(seconds):
        return RunStatistics(0, math.nan, math.nan, math.nan, math.nan)
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return RunStatistics(len(seconds), float(p50), float(p95), float(seconds.max()), float(moved_bytes.mean()))


def start_runs(rows: int) -> RunState:
    """The state before anything was seen: a hole."""
    return RunState(np.full(rows, HOLE, np.int8), np.zeros(rows), np.zeros(rows), np.zeros(rows, np.bool_))


def split_runs(state: RunState, rates: Floats, seconds: Floats, thresholds: Thresholds) -> tuple[RunState, Runs]:
    """Take further ticks of every row: rates (rows, ticks), NaN in holes, and the measured seconds of each tick.

    A tick above `high` is in a burst, one at or below `low` in a gap; one between goes on with what was before it,
    and after a hole is in a gap.

    Laws: `busy_seconds + idle_seconds` is the time of the ticks that are not holes. How the ticks are cut into calls
    changes nothing. Multiplying rates and thresholds multiplies the bytes alone.
    """
    label = _label(rates, state.label == BURST, thresholds)
    time = np.where(label == HOLE, 0.0, seconds)
    flow = np.where(label == HOLE, 0.0, rates) * time
    # the run that a row is in stands before its ticks, as one tick of that length
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
    """Sums from each start to the next over rows (rows, ticks) that begin with what was carried."""
    return np.asarray(np.add.reduceat(np.concatenate((carried[:, None], values), axis=1).ravel(), starts))


def _label(rates: Floats, inside: Bools, thresholds: Thresholds) -> Labels:
    """What each tick is; `inside` (rows,) says which rows are in a burst before the first."""
    label = np.where(rates > thresholds.high, np.int8(BURST), np.int8(GAP))
    label[np.isnan(rates)] = HOLE
    if thresholds.low < thresholds.high:
        decided = ~((rates > thresholds.low) & (rates <= thresholds.high))
        place = np.maximum.accumulate(np.where(decided, np.arange(rates.shape[1]), -1), axis=1)
        before = np.where(inside, np.int8(BURST), np.int8(GAP))[:, None]
        kept = np.where(place < 0, before, np.take_along_axis(label, np.maximum(place, 0), axis=1))
        label = np.where(decided, label, np.where(kept == BURST, np.int8(BURST), np.int8(GAP)))
    return np.asarray(label, dtype=np.int8)
