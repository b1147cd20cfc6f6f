"""Runs of samples: of one condition, of equal labels, of traffic and its pauses, and of bursts and gaps.

A run is a longest span of samples with one property. It begins at sample `first` and ends before sample `end`.

A sample is *active* if its rate, all rails and both directions together unless said otherwise, is above the active
threshold, `active_bytes_per_second`; a missing sample is neither active nor inactive. Whether the wire is *silent* is
another question, see `silence_level`: an edge of a step is certain only if next to nothing passes before it. Whether a
rail is *idle* is a third one, about its share of what the other rails carry, see `balance` and `rails`.

Bursts and gaps are runs of active and of inactive samples with their lengths and bytes, on rows of samples that come
second by second. One or two missing samples do not end such a run: each counts as its nearest known neighbour, so that
they continue a run between two samples of one kind, and move a boundary by at most one sample between two kinds. A run
that is cut off by a longer hole, or by the beginning or the end, is *censored*: it lasted at least as long as was seen.
Leaving such runs out would leave out long ones more often than short ones (a run of n samples stays whole with a
probability of about (1 - p)^n), so quantiles of lengths come from the estimator of Kaplan and Meier, which counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Bools, Counts, Floats, Rows, running_sum
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND

Labels = npt.NDArray[np.int8]

GAP, BURST, HOLE = 0, 1, 2
MAX_BRIDGED = 2
"""Missing samples in a row that do not end a run: one read that is lost takes the rates of two samples."""
MAX_MISSING_SHARE = 0.05
"""Share of missing samples up to which lengths of bursts and gaps are right to one sample, see docs/report.md."""
SILENT_PART = 0.01
"""Of the highest rate. What a node sends ahead into buffers is more: 16 MiB are 4 % of a sample at 40 GB/s."""
SILENT_BYTES_PER_SECOND = ACTIVE_BYTES_PER_SECOND / 10
"""Ports that carry no more have the chatter of daemons and file systems, and no steps."""
NO_RUNS: Counts = np.zeros(0, dtype=np.int64)


def silence_level(highest: npt.ArrayLike, least: float = 0.0) -> npt.NDArray[np.floating]:
    """The rate at or below which samples are silent whose highest rate is given; at least `least`."""
    return np.maximum(least, np.multiply(SILENT_PART, highest))


def find_runs(mask: Bools) -> tuple[Counts, Counts]:
    """The first sample and the end of each run of true values, in order."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    return edges[::2], edges[1::2]


def find_row_runs(mask: Bools) -> tuple[Rows, Counts, Counts]:
    """The row, the first sample and the end of each run of true values in (rows, samples), row by row."""
    # a column of False keeps the runs of neighbouring rows apart
    width = mask.shape[1] + 1
    first, end = find_runs(np.pad(mask, ((0, 0), (0, 1))).ravel())
    row = first // width
    return row, first - row * width, end - row * width


def find_equal_runs(labels: Counts) -> tuple[Counts, Counts]:
    """The first sample and the end of each run of equal labels, in order; together they are all samples."""
    if not len(labels):
        return NO_RUNS, NO_RUNS
    changes = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return np.concatenate(([0], changes)), np.append(changes, len(labels))


def join_runs(first: Counts, end: Counts, most: int) -> tuple[Counts, Counts]:
    """Runs as spans without gaps of at most `most` samples: the first sample and the end of each."""
    if not len(first):
        return first, end
    apart = first[1:] - end[:-1] > most
    return first[np.append(True, apart)], end[np.append(apart, True)]


def mark_long_runs(mask: Bools, most: int) -> Bools:
    """The samples that lie in runs of more than `most` true values: (samples,)."""
    first, end = find_runs(mask)
    marks = mask.copy()
    marks[mask] = np.repeat(end - first > most, end - first)
    return marks


@dataclass(frozen=True, slots=True)
class Pauses:
    """Runs of samples that are not active, in order: sample `first` to before `end`, each (pauses,).

    `missing` is the number of their samples that are missing, `tail` the number of silent ones directly before `end`.
    """

    first: Counts
    end: Counts
    missing: Counts
    tail: Counts

    @property
    def samples(self) -> Counts:
        """Their lengths: (pauses,)."""
        return self.end - self.first


def find_pauses(rates: Floats, active_bytes_per_second: float) -> Pauses:
    """The pauses of rates (samples,), NaN where data is missing."""
    first, end = find_runs(~(rates > active_bytes_per_second))
    missing = np.isnan(rates)
    count = running_sum(missing)
    newest = np.maximum.accumulate(np.where(missing, np.arange(len(rates)), -1)) if len(rates) else count
    tail = np.minimum(end - first, end - 1 - newest[end - 1])
    return Pauses(first, end, count[end] - count[first], tail)


