"""Signs of what limited the transmit direction of a port, between two readings of its congestion counters.

A sign is no cause: a port does not see the switches, the other tenants of the fabric, or what the other end does with
the data. Of several signs the most specific one counts, in this order: `link`, `receiver`, `loss`, `path`. `source` is
the absence of the others where it means something: the port was slower than usual, and a counter that would have shown
congestion did not move. A counter that is absent, full or was reset is NaN here and never means calm. Everything else
is unknown, for one of three reasons: the rate was the usual peak, so nothing held it back; a counter moved, but too
little; or no counter could tell.

The thresholds, which docs/congestion.md repeats for users. The rate of an interval is the mean of its active samples:

- `BELOW`: a rate within a tenth of the usual peak is that peak: it differs by a few percent from step to step.
- `WAITED`: a wait of less than a tenth of the active time is too short to bring a rate below that.
- `EXPLAINED`: a wait is a sign of the path if it is at least half of the shortfall, and calm if it is at most a tenth.
- `NOTIFIED_SECONDS`: a rate that a notification has cut recovers half of the cut in each period of 300 µs (DCQCN, the
  default of NVIDIA), so notifications hold it down if there is one per period. Stray marks of other traffic are rarer
  than one per 10 ms.
- `UNCUT`: a sample of 10 ms above this part of the usual peak was cut in at most a tenth of these periods. Where there
  is one, notifications came in moments, and the slow samples may be those of a slow source. A rate that is within this
  part of what it was when no counter moved, or the other way round, is not held down by notifications either.
- `EVENT_SECONDS`: refusals, lost packets and errors count if there is one per 10 ms of active time, as a queue pair
  stops for up to some milliseconds after each.
- `RESENT`: packets that are sent again count from a twentieth of the bytes on, since going back costs about as much
  time again.
- One timeout counts, because the shortest timeout in use is longer than a sample. It is counted when the timer ends, so
  it also belongs to the traffic before the silence.
- One link that went down or recovered counts, also for the traffic after a silence, and for timeouts up to
  `RECOVERY_INTERVALS` later.
- `TRAINED`: a link that trained down limits a rate of at least 0.8 of its line rate, which large messages reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, running_sum
from ibpulse.core.signals import MEANINGS
from ibpulse.core.statistics.gains import SignalReadings
from ibpulse.core.statistics.moments import quotient
from ibpulse.core.statistics.steps.runs import Labels
from ibpulse.core.statistics.sums import usual_peak

NOTHING, SOURCE, PATH, RECEIVER, LOSS, LINK, WEAK, PEAK, BLIND = range(9)
CODES = 9
SIGNS = ("source", "path", "receiver", "loss", "link", "unknown")
NAMES = ("", "source", "path", "receiver", "loss", "link", "unknown", "unknown", "unknown")
"""The name of each code."""
LETTERS = ".sprlk-=?"
"""The letter of each code in a strip."""

# rows of what the counters gained
WAITED_SECONDS, NOTIFIED, REFUSED, LOST, RESENT_BYTES, TIMEOUTS, FLAPS, ERRORS, FAR_FULL = range(9)
GAINS = 9

BELOW = 0.9
WAITED = 0.1
EXPLAINED = 0.5
CALM = 0.1
NOTIFIED_SECONDS = 0.0003
UNCUT = 0.95
STRAY_SECONDS = 0.01
EVENT_SECONDS = 0.01
RESENT = 0.05
RECOVERY_INTERVALS = 10
LEAST_EVENTS = 2
TRAINED = 0.8
LONGEST_TICK = 16.0
"""A tick of a waiting counter, where its length is uncertain, is at most this many times as long as assumed.

