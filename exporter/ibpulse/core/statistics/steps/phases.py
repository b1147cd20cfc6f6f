"""Finds the phases of a job in its traffic: first traffic, first regular step, quiet at a barrier, checkpoint.

The traffic is split at its long pauses. The regular steps of each part are those of about the same length, each from
its first traffic on. A checkpoint is what a job writes to storage ports while its rails are silent or its steps are
interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.statistics.steps.edges import Steps, find_steps
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.steps.runs import Pauses, find_pauses, find_runs, join_runs

PeriodFinder = Callable[[int, int], StepPeriod]
"""Finds the step period in the samples from the first number to before the second."""

# steps before and after a silence lie within so many step lengths of it; a few next to it are not found
NEAR_STEPS = 6
# a step of this fraction of the usual length, more or less, is regular; measured jobs vary by 2 to 10 %
TOLERANCE = 0.2
# so many steps of one length in a row are no accident
MIN_STEPS = 3
# a silence of at least this fraction of the usual one can precede a step
MIN_GAP = 0.5
# the silence between steps is this many times as long as the next longest in a step
DISTINCT = 2
# a silence separates steps if it does so in this fraction of them
MIN_SEPARATED = 0.8
# the steps at the beginning that have no edge on both sides, and the one in which the edge lies
EDGE_STEPS = 3
FIRST_TRAFFIC, FIRST_STEP, BARRIER, CHECKPOINT = KINDS = ("first-traffic", "first-step", "barrier", "checkpoint")


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """The thresholds, and why they are what they are.

    `start_quiet_seconds`: a start follows at least this much silence; barriers and evaluations take less, and saving
    shows on storage ports. `least_quiet_seconds`: a shorter silence is a pause between bursts. `lasting_seconds`:
    traffic that ends earlier may be a test and not a job. `barrier_gaps`: a barrier lasts this many times as long as
    the usual longest silence of a step, which a delayed step at most doubles. `barrier_periods`: and at least this
    share of a step, because the tiny silences of steps that have hardly any vary by more than that. `most_missing`:
    with a larger share of missing data, a silence is not even a guess. `checkpoint_pause_seconds`: within a checkpoint,
    a file system pauses for less. `checkpoint_bytes`: log files and metrics are smaller. `checkpoint_share`: a guess
    needs this share of the bytes while the rails are silent; `certain_share`: a checkpoint that stops the job has it.
    """

    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    start_quiet_seconds: float = 30.0
    least_quiet_seconds: float = 1.0
    lasting_seconds: float = 10.0
    barrier_gaps: float = 4.0
    barrier_periods: float = 0.5
    most_missing: float = 0.1
    checkpoint_pause_seconds: float = 1.0
    checkpoint_bytes: float = 1e8
    checkpoint_share: float = 0.5
    certain_share: float = 0.9


@dataclass(frozen=True, slots=True)
class PhaseTraffic:
    """Samples of a node at equal intervals; NaN where data is missing.

    `rails` (samples,) is transmit + receive of all rails, `storage` (2, samples) transmit and receive of all storage
    ports, None if the node has none. `troubled` (samples,) is true where the link of a rail was down, or may have been.
    Counters resolve nothing shorter than `resolution` samples.
    """

    rails: Floats
    troubled: Bools
    interval_seconds: float
    storage: Floats | None = None
    resolution: int = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase from sample `first` to before `end`; it begins at most `uncertainty` samples before or after
    that.

    `doubt` says why it is a guess, and is empty if it is certain. `silent_seconds` is the silence of the rails: before
    the first traffic, at a barrier, during a checkpoint. `transmitted` and `received` are the bytes of storage ports
    in a checkpoint; NaN for others.
    """

    kind: str
    first: int
    end: int
    uncertainty: int
    doubt: str = ""
    silent_seconds: float = math.nan
    transmitted: float = math.nan
    received: float = math.nan

    @property
    def certain(self) -> bool:
        """Whether it is certain and not a guess."""
        return not self.doubt

    def overlaps(self, first: int, end: int) -> bool:
        """Whether it has samples in a part."""
        return self.first < end and first < self.end