@dataclass(frozen=True, slots=True)
class RunState:
    """The current run of each row: its label, time and bytes so far, and whether its beginning was seen.

    `rate` and `sample_seconds` are those of its last known sample, after which `missing` samples are missing.
    """

    label: Labels
    seconds: Floats
    moved_bytes: Floats
    begun: Bools
    rate: Floats
    sample_seconds: Floats
    missing: Counts


@dataclass(frozen=True, slots=True)
class Runs:
    """Completed runs, ordered by row and time, and the time spent in either state, including runs still in progress.

    `row`, `burst` (otherwise gap), `begun` and `ended` (whether its beginning and its end were seen), `seconds` and
    `moved_bytes` have one value per run. `busy_seconds` and `idle_seconds` are (rows,) and contain no missing sample.
    `began` (rows,) counts bursts that began after a gap.
    """

    row: Rows
    burst: Bools
    begun: Bools
    ended: Bools
    seconds: Floats
    moved_bytes: Floats
    busy_seconds: Floats
    idle_seconds: Floats
    began: Counts

    @property
    def whole(self) -> Bools:
        """Whether the length of each run is known."""
        return self.begun & self.ended

    def complete(self, burst: bool) -> Bools:
        """Mask of the whole bursts, or gaps, of the first row: `runs.seconds[mask]` are durations for a histogram."""
        return np.asarray((self.burst == burst) & self.whole & (self.row == 0))

    def lengths(self, burst: bool) -> RunLengths:
        """The lengths of the bursts, or of the gaps, whose beginning was seen, of all rows.

        A run is begun, or not, whatever its length is; that those whose end was seen are known for longer is what
        `find_survival` corrects.
        """
        chosen = self.begun & (self.burst == burst)
        return RunLengths(self.seconds[chosen], self.ended[chosen])

    def censored_seconds(self) -> float:
        """Total time of the censored runs of the first row."""
        return float(self.seconds[~self.whole & (self.row == 0)].sum())


@dataclass(frozen=True, slots=True)
class RunLengths:
    """Lengths of runs (runs,): exact where `ended`, otherwise the least that they can be."""

    seconds: Floats
    ended: Bools


def find_survival(lengths: RunLengths) -> tuple[Floats, Floats]:
    """The lengths at which runs end, ascending, and the share of all runs that is longer than each.

    Source: Kaplan and Meier, 1958. A censored run counts among those that can end for as long as it was seen. The share
    stays above 0 if the longest run is censored.
    """
    times, ends = np.unique(lengths.seconds[lengths.ended], return_counts=True)
    at_risk = len(lengths.seconds) - np.searchsorted(np.sort(lengths.seconds), times)
    return times, np.asarray(np.cumprod(1 - ends / at_risk), dtype=np.float64)


