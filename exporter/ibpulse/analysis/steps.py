"""Finds the beginning of each step of a periodic series by its shape, one step after the other.

The mean period gives the mean step length; the beginnings give the spread, which confidence intervals need. Places
are in samples of the series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.arrays import Bools, Floats

# points per step for comparing shapes, each smoothed over a 24th of the step to average out layers and collectives
MOST_POINTS = 128
SMOOTHED = 24
# number of candidates for the typical step
TRIED = 5
# maximum number of steps averaged into the shape
SHAPE_STEPS = 400
# how far a step may deviate from the period, normally and after a lost step
REACH, LOST_REACH = 0.3, 0.5
# minimum fraction of the shape's variance that a step must share
LEAST_LIKENESS = 0.2
# width of the edge on either side, as a fraction of a step
EDGE = 1 / 8


@dataclass(frozen=True, slots=True)
class Steps:
    """`bounds` (n,) are the places, in samples, at which steps begin; `whole` (n - 1,) is true where the span between
    two bounds is exactly one step. Elsewhere data is missing or the series does not resemble a step.
    """

    bounds: Floats
    whole: Bools


NONE = Steps(np.zeros(0), np.zeros(0, dtype=np.bool_))


def find_steps(values: Floats, period: float) -> Steps:
    """The steps of `values`, rates at equal intervals, NaN where data is missing, with a period of `period` samples.

    A typical step is matched against the whole series, then the mean of all matches is matched again. Its sharpest
    edge, the steepest rise or fall, is then located near each match. The edge is the bound of the step, interpolated
    between samples and accurate to about a tenth of a sample if it is sharp.

    Law: invariant under scaling of the values. The mean length of consecutive whole steps depends only on the first and
    the last bound, so errors of single bounds do not add up.
    """
    fold = max(1, int(period // MOST_POINTS))
    length = round(period / fold)
    signal, known = _fold(values, fold)
    if length < 2 or len(signal) < 4 * length or not known.any():
        return NONE
    signal = _smooth(signal, max(1, round(length / SMOOTHED)))
    first = _most_alike(signal, length)
    shape = signal[first : first + length]
    for _ in range(2):
        places = _follow(_likeness(signal, shape), period / fold, float(first))
        shape = _mean_shape(signal, places, length)
        first = round(places[len(places) // 2])
    return _sharpen(signal, known, places, period / fold, fold)


def _fold(values: Floats, fold: int) -> tuple[Floats, Bools]:
    """Means of `fold` samples each, with missing values interpolated linearly, and a mask of the known ones."""
    cut = values[: len(values) // fold * fold].reshape(-1, fold)
    hole = np.isnan(cut)
    known = np.asarray(~hole.any(axis=1))
    if not known.any():
        return np.zeros(len(cut)), known
    means = np.where(hole, 0.0, cut).mean(axis=1)
    at = np.arange(len(cut))
    return np.interp(at, at[known], means[known]), known


def _smooth(signal: Floats, width: int) -> Floats:
    return np.convolve(signal, np.full(width, 1 / width), "same")


def _most_alike(signal: Floats, length: int) -> int:
    """Among a few places spread over the series, the one whose step matches the others best."""
    places = (len(signal) - length) * np.arange(1, 2 * TRIED, 2) // (2 * TRIED)
    blocks = (len(signal) - length + 1) // length
    found = []
    for place in places:
        likeness = _likeness(signal, signal[place : place + length])
        found.append(np.median(likeness[: blocks * length].reshape(blocks, length).max(axis=1)))
    return int(places[np.argmax(found)])


def _cut(signal: Floats, places: Floats, length: int, margin: int) -> Floats:
    """The series from `margin` before each place to `margin` after its step: (places, length + 2 * margin)."""
    at = places[:, None] + np.arange(-margin, length + margin)
    return np.interp(at, np.arange(len(signal)), signal)


def _mean_shape(signal: Floats, places: Floats, length: int) -> Floats:
    chosen = places[:: -(-len(places) // SHAPE_STEPS)]
    return np.asarray(_cut(signal, chosen, length, 0).mean(axis=0))


def _likeness(signal: Floats, shape: Floats) -> Floats:
    """Fraction of the shape's variance that the series shares with it at each place: 1 for an exact match."""
    squares = np.concatenate(([0.0], np.cumsum(np.square(signal))))
    energy = squares[len(shape) :] - squares[: -len(shape)]
    distance = energy - 2 * np.correlate(signal, shape, "valid") + np.square(shape).sum()
    spread = np.square(shape - shape.mean()).sum()
    return np.asarray(1.0 - distance / spread) if spread > 0 else np.zeros(len(energy))