def find_phases(traffic: PhaseTraffic, find_period: PeriodFinder, rules: PhaseRules | None = None) -> tuple[Phase, ...]:
    """The phases in order of their beginning; `find_period` is asked for parts of the samples.

    Law: multiplying all rates, the active threshold and the bytes of the rules by the same number changes only the
    bytes. Missing data never counts as silence.
    """
    parts = TrafficParts(traffic, find_period, rules or PhaseRules())
    found = list(find_checkpoints(parts))
    for stretch in parts.stretches:
        found += [*_find_start(parts, stretch, found), *_find_barriers(parts, stretch, found)]
    return tuple(sorted(found, key=lambda phase: phase.first))


def _find_start(parts: TrafficParts, stretch: Stretch, found: Sequence[Phase]) -> Iterator[Phase]:
    """The first traffic of a stretch and its first regular step; nothing if a checkpoint explains the silence."""
    start = _find_first_traffic(parts, stretch)
    quiet = stretch.first - parts.start_quiet, stretch.first
    if start is not None and not any(each.certain and each.overlaps(*quiet) for each in found):
        yield start
        yield from _find_first_step(parts, stretch, start)


def _find_first_traffic(parts: TrafficParts, stretch: Stretch) -> Phase | None:
    if stretch.lead is None:
        return None
    pauses, rules, traffic, lead = parts.pauses, parts.rules, parts.traffic, stretch.lead
    length, missing, tail = (int(each[lead]) for each in (pauses.samples, pauses.missing, pauses.tail))
    long = tail >= parts.start_quiet
    silent = tail if long else length - missing
    # a shorter silence is a guess if the rest of it is missing or came before the data
    if silent < max(parts.samples(rules.least_quiet_seconds), parts.long_pause(stretch.steps)):
        return None
    if not long and missing > rules.most_missing * length:
        return None
    if traffic.troubled[stretch.first - silent : stretch.first + 1].any():
        doubt = "the link of a rail was down in the silence"
    elif missing and not long:
        doubt = parts.missing_text(missing)
    elif not long:
        doubt = "the silence before it began earlier than the data"
    else:
        doubt = _doubt_duration(parts, stretch)
    first = stretch.first if tail else int(np.flatnonzero(~np.isnan(traffic.rails[: stretch.first]))[-1]) + 1
    return Phase(FIRST_TRAFFIC, first, stretch.first + 1, traffic.resolution, doubt, parts.seconds(silent))


def _doubt_duration(parts: TrafficParts, stretch: Stretch) -> str:
    seconds = parts.seconds(stretch.end - stretch.first)
    if seconds >= parts.rules.lasting_seconds:
        return ""
    return f"the {'data' if stretch.end == len(parts.traffic.rails) else 'traffic'} ends {seconds:.2f} s later"


def _find_first_step(parts: TrafficParts, stretch: Stretch, start: Phase) -> Iterator[Phase]:
    steps, pauses = stretch.steps, parts.pauses
    index = steps.in_a_row()
    if index is None:
        return
    first, end, late = round(steps.begin[index]), round(steps.end[index]), 0
    missing = int(np.isnan(parts.traffic.rails[start.first : end]).sum())
    doubts = [start.doubt] if start.doubt else [parts.missing_text(missing)] if missing else []
    silences = (pauses.samples >= parts.long_pause(steps)) & (pauses.end <= first)
    begin = int(pauses.end[silences].max(initial=stretch.first))
    ahead = first - begin
    if not steps.visible and ahead > EDGE_STEPS * steps.length:
        late = math.ceil(EDGE_STEPS * steps.length)
        doubts.append("no silence separates the steps, so it may be up to three steps earlier")
    elif ahead and (not steps.visible or ahead < (1 - TOLERANCE) * steps.length):
        first, end, late = begin, begin + round(steps.length), ahead
        doubts.append(f"regular steps are only seen from {parts.seconds(ahead):.2f} s later on")
    yield Phase(FIRST_STEP, first, end, parts.traffic.resolution + late, "; ".join(doubts))


def _find_barriers(parts: TrafficParts, stretch: Stretch, found: Sequence[Phase]) -> Iterator[Phase]:
    """Long silences of all rails within regular steps, but not those of checkpoints or with a link down."""
    pauses, steps, least = parts.pauses, stretch.steps, parts.long_pause(stretch.steps)
    silent = pauses.samples - pauses.missing
    chosen = (pauses.first > stretch.first) & (pauses.end < stretch.end) & (silent >= max(1, least))
    chosen &= pauses.missing <= parts.rules.most_missing * pauses.samples
    for index in np.flatnonzero(chosen) if least else ():
        first, end, missing = (int(each[index]) for each in (pauses.first, pauses.end, pauses.missing))
        other = parts.traffic.troubled[first:end].any() or any(each.overlaps(first, end) for each in found)
        if not other and parts.near(steps, first, -1):
            doubts = [parts.missing_text(missing)] if missing else []
            doubts += [] if parts.near(steps, end, 1) else ["no regular steps follow it"]
            seconds = parts.seconds(silent[index])
            yield Phase(BARRIER, first, end, parts.traffic.resolution, "; ".join(doubts), seconds)