def survival_quantile(lengths: RunLengths, part: float) -> float:
    """The length that the share `part` of all runs does not exceed; NaN if too many are censored before it.

    It is the middle of all such lengths if there are several, as for the usual median.
    """
    times, longer = find_survival(lengths)
    place = int(np.searchsorted(-longer, part - 1 - 1e-9))
    if place == len(times):
        return math.nan
    after = min(place + 1, len(times) - 1) if abs(longer[place] - (1 - part)) <= 1e-9 else place
    return float(times[place] + times[after]) / 2


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Statistics of the bursts or of the gaps; NaN if unknown.

    `count`, `longest_seconds` and `mean_bytes` are those of the whole runs, the quantiles those of all.
    """

    count: int
    p50_seconds: float
    p95_seconds: float
    longest_seconds: float
    mean_bytes: float


def describe_runs(runs: Runs, burst: bool) -> RunStatistics:
    """Statistics of the bursts or of the gaps of a single row."""
    whole, lengths = runs.complete(burst), runs.lengths(burst)
    p50, p95 = (survival_quantile(lengths, part) for part in (0.5, 0.95))
    if not whole.any():
        return RunStatistics(0, p50, p95, math.nan, math.nan)
    return RunStatistics(
        int(whole.sum()), p50, p95, float(runs.seconds[whole].max()), float(runs.moved_bytes[whole].mean())
    )


def start_runs(rows: int) -> RunState:
    """The state before the first sample, treated as missing data."""
    nothing = np.zeros(rows)
    return RunState(
        label=np.full(rows, HOLE, np.int8),
        seconds=nothing,
        moved_bytes=nothing,
        begun=np.zeros(rows, np.bool_),
        rate=nothing,
        sample_seconds=nothing,
        missing=np.zeros(rows, np.int64),
    )


def join_states(one: RunState, other: RunState) -> RunState:
    """The state of the rows of both."""
    return RunState(*(np.concatenate([getattr(each, field.name) for each in (one, other)]) for field in fields(one)))


def find_bursts(rates: Floats, seconds: Floats, active_bytes_per_second: float) -> Runs:
    """The bursts and gaps of a single row (samples,), including the last one, which is censored."""
    end = MAX_BRIDGED + 1
    padded = np.pad(rates, (0, end), constant_values=np.nan), np.pad(seconds, (0, end))
    return split_runs(start_runs(1), padded[0][None], padded[1][None], active_bytes_per_second)[1]


def split_runs(
    state: RunState, rates: Floats, seconds: Floats, active_bytes_per_second: float
) -> tuple[RunState, Runs]:
    """Process more samples of every row: rates (rows, samples), NaN where data is missing, and seconds of each.

    Laws: `busy_seconds + idle_seconds` is the observed time. The result does not depend on how samples are split into
    calls. Scaling rates and threshold scales only the bytes.
    """
    # the newest samples of the current run precede the new ones; all its time is in the first of them
    head = MAX_BRIDGED + 1
    seen = (np.arange(head, 0, -1) > state.missing[:, None]) & (state.label != HOLE)[:, None]
    values = np.concatenate((np.where(seen, state.rate[:, None], np.nan), rates), axis=1)
    time = np.concatenate((np.where(seen, state.sample_seconds[:, None], 0.0), seconds), axis=1)
    known = ~np.isnan(values)
    last = np.where(known, np.arange(values.shape[1]), -1).max(axis=1)
    rate, sample_seconds = (np.take_along_axis(each, last[:, None], axis=1)[:, 0] for each in (values, time))
    _bridge(values, time, known)
    labels = np.where(values > active_bytes_per_second, np.int8(BURST), np.int8(GAP))
    labels[np.isnan(values)] = HOLE
    observed = np.where(known[:, head:], seconds, 0.0)
    busy = labels[:, head:] == BURST
    time[:, :head][seen] = 0.0
    time[labels == HOLE] = 0.0
    flow = np.where(labels == HOLE, 0.0, values) * time
    time[:, 0] += state.seconds
    flow[:, 0] += state.moved_bytes
    # whether the missing samples at the end continue the run is not known yet
    missing = values.shape[1] - 1 - last
    open_end = (last >= 0) & (missing <= MAX_BRIDGED)
    waiting = open_end[:, None] & (np.arange(values.shape[1]) > last[:, None])
    labels = np.where(waiting, np.take_along_axis(labels, last[:, None], axis=1), labels)
    first = np.ones(labels.shape, dtype=np.bool_)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    starts = np.flatnonzero(first)
    row, kind = starts // labels.shape[1], labels.ravel()[starts]
    length, moved = (np.add.reduceat(each.ravel(), starts) if len(starts) else np.zeros(0) for each in (time, flow))
    opens, closes = np.diff(row, prepend=-1) != 0, np.diff(row, append=-1) != 0
    begun = (kind != HOLE) & np.where(opens, state.begun[row], np.roll(kind, 1) != HOLE)
    over = ~closes & (kind != HOLE)
    runs = Runs(
        row=row[over],
        burst=kind[over] == BURST,
        begun=begun[over],
        ended=(np.roll(kind, -1) != HOLE)[over],
        seconds=length[over],
        moved_bytes=moved[over],
        busy_seconds=np.where(busy, observed, 0.0).sum(axis=1),
        idle_seconds=np.where(busy, 0.0, observed).sum(axis=1),
        began=np.count_nonzero((labels[:, 1:] == BURST) & (labels[:, :-1] == GAP), axis=1),
    )
    end = RunState(kind[closes], length[closes], moved[closes], begun[closes], rate, sample_seconds, missing)
    return end, runs


def _bridge(values: Floats, time: Floats, known: Bools) -> None:
    """Give up to two missing samples in a row the rate and time of the nearest known sample, in place."""
    if known.all():
        return
    beside = np.pad(known, ((0, 0), (2, 2)))
    before_two, before, after, after_two = beside[:, :-4], beside[:, 1:-3], beside[:, 3:-1], beside[:, 4:]
    row, column = np.nonzero(~known & before & (after | after_two))
    later = np.nonzero(~known & ~before & before_two & after)
    for each in (values, time):
        each[row, column] = each[row, column - 1]
        each[later] = each[later[0], later[1] + 1]
