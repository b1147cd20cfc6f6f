"""Follows the silences of a job: in the byte counters of its rails on one node, and over time by their verdicts.

A counter that has not moved proves silence, also across missing samples; one that has moved only shows that bytes
passed between two samples. Rates below a hundredth of the highest rate of the rail and direction count as silence, as
in `silence_level`, because keep-alives are slower; before there are steps, smaller bursts both ways count after 20 s.
Retransmissions are faster, but nothing is received meanwhile: short bursts that a node sends long after it last
received anything do not end a silence, and long ones are writes to storage. Constant traffic on a rail, such as
storage, is slow and even: it counts as silence up to three times its lowest rate of the last minute in which the job
received anything. Times are ticks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.statistics.steps.runs import SILENT_PART, silence_level
from ibpulse.core.statistics.verdict import Kind, Moment, NodeSilence, Pause, RailSilence, Verdict, notable_seconds

# shorter silences are the many between the collectives of a step
MIN_PAUSE_SECONDS = 0.05
MAX_PAUSES = 256
# pauses that a node reports
NEWEST_PAUSES, LONGEST_PAUSES = 12, 8
# a sample just after traffic holds its end if it has more than this part of the level
TAIL_PART = 1 / 64
# a silence is regular if it occurred this often within this time, each at least this part as long as the longest
REGULAR_TIMES, REGULAR_SECONDS, ALIKE = 3, 400.0, 2 / 3
# the longest of so many silences is usually that of a step
STEP_PAUSES = 16
# without such silences, the longest is regular after this many seconds of traffic, sooner if it is short
SETTLED_SECONDS, SHORT_SETTLED_SECONDS, SHORT_SECONDS = 120.0, 30.0, 1 / 3
# constant traffic: the rate that nine tenths of the samples of a second exceed, at its lowest in this many seconds
ALWAYS_PART, ALWAYS_SECONDS, ALWAYS_FACTOR, MAX_ALWAYS = 0.1, 60, 3.0, 0.2
# the highest rate is that of so many of the last seconds in which a rail both sent and received
BUSY_SECONDS = 20
# bytes sent this long after anything was received are retransmissions, or writes from this many samples on
ANSWERED_SECONDS, MIN_RUN = 0.5, 5
Rates = npt.NDArray[np.floating]
# of a job, newest first
MAX_STALLS = 10
# judgements of the same silence differ by less in the moment of the last byte
SAME_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class TickPause:
    """A silence that ended: no byte passed after tick `begin` up to `end`; the node last sent bytes at tick `sent`."""

    sent: int
    begin: int
    end: int

    @property
    def ticks(self) -> int:
        """Its length."""
        return self.end - self.begin


class Pauses:
    """The past silences of a job on a node; if they are too many, short ones that are not new are dropped."""

    def __init__(self, ticks_per_second: float) -> None:
        self._per_second = ticks_per_second
        self._first: int | None = None
        self._newest = self._begun = 0
        self._kept: list[TickPause] = []
        self.longest = 0

    def begin_again(self, tick: int) -> None:
        """Forget the steps before a tick, at which the job starts again, but not how long its pauses may be."""
        self._first, self._begun = None, tick

    def note_traffic(self, first: int, last: int) -> None:
        """Note the first and the last tick with traffic since the previous call."""
        self._first = first if self._first is None else self._first
        self._newest = last

    def add(self, pause: TickPause) -> None:
        """Add a silence, after all earlier ones."""
        self.longest = max(self.longest, pause.ticks)
        self._kept.append(pause)
        if len(self._kept) > MAX_PAUSES:
            older, newest = self._kept[: -MAX_PAUSES // 2], self._kept[-MAX_PAUSES // 2 :]
            longest = sorted(older, key=lambda each: (each.ticks, each.end))[-MAX_PAUSES // 4 :]
            self._kept = [*sorted(longest, key=lambda each: each.end), *newest]

    def regular(self) -> int | None:
        """The longest regular silence before the newest traffic; None before there are steps."""
        since = max(self._begun, self._newest - REGULAR_SECONDS * self._per_second)
        lengths = sorted((each.ticks for each in self._kept if each.begin >= since), reverse=True)
        for length, again in zip(lengths, lengths[REGULAR_TIMES - 1 :], strict=False):
            if again >= ALIKE * length:
                return length
        longest = max(lengths, default=0)
        least = SHORT_SETTLED_SECONDS if longest <= SHORT_SECONDS * self._per_second else SETTLED_SECONDS
        settled = self._first is not None and self._newest - self._first >= least * self._per_second
        return longest if settled else None

    def newest(self, count: int, least: float) -> list[TickPause]:
        """The newest silences of at least this length from the last byte sent on, oldest first."""
        return [each for each in self._kept if each.end - each.sent >= least][-count:]

    def chosen(self, newest: int, longest: int) -> list[TickPause]:
        """The newest silences of steps, at least half as long as the usual one, and the longest ones, oldest first.

        One slow step may have several silences that are longer than all others, and regular all the same.
        """
        recent = [each.ticks for each in self._kept[-MAX_PAUSES // 2 :]]
        steps = [max(recent[first : first + STEP_PAUSES]) for first in range(0, len(recent), STEP_PAUSES)]
        least = 0.5 * min(self.regular() or 0, median(steps)) if steps else 0.0
        found = {*self.newest(newest, least), *sorted(self._kept, key=lambda each: (each.ticks, each.end))[-longest:]}
        return sorted(found, key=lambda each: each.end)


class SilenceWatch:
    """Follows the last bytes of some rails of a node, and the pauses of all rails together.

    `low` and `high` (rails, 2), transmit and receive, are the ticks between which the last byte passed, 0 without any
    traffic so far. Silence is known up to tick `known`. Between the ticks `wrote`, the node last wrote to storage: it
    had been sending for long without an answer. Rates up to `least` bytes per second do not count as traffic.
    `pauses` are those of an earlier run of the job.
    """

    def __init__(self, rails: int, interval_seconds: float, least: float, pauses: Pauses | None = None) -> None:
        shape, self._interval = (rails, 2), interval_seconds
        self._least = least * interval_seconds
        self._value, self._tick = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._highest, self._moving = np.zeros(shape), np.zeros(shape, np.bool_)
        self.low, self.high = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._last = self._sent_by_last = self._sent = self._received = self._idle = 0
        self.known = 0
        self.wrote: tuple[int, int] | None = None
        self.pauses = pauses or Pauses(1 / interval_seconds)
        self._always = _Always(shape, max(1, round(1 / interval_seconds)), self._least)

    def add(self, first_tick: int, counters: Counts, valid: Bools, strides: Counts) -> None:
        """Add counters (rails, 2, ticks) from a tick on, and where they are `valid`.

        `strides` (rails,) are the ticks between two samples of each rail.
        """
        ticks = np.arange(first_tick, first_tick + counters.shape[2])
        newest = np.maximum.accumulate(np.where(valid, ticks, self._tick[..., None]), axis=2)
        before = np.concatenate([self._tick[..., None], newest[..., :-1]], axis=2)
        here = np.take_along_axis(counters, np.maximum(newest - first_tick, 0), axis=2)
        values = np.where(newest >= first_tick, here, self._value[..., None])
        values_before = np.concatenate([self._value[..., None], values[..., :-1]], axis=2)
        paired = valid & (before > 0)
        moved = np.where(paired, values - values_before, 0)
        gaps = np.where(paired, ticks - before, 1)
        rates = moved / gaps
        self._highest = np.maximum(self._highest, rates.max(axis=2, initial=0.0))
        level = self._level(strides, gaps)
        # a counter that was reset may have counted bytes before
        active = paired & ((moved > level) | (moved < 0))
        written, again = self._note_pauses(
            first_tick, _fill(active, gaps), int(strides.max(initial=1)), int(newest[..., -1].max(initial=0))
        )
        written, again = active[:, 0] & written, active[:, 0] & again
        self._note_last(first_tick, before, paired, active, moved > TAIL_PART * level, written, again)
        self._value, self._tick = values[..., -1], newest[..., -1]
        self._always.add(first_tick, np.where(paired, rates, np.inf), np.array(active[:, 1].any(axis=0)))
        if self.pauses.regular() is None:
            # a job may carry far less than when it began; once it has steps, chatter in a stall is none
            recent = np.maximum(self._always.highest, rates.max(axis=2, initial=0.0))
            self._highest = np.where(np.isinf(recent), self._highest, recent)
        self._note_known(int(ticks[-1]))

    def _level(self, strides: Counts, gaps: Counts) -> Floats:
        """The most bytes of a silent sample (rails, 2, ticks); constant traffic adds up while samples are missing."""
        always = np.minimum(ALWAYS_FACTOR * self._always.lowest, MAX_ALWAYS * self._highest)
        least = silence_level(self._highest, self._least) * strides[:, None]
        return np.asarray(np.maximum(least[..., None], always[..., None] * np.maximum(gaps, strides[:, None, None])))

    def _note_last(
        self, first_tick: int, before: Counts, paired: Bools, active: Bools, tail: Bools, written: Bools, again: Bools
    ) -> None:
        """Note the last bytes. A rail wrote to storage where `written`, and may have retransmitted where `again`.

        Both are (rails, ticks).
        """
        ticks = np.arange(first_tick, first_tick + active.shape[2])
        wrote = np.where(written, ticks, 0).max(axis=1, initial=0)[:, None, None]
        active = np.stack([active[:, 0] & ~written, active[:, 1]], axis=1)
        earlier = np.take_along_axis(active, np.maximum(before - first_tick, 0), axis=2)
        follows = paired & ~active & tail & np.where(before >= first_tick, earlier, self._moving[..., None])
        # retransmitted bytes are not certain to be the last
        certain = np.stack([active[:, 0] & ~again, active[:, 1]], axis=1)
        if wrote.any():
            until = ticks <= wrote
            self._move_last(first_tick, before, active & until, follows & until, certain & until)
            # the writes hide when the rail last sent to other nodes: as far as is known, when it last received
            behind = wrote[:, 0, 0] > 0
            self.low[behind, 0], self.high[behind, 0] = self.low[behind, 1], self.high[behind, 1]
        behind_wrote = ticks > wrote
        self._move_last(first_tick, before, active & behind_wrote, follows & behind_wrote, certain & behind_wrote)
        last, newest = (np.where(some, ticks, 0).max(axis=2, initial=0) for some in (active, paired))
        self._moving = np.where(newest > 0, newest == last, self._moving)

    def _move_last(self, first_tick: int, before: Counts, active: Bools, follows: Bools, certain: Bools) -> None:
        ticks = np.arange(first_tick, first_tick + active.shape[2])
        last, ended, known = (np.where(some, ticks, 0).max(axis=2, initial=0) for some in (active, follows, certain))
        place = np.maximum(known - first_tick, 0)[..., None]
        self.low = np.where(known > 0, np.take_along_axis(before, place, axis=2)[..., 0], self.low)
        self.high = np.maximum(self.high, np.maximum(last, ended))

    @property
    def last(self) -> int:
        """The tick of the last byte that was received, or sent if none ever was; 0 without any traffic so far."""
        return int(self.high[:, 1].max(initial=0) or self.high.max(initial=0))

    def _note_pauses(self, first_tick: int, active: Bools, stride: int, sampled: int) -> tuple[Bools, Bools]:
        """Note the silences between active ticks (2, ticks), where samples are up to `stride` ticks apart.

        The newest sample is at tick `sampled`; only the next one shows whether later ticks are idle.

        Returns in which ticks (ticks,) the node wrote to storage, and in which others it sent without an answer.
        """
        every = np.arange(active.shape[1]) + first_tick
        sent, received, idle = (
            np.maximum.accumulate(np.where(way, every, before))
            for way, before in zip((*active, ~active[0]), (self._sent, self._received, self._idle), strict=True)
        )
        answered = (received == 0) | (every - received <= ANSWERED_SECONDS / self._interval)
        written: Bools = active[0] & ~answered & (every - idle >= MIN_RUN * stride)
        again: Bools = active[0] & ~answered & ~written
        places = np.flatnonzero(active[1] | (active[0] & answered) | written)
        self._sent, self._received = int(sent[-1]), int(received[-1])
        if sampled >= first_tick:
            self._idle = int(idle[sampled - first_tick])
        if written.any():
            last = int(every[written][-1])
            self.wrote = last - 1, last
        if not len(places):
            return written, again
        ticks = places + first_tick
        begins = np.concatenate([[self._last], ticks[:-1]])
        least = MIN_PAUSE_SECONDS / self._interval
        for index in np.flatnonzero((ticks - begins - 1 >= least) & (begins > 0)).tolist():
            before = self._sent_by_last if index == 0 else int(sent[places[index - 1]])
            self.pauses.add(TickPause(before, int(begins[index]), int(ticks[index]) - 1))
        self.pauses.note_traffic(int(ticks[0]), int(ticks[-1]))
        self._last, self._sent_by_last = int(ticks[-1]), int(sent[places[-1]])
        return written, again

    def _note_known(self, tick: int) -> None:
        """Silence is known up to where all rails have samples; a rail without any for a second is ignored."""
        newest = self._tick.min(axis=1, initial=tick)
        sampled = newest[newest >= tick - 1 / self._interval]
        self.known = int(sampled.min()) if len(sampled) else self.known


class _Always:
    """Constant traffic: the rate that most samples of a second exceed, `lowest` (rails, 2) in bytes per tick.

    It is the lowest of the last seconds, without those in which nothing was received, because writes to storage are not
    constant. `highest` (rails, 2) is the highest rate of the last seconds in which the rail both sent and received
    bursts above `least`, infinite before there are enough: a job may carry far less than when it began.
    """

    def __init__(self, shape: tuple[int, int], ticks_per_second: int, least: float) -> None:
        self._ticks, self._second, self._least = ticks_per_second, 0, least
        self._peaks, self._busy = np.full((BUSY_SECONDS, *shape), np.inf), np.zeros(shape[0], np.int64)
        self.highest = np.full(shape, np.inf)
        self._parts: list[Floats] = []
        self._received = False
        self._kept = np.full((ALWAYS_SECONDS, *shape), np.inf)
        self.lowest = np.zeros(shape)

    def add(self, first_tick: int, rates: Floats, received: Bools) -> None:
        """Add rates (rails, 2, ticks) from a tick on, infinite where a sample is missing; `received` is (ticks,)."""
        while rates.shape[2]:
            left = self._ticks - first_tick % self._ticks
            self._parts.append(rates[..., :left])
            self._received |= bool(received[:left].any())
            if rates.shape[2] >= left:
                self._end_second()
            first_tick, rates, received = first_tick + left, rates[..., left:], received[left:]

    def _end_second(self) -> None:
        second, received = np.sort(np.concatenate(self._parts, axis=2), axis=2), self._received
        self._parts, self._received = [], False
        constant = second[..., int(ALWAYS_PART * second.shape[2])]
        peaks = np.where(np.isinf(second), 0.0, second).max(axis=2)
        busy = np.flatnonzero((peaks > np.maximum(self._least, ALWAYS_FACTOR * constant)).all(axis=1))
        self._peaks[self._busy[busy] % BUSY_SECONDS, busy] = peaks[busy]
        self._busy[busy] += 1
        self.highest = self._peaks.max(axis=0)
        if not received:
            return
        self._second += 1
        self._kept[self._second % ALWAYS_SECONDS] = constant
        lowest = self._kept.min(axis=0)
        self.lowest = np.where(np.isinf(lowest), 0.0, lowest)


def _fill(active: Bools, gaps: Counts) -> Bools:
    """Active ticks of any rail, (2, ticks), with those missing before an active sample, which may have been active."""
    found: Bools = np.array(active.any(axis=0))
    holes = active & (gaps > 1)
    for rail, way, place in np.argwhere(holes).tolist():
        found[way, max(0, place - int(gaps[rail, way, place]) + 1) : place] = True
    return found


class StorageWatch:
    """When storage ports last carried clearly more than usual: between the ticks `last`, None if they never did."""

    FACTOR = 3.0
    KEPT_SECONDS = 60.0

    def __init__(self, interval_seconds: float, least: float) -> None:
        self._interval, self._least, self._usual, self._watched = interval_seconds, least, 0.0, 0.0
        self.last: tuple[int, int] | None = None

    def add(self, first_tick: int, last_tick: int, moved: float, silent: bool) -> None:
        """Add the bytes that passed between two ticks; only those while the job is not `silent` count as usual."""
        seconds = (last_tick - first_tick) * self._interval
        if seconds <= 0:
            return
        rate = moved / seconds
        if rate > max(self._least, self.FACTOR * self._usual):
            self.last = first_tick, last_tick
        if not silent:
            self._watched = min(self.KEPT_SECONDS, self._watched + seconds)
            self._usual += (rate - self._usual) * min(1.0, seconds / self._watched)


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """The times of samples in seconds: the first one begins at `start` on the common clock, and is `interval` long.

    `bound` is the largest possible error of that clock, None if it is not known. Counters show traffic up to
    `resolution` after it passed, at least one interval.
    """

    start: float
    interval: float
    bound: float | None
    resolution: float = 0.0

    def at(self, tick: int) -> float:
        """The end of the sample up to a tick; that of the first sample is 2."""
        return self.start + (tick - 1) * self.interval

    def last_traffic(self, active: int, idle: int) -> Moment:
        """The end of the traffic of an active sample, if `idle` is the first known sample without any."""
        bound, seen = self.bound or 0.0, max(self.resolution, self.interval)
        return (
            self.start + (active + 1) * self.interval - seen - bound,
            self.start + idle * self.interval + bound,
        )


def _follow_rates(rates: Rates, times: SampleTimes, least: float) -> SilenceWatch:
    """A watch over recorded rates (rails, 2, samples), the first of which is up to tick 2.

    Recordings lack the counters across missing samples, which count as silent between silent samples.
    """
    known, rails = ~np.isnan(rates), len(rates)
    moved = np.where(known, rates, 0.0).astype(np.float64) * times.interval
    # traffic may have ended while samples are missing: the first sample after them gets a tail of it
    late = known[..., 1:] & ~known[..., :-1]
    moved[..., 1:] += np.where(late, SILENT_PART / 2 * moved.max(axis=2, initial=0.0)[..., None], 0.0)
    found = SilenceWatch(rails, times.interval, least)
    counters = np.concatenate([np.zeros((rails, 2, 1)), moved.cumsum(axis=2)], axis=2)
    valid = np.concatenate([np.ones((rails, 2, 1), dtype=np.bool_), known], axis=2)
    found.add(1, counters.astype(np.int64), valid, np.ones(rails, dtype=np.int64))
    return found


def find_silences(rates: Rates, times: SampleTimes, least: float) -> list[tuple[float, float]]:
    """The notable silences of a node in recorded rates (2, samples), NaN for missing data: begins and ends in seconds.

    The end is infinite if it lasts. Rates up to `least` bytes per second do not count as traffic.
    """
    found = _follow_rates(rates[np.newaxis], times, least)
    regular = found.pauses.regular()
    spans = [(times.at(each.begin), times.at(each.end)) for each in found.pauses.newest(MAX_PAUSES, 0)]
    known = times.at(found.known)
    if found.last:
        spans.append((times.at(found.last), math.inf))
    notable = notable_seconds(None if regular is None else regular * times.interval)
    return [(begin, end) for begin, end in spans if min(end, known) - begin > notable]


def describe_rates(
    rails: Sequence[str],
    rates: Rates,
    times: SampleTimes,
    least: float,
    lost: Mapping[str, Moment] | None = None,
) -> NodeSilence:
    """What a node reports on a job at the end of recorded rates (rails, 2, samples), NaN for missing data.

    Rates up to `least` bytes per second do not count as traffic. `lost` is when rails lost their links, if known.
    """
    found = _follow_rates(rates, times, least)

    def between(low: int, high: int) -> Moment:
        moment = times.last_traffic(high - 2, high - 1)
        return min(moment[0], times.at(low) - (times.bound or 0.0)), moment[1]

    def last(rail: int, way: int) -> Moment | None:
        low, high = int(found.low[rail, way]), int(found.high[rail, way])
        return between(low, high) if high else None

    regular = found.pauses.regular()
    return NodeSilence(
        rails={
            name: RailSilence(last(rail, 0), last(rail, 1), lost=(lost or {}).get(name))
            for rail, name in enumerate(rails)
        },
        known_until=times.at(found.known) - (times.bound or 0.0),
        regular=None if regular is None else regular * times.interval,
        longest=found.pauses.longest * times.interval,
        pauses=tuple(
            Pause(between(each.sent - 1, each.sent), times.at(each.begin), times.at(each.end))
            for each in found.pauses.chosen(NEWEST_PAUSES, LONGEST_PAUSES)
        ),
        storage=between(*found.wrote) if found.wrote else None,
        ordered=times.bound is not None,
    )


@dataclass(slots=True)
class Stall:
    """A silence with its verdict; `ended_ns` is None while it lasts, and `resumed` says that traffic ended it.

    It is `pushed` once it has lasted for `push_after` of its verdict. `said` are the kinds that were logged and
    counted, each once, because verdicts may alternate.
    """

    verdict: Verdict
    pushed: bool = False
    ended_ns: int | None = None
    resumed: bool = False
    said: set[Kind] = field(default_factory=set)

    def update(self, verdict: Verdict) -> None:
        """Take over a new verdict on the same silence; its words change only with the names, or if more is known.

        Nodes that forget their past, such as restarted daemons, do not take a verdict back.
        """
        old = self.verdict
        # the end of a job is told after all
        facts = [(each.kind, each.nodes, each.rails, len(each.evidence)) for each in (verdict, old)]
        same = facts[0] == facts[1]
        known = len(verdict.unknown) >= len(old.unknown)
        if verdict.kind == "unknown" and old.kind != "unknown":
            verdict = replace(old, seconds=verdict.seconds)
        elif same and known:
            verdict = replace(old, seconds=verdict.seconds, push_after=verdict.push_after)
        self.verdict = verdict
        self.pushed |= verdict.stalled

    def move(self, seconds: float) -> None:
        """Move its begin by the seconds by which the clock was set forward."""
        low, high = self.verdict.since
        self.verdict = replace(self.verdict, since=(low + seconds, high + seconds))


def lasting(stalls: Sequence[Stall]) -> Stall | None:
    """The stall that lasts, None without one; `stalls` are those of a job, newest first."""
    return stalls[0] if stalls and stalls[0].ended_ns is None else None


def follow(
    stalls: list[Stall], verdict: Verdict | None, last: Moment | None, now_ns: int, *, over: bool = False
) -> tuple[Stall | None, Stall | None]:
    """Take over a new judgement of a job; the stall that began, and the one that ended.

    `stalls` are those so far, newest first; the last byte of the job passed at `last`, None if that is not known.
    The job is `over` if no node has it any more.
    """
    old, ended = lasting(stalls), None
    if old and not verdict and not over and not (last and last[1] > old.verdict.since[1] + SAME_SECONDS):
        # nobody answers, or storage explains it: no traffic has refuted it
        return None, None
    if old and not (verdict and verdict.since[0] <= old.verdict.since[1] + SAME_SECONDS):
        old.ended_ns, old.resumed, ended = now_ns, not over, old
    if verdict is None:
        return None, ended
    if old and not ended:
        old.update(verdict)
        return None, None
    begun = Stall(verdict, pushed=verdict.stalled)
    stalls[:] = [begun, *stalls][:MAX_STALLS]
    return begun, ended