def _follow(likeness: Floats, period: float, first: float) -> Floats:
    """The best matches of the shape, about a period apart, from `first` to both ends of the series."""
    before = _walk(likeness, -period, first)
    return np.array([*reversed(before), first, *_walk(likeness, period, first)])


def _walk(likeness: Floats, period: float, place: float) -> list[float]:
    found: list[float] = []
    sure = True
    while True:
        reach = abs(period) * (REACH if sure else LOST_REACH)
        place += period
        first, last = round(place - reach), round(place + reach)
        if first < 1 or last > len(likeness) - 2:
            return found
        peak, sure = _peak(likeness, first, last)
        place = peak if sure else place
        if sure:
            found.append(place)


def _peak(likeness: Floats, first: int, last: int) -> tuple[float, bool]:
    """The interpolated place of the highest likeness from `first` to `last`, and whether it is a peak."""
    top = first + int(likeness[first : last + 1].argmax())
    before, here, after = likeness[top - 1 : top + 2].tolist()
    bend = before - 2 * here + after
    if bend >= 0 or not first < top < last:
        return float(top), False
    return top + min(0.5, max(-0.5, (before - after) / (2 * bend))), here >= LEAST_LIKENESS


def _sharpen(signal: Floats, known: Bools, places: Floats, period: float, fold: int) -> Steps:
    """Steps bounded by the sharpest edge of the mean step near each place."""
    length = round(period)
    width = max(1, int(length * EDGE))
    # half a step more on either side, to include an edge at the end of the shape completely
    margin = length // 2 + 2 * width
    inside = places[(places > margin) & (places < len(signal) - length - margin)]
    if not len(inside):
        return NONE
    wide = _cut(signal, inside[:: -(-len(inside) // SHAPE_STEPS)], length, margin).mean(axis=0)
    edge = _steepest(wide, width, margin, margin + length)
    likeness = _likeness(signal, wide[edge - 2 * width : edge + 2 * width])
    found = [_peak(likeness, first, first + 2 * width) for first in _firsts(places + edge - margin, width, likeness)]
    bounds = np.array([place for place, _ in found]) + 2 * width
    near = bounds.astype(np.intp)[:, None] + np.arange(-1, 2)
    sure = np.array([peak for _, peak in found], dtype=np.bool_) & known[np.clip(near, 0, len(known) - 1)].all(axis=1)
    one_step = np.abs(np.diff(bounds) / period - 1) < LOST_REACH
    return Steps(bounds * fold, sure[1:] & sure[:-1] & one_step)


def _firsts(edges: Floats, width: int, likeness: Floats) -> list[int]:
    """Start of the search for the edge's shape, four widths long, near each edge."""
    firsts = np.round(edges).astype(np.intp) - 3 * width
    inside = (firsts >= 1) & (firsts + 2 * width <= len(likeness) - 2)
    return [int(first) for first in firsts[inside]]


def _steepest(shape: Floats, width: int, first: int, end: int) -> int:
    """The place from `first` to before `end` where the means over `width` before and after it differ most."""
    sums = np.concatenate(([0.0], np.cumsum(shape)))
    at = np.arange(first, end)
    contrast = sums[at + width] - 2 * sums[at] + sums[at - width]
    return int(at[np.abs(contrast).argmax()])