def find_checkpoints(parts: TrafficParts) -> Iterator[Phase]:
    """The checkpoints in order; none without storage ports.

    Only what is transmitted counts: what a job receives from storage is input. A burst that comes without traffic of
    the rails shortly before it belongs to no job and is no checkpoint.
    """
    storage, rules = parts.traffic.storage, parts.rules
    if storage is None:
        return
    pause = parts.samples(rules.checkpoint_pause_seconds)
    spans = join_runs(*find_runs(storage[0] > rules.active_bytes_per_second), pause)
    for first, end in zip(*(each.tolist() for each in spans), strict=True):
        burst = _Burst(first, end, storage[:, first:end])
        sent, received = (burst.moved * parts.traffic.interval_seconds).tolist()
        if sent >= rules.checkpoint_bytes and sent >= received:
            yield from _judge(parts, burst, sent, received)


@dataclass(frozen=True, slots=True)
class _Burst:
    """A burst on the storage ports, from sample `first` to before `end`; `rates` is (2, samples)."""

    first: int
    end: int
    rates: Floats

    @property
    def moved(self) -> Floats:
        """Transmitted and received, in bytes per second x samples."""
        return np.asarray(np.nansum(self.rates, axis=1))

    def share(self, first: int, end: int) -> float:
        """The share of what is transmitted that is transmitted in a part of the samples."""
        inside = self.rates[0, max(0, first - self.first) : max(0, end - self.first)]
        return float(np.nansum(inside) / self.moved[0])


def _judge(parts: TrafficParts, burst: _Burst, sent: float, received: float) -> Iterator[Phase]:
    traffic, rules = parts.traffic, parts.rules
    steps = next((each.steps for each in reversed(parts.stretches) if each.first < burst.first), NO_STEPS)
    silences = _find_silences(parts, burst, steps)
    stopped = any(burst.share(*part) >= rules.checkpoint_share for part in silences)
    part = max(silences if stopped else _find_interruptions(steps), key=lambda part: burst.share(*part), default=(0, 0))
    share, (first, end) = burst.share(*part), part
    if share < rules.checkpoint_share:
        return
    doubts = []
    if not stopped:
        doubts.append("regular steps are interrupted, but the rails are not silent")
    elif not parts.near(steps, first, -1):
        doubts.append("no regular steps come before it")
    elif share < rules.certain_share:
        doubts.append(f"only {100 * share:.0f} % of it was written while the rails were silent")
    missing = np.isnan(burst.rates).any(axis=0).sum() + np.isnan(traffic.rails[first:end]).sum()
    if missing:
        doubts.append(parts.missing_text(int(missing)))
    if stopped and traffic.troubled[first:end].any():
        doubts.append("the link of a rail was down in the silence")
    if burst.first == 0 or burst.end == len(traffic.rails):
        doubts.append("the data does not show all of it")
    silent = max(0, min(end, burst.end) - max(first, burst.first)) if stopped else 0
    yield Phase(
        CHECKPOINT,
        burst.first,
        burst.end,
        traffic.resolution,
        "; ".join(doubts),
        parts.seconds(silent),
        sent,
        received,
    )


def _find_silences(parts: TrafficParts, burst: _Burst, steps: RegularSteps) -> list[tuple[int, int]]:
    """Long silences of the rails with a part of the burst, which begin with the end of traffic not long before it."""
    pauses = parts.pauses
    least = max(parts.samples(parts.rules.least_quiet_seconds), parts.long_pause(steps))
    fits = (pauses.first < burst.end) & (pauses.end > burst.first) & (pauses.samples - pauses.missing >= least)
    fits &= (pauses.first > 0) & (pauses.first >= burst.first - parts.start_quiet)
    return list(zip(pauses.first[fits].tolist(), pauses.end[fits].tolist(), strict=True))


