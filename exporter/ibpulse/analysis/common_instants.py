"""Rates of all ports between common instants, from rates between the reads of each port.

The reads of one tick follow each other, so a burst that begins on all ports at once begins within one sample of the
first port and another one of the last. In the sum over the ports, every edge is then spread over the time from the
first to the last read, and the duty cycle and the variation of the sum are too high. Here, each counter is taken to the
mean read time of its tick. Linear interpolation would spread each edge over two samples; instead, a sample that lies
between its neighbours holds the rate of the one up to an edge and that of the other after it, where its own bytes place
the edge. This is exact for traffic that is constant for at least two samples at a time. Bytes only change samples:
their sum stays the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Bools, Counts, Floats
from ibpulse.units import SECOND_NS

EVEN = 0.1
"""Two rates are about the same if they differ by at most this fraction of their sum."""
CROSSES = 0.01
"""A burst goes on in the next sample if that has more than this fraction of its rate."""
NOISE = 4.0
"""An edge is this many times as uncertain as the rates of the two samples of the burst before it differ in time."""
AROUND = 3
"""Samples before and after a read that its edge is placed with."""


def common_rates(
    time_ns: npt.NDArray[np.int64], widths_ns: npt.NDArray[np.int64], valid: Bools, rates: Floats, seconds: Floats
) -> Floats:
    """The rates between the mean read times of the ticks: (ports, 2, ticks).

    All arguments have this shape: the midpoints and the durations of the reads, whether there is one, and the rates of
    the samples that end with them, NaN if missing, with their measured times. Rates stay as they are next to missing
    samples, and at the first four and the last three ticks.
    """
    ticks = rates.shape[2]
    if not rates.size or ticks <= 2 * AROUND + 1:
        return rates
    reads = slice(AROUND, ticks - AROUND)
    times = time_ns.mean(axis=(0, 1)) if valid.all() else _mean_of_valid(time_ns, valid)
    offset = (times - time_ns)[..., reads] / SECOND_NS
    before, after = rates[..., reads], rates[..., AROUND + 1 : ticks - AROUND + 1]
    moved = np.where(offset > 0, after, before) * offset
    # without an edge nearby, the sample in which the common instant lies has one rate
    edges = np.flatnonzero(np.abs(after - before) > EVEN * (after + before))
    row, column = np.divmod(edges, offset.shape[-1])
    place = row * ticks + column + AROUND
    moved.ravel()[edges] = _move_edges(
        offset.ravel()[edges], widths_ns.ravel()[place] / SECOND_NS, place, rates.ravel(), seconds.ravel()
    )
    samples, spans = slice(AROUND + 1, ticks - AROUND), np.diff(times[reads]) / SECOND_NS
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (rates[..., samples] * seconds[..., samples] + np.diff(moved)) / spans
    out = rates.copy()
    np.copyto(out[..., samples], found, where=np.isfinite(found) & (spans > 0))
    return out


def _mean_of_valid(time_ns: npt.NDArray[np.int64], valid: Bools) -> Floats:
    count = np.count_nonzero(valid, axis=(0, 1))
    return np.asarray(np.where(valid, time_ns, 0).sum(axis=(0, 1)) / np.maximum(count, 1))


def _move_edges(offset: Floats, width: Floats, place: Counts, rates: Floats, seconds: Floats) -> Floats:
    """Bytes between reads and the times `offset` after them, negative before them; NaN where samples are missing.

    The reads have a duration `width`, and end the samples at these places of `rates` and `seconds`.
    """
    later = offset > 0
    step, distance = np.where(later, 1, -1), np.abs(offset)
    # the sample in which the instant lies, the one on the other side of the read, and the one beyond
    inside = place + later
    own, near, far, length = rates[inside], rates[inside - step], rates[inside + step], seconds[inside]
    # the burst beside an edge in the sample, and the sample of the burst before that
    towards = np.where(near > far, -step, step)
    burst, further = rates[inside + towards], rates[inside + 2 * towards]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (own - far) / (near - far)
        noise = np.minimum(width / 2, NOISE * length * np.abs(burst - further) / burst)
    split = (share >= 0) & (share <= 1) & (further > CROSSES * burst)
    edge = np.where(split, share, 0.0) * length
    distance = np.where(np.abs(distance - edge) < noise, edge, distance)
    parts = near * np.minimum(distance, edge) + far * np.maximum(distance - edge, 0.0)
    # otherwise a burst either goes on across the read, or ends near it at an unknown time
    rest = np.where((own > near) & (near > CROSSES * own), own, near) * distance
    found = np.minimum(np.where(split, parts, rest), own * length)
    return np.where(np.abs(offset) < length, np.where(later, found, -found), np.nan)
