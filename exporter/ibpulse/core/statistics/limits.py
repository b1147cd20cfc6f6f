"""The signs of limits of a port from its samples and the readings of its counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, running_sum
from ibpulse.core.signals import MEANINGS
from ibpulse.core.statistics import signs
from ibpulse.core.statistics.gains import SignalReadings
from ibpulse.core.statistics.sums import usual_peak

EVERY_NS = 100 * MILLISECOND_NS
MAX_APART_NS = SECOND_NS
"""Readings that are further apart say too little about the samples between them."""
STATE_NS = SECOND_NS
USUAL_TICK_BYTES = 8
"""Bytes that a port can send during one count of its waiting counter (NVIDIA, ibdiagnet manual 2.13: tick 7)."""
ROWS = {
    "waiting": signs.WAITED_SECONDS,
    "marked": signs.NOTIFIED,
    "receiver": signs.REFUSED,
    "lost": signs.LOST,
    "link": signs.ERRORS,
}
TELLING = (signs.WAITED_SECONDS, signs.NOTIFIED)
RESENT = frozenset(
    {"roce_adp_retransmits", "hw_retrans_segs", "hw_rc_resend", "hw_tx_rdma_retx_pkts", "hw_retrans_pkts"}
)
"""Counters of packets that are sent again; the others of losses count what made that necessary."""
PACKET_BYTES = 4096
"""Of a full packet, on InfiniBand and most RoCE networks."""
UNIT_ROWS = {"timeouts": signs.TIMEOUTS, "retrainings": signs.FLAPS}


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
) -> signs.Signs:
    """The signs of a port at its samples.

    `tick_bytes` is the length of a count of its waiting counter where that is certain, `peak` its usual peak where it
    is known from more samples than these.
    """
    lines = samples.line[np.isfinite(samples.line)]
    line = float(lines.max()) if len(lines) else np.nan
    whole = line if np.isnan(samples.whole_line) else samples.whole_line
    usual = samples.usual_peak() if peak is None else peak
    transmit = signs.Transmit(samples.rates, samples.seconds, usual, line, whole, active_bytes_per_second)
    return signs.find_signs(transmit, place_readings(samples, signals, tick_bytes))


def place_readings(samples: RailSamples, signals: SignalReadings, tick_bytes: int | None = None) -> signs.Readings:
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
    gained = np.full((signs.GAINS, len(bounds) - 1), np.nan)
    if near.any():
        found = np.searchsorted(bounds, place[inside][:-1][near])
        gained[:, found] = _sum_gains(signals, inside, samples.infiniband)[:, near]
    line = np.append(samples.line, np.nan)[bounds[1:] - 1]
    gained[signs.WAITED_SECONDS] *= (tick_bytes or USUAL_TICK_BYTES) / np.where(line > 0, line, np.nan)
    went_down = np.concatenate(([False], samples.up[:-1] & ~samples.up[1:]))[:count]
    gained[signs.FLAPS] = np.nan_to_num(gained[signs.FLAPS]) + signs.sums_between(went_down, bounds)
    return signs.Readings(bounds, gained, line, tick_bytes is not None, _unsure(samples, bounds))


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
    out = np.full((signs.GAINS, len(inside) - 1), np.nan)
    every = signals.gains().gained
    for column, signal in enumerate(signals.signals):
        row = row_of(signal.name, infiniband)
        if row is None:
            continue
        gained = np.add.reduceat(every[: inside[-1] + 1, column], inside[:-1] + 1)
        if row in TELLING:
            gained[signals.counters[inside[1:], column] == 0] = np.nan
        gained *= PACKET_BYTES if row == signs.RESENT_BYTES else 1
        out[row] = np.where(np.isnan(out[row]), gained, out[row] + np.nan_to_num(gained))
    return out


def row_of(name: str, infiniband: bool = True) -> int | None:
    """The row of what a counter gains; None if it says nothing about what its port transmits.

    On Ethernet, where pauses are counted elsewhere, a counter of waiting can stay 0.
    """
    meaning = MEANINGS[name]
    if name in RESENT:
        return signs.RESENT_BYTES
    if meaning.of_peers or (meaning.sign == "waiting" and not infiniband):
        return None
    return UNIT_ROWS.get(meaning.unit, ROWS[meaning.sign])