Adapters count once per 8 bytes of the port, older ones once per 32 bytes of each of 4 lanes.
"""
MIN_KNOWN = 0.5
EVERY_NS = 100 * MILLISECOND_NS
MAX_APART_NS = SECOND_NS
"""Readings that are further apart say too little about the samples between them."""
STATE_NS = SECOND_NS
USUAL_TICK_BYTES = 8
"""Bytes that a port can send during one count of its waiting counter (NVIDIA, ibdiagnet manual 2.13: tick 7)."""
ROWS = {
    "waiting": WAITED_SECONDS,
    "marked": NOTIFIED,
    "receiver": REFUSED,
    "lost": LOST,
    "link": ERRORS,
}
TELLING = (WAITED_SECONDS, NOTIFIED)
RESENT_COUNTERS = frozenset(
    {"roce_adp_retransmits", "hw_retrans_segs", "hw_rc_resend", "hw_tx_rdma_retx_pkts", "hw_retrans_pkts"}
)
"""Counters of packets that are sent again; the others of losses count what made that necessary."""
PACKET_BYTES = 4096
"""Of a full packet, on InfiniBand and most RoCE networks."""
UNIT_ROWS = {"timeouts": TIMEOUTS, "retrainings": FLAPS}


@dataclass(frozen=True, slots=True)
class Transmit:
    """The transmit direction of a port at consecutive samples.

    `rates` (samples,) are bytes per second, NaN for missing data; `seconds` (samples,) the measured time of each.
    `usual_peak` is that of the port while its link is at `usual_line`; `whole_line` is the line rate of the link when
    nothing is wrong with it. All are NaN if unknown.
    """

    rates: Floats
    seconds: Floats
    usual_peak: float
    usual_line: float
    whole_line: float
    active_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Readings:
    """What the counters of a port gained between consecutive readings.

    Interval i has the samples from `bounds[i]` to before `bounds[i + 1]`; (intervals + 1,). `gained` (GAINS, intervals)
    is NaN where it is not known. `line` (intervals,) is the line rate in bytes per second, NaN if unknown. The waiting
    time is exact if `tick_certain`, otherwise an assumption. FAR_FULL is of the receiving end, where that is known:
    packets for which it had no buffer, and notifications that it sent without a mark from the network. `unsure`
    (intervals,) is where the link may have been in another state, None for nowhere.
    """

    bounds: Counts
    gained: Floats
    line: Floats
    tick_certain: bool = False
    unsure: Bools | None = None

    @property
    def known_end(self) -> int:
        """The sample after the last interval of which a counter is known; 0 if there is none."""
        # interruptions are known from the state of the link, too
        told = ~np.isnan(np.delete(self.gained, FLAPS, axis=0)).all(axis=0)
        return int(self.bounds[1:][told].max(initial=0))


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of a port.

    `codes` (intervals,) are NOTHING where it neither transmits nor waits. `weights` (samples,) are the seconds in
    which each sample transmits or waits.
    """

    codes: Labels
    weights: Floats
    readings: Readings

    def of_samples(self) -> Labels:
        """The code of the interval of each sample: (samples,), NOTHING where it does not transmit."""
        bounds = self.readings.bounds
        out = np.zeros(len(self.weights), dtype=np.int8)
        out[bounds[0] : bounds[-1]] = np.repeat(self.codes, np.diff(bounds))
        return np.where(self.weights > 0, out, np.int8(NOTHING))

    def only(self, kept: Bools) -> Signs:
        """Those of the kept samples (samples,); the others count as if nothing was sent."""
        return replace(self, weights=np.where(kept, self.weights, 0.0))

    def cut(self, first: int, end: int) -> Signs:
        """Those of the samples from `first` to before `end`; an interval that is cut gained its part of the time."""
        bounds, weights = np.clip(self.readings.bounds, first, end), self.weights[first:end]
        part = quotient(sums_between(self._within(first, end), self.readings.bounds), self._seconds())
        readings = replace(self.readings, bounds=bounds - first, gained=self.readings.gained * np.nan_to_num(part))
        return Signs(self.codes, weights, readings)

    def strip(self, ticks: int) -> str:
        """The letters of bins of `ticks` samples: the sign with the most time in each."""
        seconds = np.zeros((-(-len(self.weights) // ticks), CODES))
        np.add.at(seconds, (np.arange(len(self.weights)) // ticks, self.of_samples()), self.weights)
        return "".join(LETTERS[code] for code in seconds.argmax(axis=1))

    def tally(self) -> Floats:
        """The seconds of each sign, and what the counters gained in them: (CODES, 1 + GAINS).

        What is not known adds nothing.

        Law: the tally of a span is the sum of the tallies of its parts.
        """
        out = np.zeros((CODES, 1 + GAINS))
        np.add.at(out, self.codes, np.concatenate((self._seconds()[None], np.nan_to_num(self.readings.gained))).T)
        return out

    def _seconds(self) -> Floats:
        return sums_between(self.weights, self.readings.bounds)

    def _within(self, first: int, end: int) -> Floats:
        kept = np.zeros_like(self.weights)
        kept[first:end] = self.weights[first:end]
        return kept


def find_signs(transmit: Transmit, readings: Readings) -> Signs:
    """The signs of a port in each interval between two readings."""
    seen = _look(transmit, readings)
    gained, often = readings.gained, seen.often
    waited = gained[WAITED_SECONDS]
    waits = (waited >= WAITED * seen.active) & (waited >= EXPLAINED * seen.short * seen.active)
    refused, notified = often(REFUSED) | often(FAR_FULL), often(NOTIFIED, NOTIFIED_SECONDS) & seen.steady
    lost = ((gained[TIMEOUTS] >= 1) | often(LOST) | (gained[RESENT_BYTES] >= RESENT * seen.moved)) & seen.below
    timed_out = (gained[TIMEOUTS] >= 1) | seen.timed_out
    # in order: the first that holds counts
    signs = (
        (LINK, seen.trained_down | seen.flapped | (often(ERRORS) & seen.below) | (timed_out & seen.recovers)),
        (RECEIVER, refused & seen.below),
        (LOSS, lost | seen.timed_out),
        (PATH, waits | (notified & seen.below)),
        (PEAK, seen.at_peak),
        (BLIND, ~seen.below | ~seen.told),
        (SOURCE, seen.calm),
    )
    codes = np.select([holds for _, holds in signs], [code for code, _ in signs], WEAK)
    # the rate is that of before the notifications, which therefore did not hold it down
    calm = np.maximum.accumulate(np.where(codes == SOURCE, np.arange(len(codes)), -1))
    before = seen.rate[calm]
    as_before = (calm >= 0) & (seen.rate >= UNCUT * before) & (seen.rate <= before / UNCUT)
    codes[(codes == PATH) & ~waits & as_before] = WEAK
    if readings.unsure is not None:
        codes[readings.unsure & (codes == SOURCE)] = WEAK
    codes[~seen.known] = BLIND
    codes[seen.busy <= 0] = NOTHING
    return Signs(codes.astype(np.int8), seen.weights, readings)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One interval per element: its active and busy seconds, the shortfall of the rate, and what was observed.

    `steady`: there are several active samples, and each was cut. `told`: a waiting or marking counter could have moved;
    `calm`: it did not. `timed_out`: a timeout ended the silence after the interval; `recovers`: the link went down not
    long before.
    """

    active: Floats
    moved: Floats
    busy: Floats
    weights: Floats
    rate: Floats
    short: Floats
    below: Bools
    at_peak: Bools
    known: Bools
    trained_down: Bools
    flapped: Bools
    recovers: Bools
    timed_out: Bools
    steady: Bools
    told: Bools
    calm: Bools
    gained: Floats

    def often(self, row: int, every_seconds: float = EVENT_SECONDS) -> Bools:
        """Whether events happened often enough to hold up the traffic: on average once in this active time."""
        least = np.maximum(LEAST_EVENTS, self.active / every_seconds)
        return np.asarray(self.gained[row] >= least)


def _look(transmit: Transmit, readings: Readings) -> _Seen:
    rates, bounds, gained = transmit.rates, readings.bounds, readings.gained
    active = rates > transmit.active_bytes_per_second
    seconds, moved = transmit.seconds, np.where(active, rates, 0.0) * transmit.seconds
    # a burst begins and ends within a sample, which is slower than the burst
    inner = active & np.append(False, active[:-1]) & np.append(active[1:], False)

    def total(values: Floats | Bools) -> Floats:
        # one at a time, because a recording can have millions of samples
        return sums_between(values, bounds)

    length, known, active_seconds = total(seconds), total(~np.isnan(rates)), total(active * seconds)
    within = quotient(total(inner * moved), total(inner * seconds))
    active_samples, uncut = total(active), total(rates >= UNCUT * transmit.usual_peak)
    moved = total(moved)
    waited = np.nan_to_num(gained[WAITED_SECONDS])
    stalled = (active_seconds <= 0) & (waited >= WAITED * length) & (length > 0)
    weights = np.where(active, seconds, 0.0)
    spread = np.where(stalled, np.minimum(quotient(waited, length), 1.0), 0.0)
    weights[bounds[0] : bounds[-1]] += np.repeat(spread, np.diff(bounds)) * seconds[bounds[0] : bounds[-1]]
    remaining = quotient(readings.line, np.full(len(readings.line), transmit.usual_line))
    peak = transmit.usual_peak * np.where(np.isnan(remaining), 1.0, np.minimum(remaining, 1.0))
    rate = np.where(np.isnan(within), quotient(moved, active_seconds), within)
    short = np.nan_to_num(np.clip(1.0 - quotient(rate, peak), 0.0, 1.0))
    # on Ethernet, congestion shows as notifications, and a counter of waiting can stay 0
    telling = WAITED_SECONDS if np.isnan(gained[NOTIFIED]).all() else NOTIFIED
    most = waited * (1.0 if readings.tick_certain else LONGEST_TICK)
    return _Seen(
        active=active_seconds,
        moved=moved,
        busy=sums_between(weights, bounds),
        weights=weights,
        rate=rate,
        short=short,
        below=rate < BELOW * peak,
        at_peak=rate >= BELOW * peak,
        known=known >= MIN_KNOWN * np.diff(bounds),
        trained_down=(readings.line < transmit.whole_line) & (rate >= TRAINED * readings.line),
        flapped=_since_transmit(gained[FLAPS], active_seconds > 0) >= 1,
        recovers=_recently(gained[FLAPS], RECOVERY_INTERVALS) >= 1,
        timed_out=_after_silence(gained[TIMEOUTS], active_seconds > 0, active, bounds) >= 1,
        steady=(active_samples > 1) & (uncut == 0),
        told=~np.isnan(gained[telling]),
        calm=(most <= CALM * short * active_seconds)
        & (np.nan_to_num(gained[NOTIFIED]) <= active_seconds / STRAY_SECONDS),
        gained=gained,
    )


def sums_between(values: Floats | Bools, bounds: Counts) -> Floats:
    """The sum of the values (samples,) from each bound to before the next: (bounds - 1,)."""
    return np.diff(running_sum(values.astype(np.float64))[bounds])


def _since_transmit(events: Floats, transmits: Bools) -> Floats:
    """The events of each interval and of those without traffic directly before it."""
    total = np.cumsum(np.nan_to_num(events))
    before = np.concatenate(([0.0], np.maximum.accumulate(np.where(transmits, total, 0.0))[:-1]))
    return total - before


def _recently(events: Floats, intervals: int) -> Floats:
    """The events of each interval and of so many before it."""
    total = np.concatenate((np.zeros(intervals + 1), np.cumsum(np.nan_to_num(events))))
    return total[intervals + 1 :] - total[: -intervals - 1]


def _after_silence(events: Floats, transmits: Bools, active: Bools, bounds: Counts) -> Floats:
    """The events from each interval, if the port is silent at its end, up to the next one in which it transmits."""
    count = len(events)
    total = np.concatenate(([0.0], np.cumsum(np.nan_to_num(events)), [0.0]))
    total[-1] = total[-2]
    # the next interval that transmits, or the last one
    ahead = np.where(transmits, np.arange(count), count - 1)
    following = np.append(np.minimum.accumulate(ahead[::-1])[::-1][1:], count - 1)
    ends_silent = ~np.append(active, False)[np.maximum(bounds[1:] - 1, 0)] & (np.diff(bounds) > 0)
    found = total[following + 1] - total[np.arange(count) + 1]
    return np.where(transmits & ends_silent, found, 0.0)


@dataclass(frozen=True, slots=True)
class RailSamples:
    """The transmit samples of a port from wall time `start_ns` on, each (samples,).

    `rates` are bytes per second, NaN for missing data; `seconds` their measured times, `line` the line rates, NaN if
    unknown; `up` is whether the link is ACTIVE. `whole_line` is the line rate when nothing is wrong with the link, NaN
    for the highest of these.
    """

    start_ns: int
    interval_ns: int
    rates: Floats
    seconds: Floats
    line: Floats
    up: Bools
    infiniband: bool
    whole_line: float = np.nan

    def usual_peak(self) -> float:
        """The upper quartile of the peaks of whole seconds with traffic; NaN without any."""
        ticks = SECOND_NS // self.interval_ns
        whole = np.nan_to_num(self.rates[: len(self.rates) // ticks * ticks]).reshape(-1, ticks)
        peaks = whole.max(axis=1, initial=0.0)
        return usual_peak(peaks, peaks)


def find_rail_signs(
    samples: RailSamples,
    signals: SignalReadings,
    active_bytes_per_second: float,
    tick_bytes: int | None = None,
    peak: float | None = None,
) -> Signs:
    """The signs of a port at its samples.

    `tick_bytes` is the length of a count of its waiting counter where that is certain, `peak` its usual peak where it
    is known from more samples than these.
    """
    lines = samples.line[np.isfinite(samples.line)]
    line = float(lines.max()) if len(lines) else np.nan
    whole = line if np.isnan(samples.whole_line) else samples.whole_line
    usual = samples.usual_peak() if peak is None else peak
    transmit = Transmit(samples.rates, samples.seconds, usual, line, whole, active_bytes_per_second)
    return find_signs(transmit, place_readings(samples, signals, tick_bytes))


def place_readings(samples: RailSamples, signals: SignalReadings, tick_bytes: int | None = None) -> Readings:
    """The readings of a port between its samples, at least 100 ms and one sample apart.

    Elsewhere, where gains are unknown, intervals are 100 ms, or one sample if that is longer.
    """
    count = len(samples.rates)
    place = (signals.wall_ns - samples.start_ns) // samples.interval_ns + 1
    inside = np.flatnonzero((place >= 0) & (place <= count))
    # of the readings of one tenth of a second, or after one sample, the first
    tenths = np.maximum.accumulate(signals.wall_ns[inside] // EVERY_NS)
    inside = inside[(np.diff(tenths, prepend=-1) > 0) & (np.diff(place[inside], prepend=-1) > 0)]
    near = np.diff(signals.wall_ns[inside]) <= MAX_APART_NS
    grid = np.arange(0, count, max(1, EVERY_NS // samples.interval_ns))
    within = np.pad(near, 1)[np.searchsorted(place[inside], grid, side="right")] if len(inside) else False
    edges = np.zeros(count + 1, dtype=np.bool_)
    edges[[0, count]] = edges[place[inside]] = True
    edges[grid] |= ~np.broadcast_to(within, len(grid))
    bounds = np.flatnonzero(edges)
    gained = np.full((GAINS, len(bounds) - 1), np.nan)
    if near.any():
        found = np.searchsorted(bounds, place[inside][:-1][near])
        gained[:, found] = _sum_gains(signals, inside, samples.infiniband)[:, near]
    line = np.append(samples.line, np.nan)[bounds[1:] - 1]
    gained[WAITED_SECONDS] *= (tick_bytes or USUAL_TICK_BYTES) / np.where(line > 0, line, np.nan)
    went_down = np.concatenate(([False], samples.up[:-1] & ~samples.up[1:]))[:count]
    gained[FLAPS] = np.nan_to_num(gained[FLAPS]) + sums_between(went_down, bounds)
    return Readings(bounds, gained, line, tick_bytes is not None, _unsure(samples, bounds))


def _unsure(samples: RailSamples, bounds: Counts) -> Bools:
    """Whether the state of the link was found to be another one within the next second: it is read once a second."""
    count, reach = len(samples.rates), STATE_NS // samples.interval_ns
    line = np.nan_to_num(samples.line)
    changed = np.concatenate(([False], (samples.up[1:] != samples.up[:-1]) | (line[1:] != line[:-1])))[:count]
    total = running_sum(changed)
    return np.asarray(total[np.minimum(bounds[1:] + reach, count)] > total[np.minimum(bounds[:-1], count)])


def _sum_gains(signals: SignalReadings, inside: Counts, infiniband: bool) -> Floats:
    """What the signals of each row gained between the readings `inside`: (GAINS, readings - 1), NaN if none is known.

    One loss can move several counters. A counter of congestion that is 0 has never counted, and may never do so: pauses
    of Ethernet are in none of them, and notifications need switches that mark.
    """
    out = np.full((GAINS, len(inside) - 1), np.nan)
    every = signals.gains().gained
    for column, signal in enumerate(signals.signals):
        row = row_of(signal.name, infiniband)
        if row is None:
            continue
        gained = np.add.reduceat(every[: inside[-1] + 1, column], inside[:-1] + 1)
        if row in TELLING:
            gained[signals.counters[inside[1:], column] == 0] = np.nan
        gained *= PACKET_BYTES if row == RESENT_BYTES else 1
        out[row] = np.where(np.isnan(out[row]), gained, out[row] + np.nan_to_num(gained))
    return out


def row_of(name: str, infiniband: bool = True) -> int | None:
    """The row of what a counter gains; None if it says nothing about what its port transmits.

    On Ethernet, where pauses are counted elsewhere, a counter of waiting can stay 0.
    """
    meaning = MEANINGS[name]
    if name in RESENT_COUNTERS:
        return RESENT_BYTES
    if meaning.of_peers or (meaning.sign == "waiting" and not infiniband):
        return None
    return UNIT_ROWS.get(meaning.unit, ROWS[meaning.sign])