def _find_interruptions(steps: RegularSteps) -> list[tuple[int, int]]:
    """The parts between regular steps that are at least as long as a step."""
    parts = zip(steps.end[:-1].tolist(), steps.begin[1:].tolist(), strict=True)
    return [(round(end), round(begin)) for end, begin in parts if begin - end >= steps.length]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Traffic between two long pauses, from its first active sample to after its last one, and its regular steps.

    `lead` is the index of the pause before it, None if the samples begin with it.
    """

    first: int
    end: int
    lead: int | None
    steps: RegularSteps


class TrafficParts:
    """The pauses of the rails, and the stretches of traffic between pauses that are long enough for a new start."""

    def __init__(self, traffic: PhaseTraffic, find_period: PeriodFinder, rules: PhaseRules) -> None:
        self.traffic, self.rules = traffic, rules
        self.pauses = find_pauses(traffic.rails, rules.active_bytes_per_second)
        self._find_period = find_period
        active = len(traffic.rails) > self.pauses.samples.sum()
        whole = self._steps(0, len(traffic.rails)) if active else NO_STEPS
        self.start_quiet = max(self.samples(rules.start_quiet_seconds), self.long_pause(whole))
        self.stretches = tuple(self._split(whole))

    def samples(self, seconds: float) -> int:
        """The number of samples in a time."""
        return math.ceil(seconds / self.traffic.interval_seconds - 1e-9)

    def seconds(self, samples: float) -> float:
        """The time of a number of samples."""
        return float(samples) * self.traffic.interval_seconds

    def missing_text(self, samples: int) -> str:
        """A doubt about that many missing samples."""
        return f"data is missing for {self.seconds(samples):.2f} s"

    def long_pause(self, steps: RegularSteps) -> int:
        """The samples of a silence that is much longer than the usual ones of these steps; 0 without steps."""
        if not len(steps.begin):
            return 0
        usual = max(self.rules.barrier_gaps * steps.gap, self.rules.barrier_periods * steps.length)
        return math.ceil(max(usual, 3 * self.traffic.resolution))

    def near(self, steps: RegularSteps, sample: int, way: int) -> bool:
        """Whether regular steps come before (`way` -1) or after (1) a sample."""
        far, close = sample + way * NEAR_STEPS * steps.length, sample - way * steps.length / 2
        return steps.between(min(far, close), max(far, close)) >= MIN_STEPS

    def _steps(self, first: int, end: int) -> RegularSteps:
        period = self._find_period(first, end)
        if math.isnan(period.seconds):
            # a barrier can hide the rhythm of the steps around it
            parts = self._parts(first, end, self.samples(self.rules.least_quiet_seconds))
            period = self._find_period(*max(parts, key=lambda part: part[1] - part[0], default=(first, end)))
        if math.isnan(period.seconds):
            return NO_STEPS
        steps = self._steps_of(period.seconds / self.traffic.interval_seconds, first, end)
        # steps after a long silence may have another phase, which hides them for a while
        for low, high in self._parts(first, end, self.long_pause(steps)):
            if high - low < end - first and steps.between(low, high) < MIN_STEPS:
                steps = steps.join(self._steps_of(steps.length, low, high))
        return steps

    def _steps_of(self, period: float, first: int, end: int) -> RegularSteps:
        found = find_steps(self.traffic.rails[first:end], period)
        return find_regular_steps(replace(found, bounds=found.bounds + first), self.pauses, first)

    def _parts(self, first: int, end: int, pause: int) -> list[tuple[int, int]]:
        """The parts of some samples between pauses of at least this length; none for a length of 0."""
        if not pause:
            return []
        pauses = self.pauses
        cuts = (pauses.samples >= pause) & (pauses.end > first) & (pauses.first < end)
        begins = np.maximum(first, np.append(first, pauses.end[cuts]))
        ends = np.append(pauses.first[cuts], end)
        return [(low, high) for low, high in zip(begins.tolist(), ends.tolist(), strict=True) if low < high]

    def _split(self, whole: RegularSteps) -> Iterator[Stretch]:
        pauses, samples = self.pauses, len(self.traffic.rails)
        cuts = np.flatnonzero((pauses.samples >= self.start_quiet) | (pauses.first == 0) | (pauses.end == samples))
        firsts, ends = [0, *pauses.end[cuts].tolist()], [*pauses.first[cuts].tolist(), samples]
        for first, end, lead in zip(firsts, ends, [None, *cuts.tolist()], strict=True):
            if first < end:
                most = end - first > samples - self.start_quiet
                yield Stretch(first, end, lead, whole if most else self._steps(first, end))


@dataclass(frozen=True, slots=True)
class RegularSteps:
    """Steps of about the same length: from sample `begin` to before `end`, each (steps,), in order.

    `length` is the usual length in samples, `gap` the usual length of the longest silence in a step. If steps begin
    after that silence, `visible` is true; otherwise each begins at some edge within its traffic.
    """

    begin: Floats
    end: Floats
    length: float
    gap: float
    visible: bool

    def in_a_row(self) -> int | None:
        """Index of the first of `MIN_STEPS` steps of which each begins where the one before it ends; None without."""
        joined = np.concatenate(([False], self.begin[1:] == self.end[:-1]))
        run = 0
        for index, follows in enumerate(joined.tolist()):
            run = run + 1 if follows else 1
            if run == MIN_STEPS:
                return index - MIN_STEPS + 1
        return None

    def join(self, others: RegularSteps) -> RegularSteps:
        """These steps and others, which do not overlap them."""
        order = np.argsort(np.concatenate((self.begin, others.begin)))
        begin, end = (np.concatenate(pair)[order] for pair in ((self.begin, others.begin), (self.end, others.end)))
        return replace(self, begin=begin, end=end, visible=self.visible and others.visible)

    def between(self, first: float, end: float) -> int:
        """The number of steps that begin and end in a part of the series."""
        return int(np.count_nonzero((self.begin >= first) & (self.end <= end)))


NO_STEPS = RegularSteps(np.zeros(0), np.zeros(0), np.nan, 0.0, False)


def find_regular_steps(found: Steps, pauses: Pauses, first: int) -> RegularSteps:
    """The steps of about the same length in traffic that begins at sample `first`.

    `found` bounds a step by its sharpest edge, which can lie anywhere in it. Here a step begins with its first active
    sample after the longest silence of each step, and the first steps, which have no edge on both sides, are added.
    """
    lengths = np.diff(found.bounds)
    if np.count_nonzero(found.whole) < MIN_STEPS:
        return NO_STEPS
    length = float(np.median(lengths[found.whole]))
    regular = np.flatnonzero(found.whole & _alike(lengths, length))
    if len(regular) < MIN_STEPS:
        return NO_STEPS
    bounds = np.stack((found.bounds[regular], found.bounds[regular + 1]))
    longest = [_longest_pauses(pauses, begin, end) for begin, end in bounds.T.tolist()]
    gap, next_gap = (
        float(np.median([pauses.samples[found[place]] if place < len(found) else 0 for found in longest]))
        for place in range(2)
    )
    anchors = np.unique([pauses.end[found[0]] for found in longest if found]).astype(np.float64)
    followed = np.count_nonzero(np.diff(regular) == 1)
    # a silence that is now here, now there in a step does not separate steps
    separated = np.count_nonzero(_alike(np.diff(anchors), length)) >= MIN_SEPARATED * followed
    if not (gap >= DISTINCT * next_gap and gap and separated):
        return RegularSteps(bounds[0], bounds[1], length, gap, False)
    anchors = np.concatenate((_earlier(anchors[0], length, gap, pauses, first), anchors))
    kept = _alike(np.diff(anchors), length)
    return RegularSteps(anchors[:-1][kept], anchors[1:][kept], length, gap, True)


def _alike(lengths: Floats, length: float) -> Bools:
    return np.asarray(np.abs(lengths / length - 1) <= TOLERANCE)


def _longest_pauses(pauses: Pauses, begin: float, end: float) -> list[int]:
    """The two longest pauses without missing data whose middle lies between two bounds, which can be their edges."""
    low, high = np.searchsorted(pauses.first + pauses.end, (2 * begin, 2 * end)).tolist()
    whole = [index for index in range(low, high) if not pauses.missing[index]]
    return sorted(whole, key=lambda index: -int(pauses.samples[index]))[:2]


def _earlier(begin: float, length: float, gap: float, pauses: Pauses, first: int) -> list[float]:
    """Steps before the one at `begin`: one length before it ends a similar silence, or the traffic begins."""
    found: list[float] = []
    while True:
        low, high = np.searchsorted(pauses.end, (begin - (1 + TOLERANCE) * length, begin - (1 - TOLERANCE) * length))
        fits = [n for n in range(low, high) if pauses.end[n] >= first and pauses.samples[n] >= MIN_GAP * gap]
        if not fits:
            return found[::-1]
        begin = float(pauses.end[max(fits, key=lambda n: int(pauses.samples[n]))])
        found.append(begin)
