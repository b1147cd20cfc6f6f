"""Where each step of a periodic series begins: found by its shape, one step after the other.

The mean period says how long a step is; the beginnings say how much each differs, which is what an interval needs.
Places are in ticks of the series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.arrays import Bools, Floats

# points of a step at which its shape is compared, each the mean of a 24th of it: layers and collectives vanish
MOST_POINTS = 128
SMOOTHED = 24
# steps that are tried as the shape that others are like
TRIED = 5
# steps of which the shape is the mean
SHAPE_STEPS = 400
# a step may be so much shorter or longer than the period, and after one that was lost
REACH, LOST_REACH = 0.3, 0.5
# part of the variance of the shape that a step must share with it
LEAST_LIKENESS = 0.2
# the part of a step that its edge is compared by, on either side
EDGE = 1 / 8


@dataclass(frozen=True, slots=True)
class Steps:
    """`bounds` (n,) are the places, in ticks, at which steps begin; `whole` (n - 1,) says which of the spans between
    two of them is one step. Others lie at holes, or where the series does not look like a step.
    """

    bounds: Floats
    whole: Bools


NONE = Steps(np.zeros(0), np.zeros(0, dtype=np.bool_))


def find_steps(values: Floats, period: float) -> Steps:
    """The steps of `values`, rates of equal ticks, NaN in holes, whose period is so many ticks.

    A typical step of the series is laid on all others, the mean of all is laid on them again, and its sharpest edge,
    the steepest rise or fall, is then looked for around each place. A bound is where that edge is: between two ticks,
    to about a tenth of a tick where the edge is sharp.

    Law: multiplying the values changes nothing. The mean length of consecutive whole steps depends on the first and
    the last bound alone, so errors of a bound do not add up.
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
    """Means of `fold` ticks each, holes filled by a straight line, and which are known."""
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
    """Of a few places that lie apart, the one whose step is found again best in all others: no pause, no start-up."""
    places = (len(signal) - length) * np.arange(1, 2 * TRIED, 2) // (2 * TRIED)
    blocks = (len(signal) - length + 1) // length
    found = []
    for place in places:
        likeness = _likeness(signal, signal[place : place + length])
        found.append(np.median(likeness[: blocks * length].reshape(blocks, length).max(axis=1)))
    return int(places[np.argmax(found)])


def _cut(signal: Floats, places: Floats, length: int, margin: int) -> Floats:
    """The series from `margin` before each place to `margin` after its step: (places, length + 2 margins)."""
    at = places[:, None] + np.arange(-margin, length + margin)
    return np.interp(at, np.arange(len(signal)), signal)


def _mean_shape(signal: Floats, places: Floats, length: int) -> Floats:
    chosen = places[:: -(-len(places) // SHAPE_STEPS)]
    return np.asarray(_cut(signal, chosen, length, 0).mean(axis=0))


def _likeness(signal: Floats, shape: Floats) -> Floats:
    """Part of the shape's variance that the series from each place on shares with it: 1 where they are the same."""
    squares = np.concatenate(([0.0], np.cumsum(np.square(signal))))
    energy = squares[len(shape) :] - squares[: -len(shape)]
    distance = energy - 2 * np.correlate(signal, shape, "valid") + np.square(shape).sum()
    spread = np.square(shape - shape.mean()).sum()
    return np.asarray(1.0 - distance / spread) if spread > 0 else np.zeros(len(energy))


def _follow(likeness: Floats, period: float, first: float) -> Floats:
    """The places most like the shape, from the first one to both ends of the series, about a period apart."""
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
    """Where the likeness is highest from `first` to `last`, between two places, and whether that is a peak."""
    top = first + int(likeness[first : last + 1].argmax())
    before, here, after = likeness[top - 1 : top + 2].tolist()
    bend = before - 2 * here + after
    if bend >= 0 or not first < top < last:
        return float(top), False
    return top + min(0.5, max(-0.5, (before - after) / (2 * bend))), here >= LEAST_LIKENESS


def _sharpen(signal: Floats, known: Bools, places: Floats, period: float, fold: int) -> Steps:
    """Bounds at the sharpest edge of the mean step near each place."""
    length = round(period)
    width = max(1, int(length * EDGE))
    # half a step more on either side, so that an edge at the end of the shape is seen whole
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
    """Where to begin to look for the shape of the edge, four widths long, near each of the edges."""
    firsts = np.round(edges).astype(np.intp) - 3 * width
    inside = (firsts >= 1) & (firsts + 2 * width <= len(likeness) - 2)
    return [int(first) for first in firsts[inside]]


def _steepest(shape: Floats, width: int, first: int, end: int) -> int:
    """The place from `first` to before `end` before and after which the means over a width differ most."""
    sums = np.concatenate(([0.0], np.cumsum(shape)))
    at = np.arange(first, end)
    contrast = sums[at + width] - 2 * sums[at] + sums[at - width]
    return int(at[np.abs(contrast).argmax()])
