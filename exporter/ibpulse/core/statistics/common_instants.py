"""Rates of all ports between common instants, from rates between the reads of each port.

The reads of one tick follow each other, so a burst that begins on all ports at once begins within one sample of the
first port and another one of the last. In the sum over the ports, every edge is then spread over the time from the
first to the last read, and the duty cycle and the variation of the sum are too high. Here, each counter is taken to the
mean read time of its tick. Linear interpolation would spread each edge over two samples; instead, a sample that lies
between its neighbours holds the rate of the one up to an edge and that of the other after it, where its own bytes place
the edge. This is exact for traffic that is constant for at least two samples at a time. Bytes only change samples:
their sum stays the same.

A counter has its value at any moment of its read, so its edge may be placed too early or too late. A burst that begins
on all ports just after a common instant would seem to begin before it on some of them, and make a silent sample an
active one. Where edges are too near to the instant to tell, all of them together decide on which side they are; if
even these cannot tell, at the instant.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats

EVEN = 1.2
"""Two rates are about the same if none is higher than this multiple of the other one."""
CROSSES = 0.01
"""A burst goes on in the next sample if that has more than this fraction of its rate."""
AROUND = 3
"""Samples before and after a read that its edge is placed with."""


def common_rates(
    time_ns: npt.NDArray[np.int64], stamps: npt.NDArray[np.int64], valid: Bools, rates: Floats, seconds: Floats
) -> Floats:
    """The rates between the mean read times of the ticks: (ports, 2, ticks).

    All arguments have this shape: the midpoints of the reads, whether there is one, and the rates of the samples that
    end with them, NaN if missing, with their measured times; except for `stamps`, which are as in `Timing`. Rates stay
    as they are where no edge is near, next to missing samples, and at the first four and the last three ticks.
    """
    out, ticks = rates.copy(), rates.shape[2]
    if not rates.size or ticks < 2 * AROUND + 2:
        return out
    edges = _find_edges(rates[..., AROUND : ticks - AROUND], rates[..., AROUND + 1 : ticks - AROUND + 1])
    # only the samples on both sides of an edge change
    counter, tick = np.divmod(np.flatnonzero(edges[..., 1:] | edges[..., :-1]), edges.shape[2] - 1)
    tick += AROUND + 1
    ends = counter * ticks + tick
    times = time_ns.mean(axis=(0, 1)) if valid.all() else _mean_of_valid(time_ns, valid)
    span = (times[tick] - times[tick - 1]) / SECOND_NS
    # the reads at their ends and at their beginnings
    touched = np.zeros(rates.size, dtype=np.bool_)
    touched[ends] = touched[ends - 1] = True
    places = np.flatnonzero(touched)
    tick = places % ticks
    offset = (times[tick] - time_ns.ravel()[places]) / SECOND_NS
    widths = (np.abs(np.diff(stamps, axis=2)) / SECOND_NS).swapaxes(1, 2).ravel()
    moved = np.zeros(rates.size)
    moved[places] = _moved_bytes(offset, places, tick, rates.ravel(), seconds.ravel(), widths)
    old = rates.ravel()[ends]
    with np.errstate(divide="ignore", invalid="ignore"):
        new = (old * seconds.ravel()[ends] + moved[ends] - moved[ends - 1]) / span
    out.ravel()[ends] = np.where(np.isfinite(new) & (span > 0), new, old)
    return out


def _find_edges(before: Floats, after: Floats) -> Bools:
    """Whether the rates before and after each read differ."""
    # few arrays at a time, because new memory costs more than arithmetic
    limit = before * EVEN
    edges = after > limit
    edges |= before > np.multiply(after, EVEN, out=limit)
    return np.asarray(edges)


def _mean_of_valid(time_ns: npt.NDArray[np.int64], valid: Bools) -> Floats:
    count = np.count_nonzero(valid, axis=(0, 1))
    return np.asarray(np.where(valid, time_ns, 0).sum(axis=(0, 1)) / np.maximum(count, 1))


def _moved_bytes(offset: Floats, place: Counts, tick: Counts, rates: Floats, seconds: Floats, widths: Floats) -> Floats:
    """Bytes between reads and the times `offset` after them, negative before them; NaN where samples are missing.

    The reads are of these ticks, have these places in `widths`, which are their durations, and end the samples at the
    same places of `rates` and `seconds`.
    """
    later = offset > 0
    step, distance = np.where(later, 1, -1), np.abs(offset)
    # the sample in which the instant lies, the one on the other side of the read, and the one beyond
    inside = place + later
    own, near, far, length = rates[inside], rates[inside - step], rates[inside + step], seconds[inside]
    # the burst beside an edge in the sample, which has a rate for two samples, or else one
    fell = near > far
    towards = np.where(fell, -step, step)
    burst, further = rates[inside + towards], rates[inside + 2 * towards]
    even = (burst <= EVEN * further) & (further <= EVEN * burst)
    level = np.where(even, (burst + further) / 2, burst)
    near, far = np.where(fell, level, near), np.where(fell, far, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (own - far) / (near - far)
    split = (share >= 0) & (share <= 1) & (further > CROSSES * burst)
    share = np.where(split, share, 0.0)
    edge = share * length
    # the edge follows from the read between it and the burst, and from the rate up to a read in the burst
    busy, read, count = np.where(fell, share, 1 - share), inside - (towards < 0), np.where(even, 2, 1)
    doubt = ((1 + busy / count) * widths[read] + busy / count * widths[read + count * towards]) / 2
    doubtful = split & (np.abs(distance - edge) < doubt)
    # the bursts have something on the other side of the instant only if it is more than what errors add up to, as far
    # as the two samples of each tell
    beyond = np.where(doubtful, np.where(fell, edge - distance, distance - edge) * burst, 0.0)
    error = np.where(doubtful & even, np.minimum(doubt * burst, length * np.abs(burst - further)), 0.0)
    none = doubtful & (np.bincount(tick, beyond) <= np.sqrt(np.bincount(tick, error**2)))[tick]
    distance = np.where(none, edge, distance)
    parts = near * np.minimum(distance, edge) + far * np.maximum(distance - edge, 0.0)
    # otherwise a burst either goes on across the read, or ends near it at an unknown time
    rest = np.where((own > near) & (near > CROSSES * own), own, near) * distance
    found = np.minimum(np.where(split, parts, rest), own * length)
    return np.where(np.abs(offset) < length, np.where(later, found, -found), np.nan)
