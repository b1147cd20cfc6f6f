"""Quantiles equal to those of `numpy.quantile` bit for bit, without importing `numpy.ma`.

`numpy.quantile` imports it at the first use, and the daemon would keep 1 MB of code that it never runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ibpulse.core.arrays import Floats


def quantile(values: Floats, part: float) -> float:
    """The quantile `part`, 0 to 1, of at least one value (values,); see `quantiles`."""
    return quantiles(values, [part])[0]


def quantiles(values: Floats, parts: Sequence[float]) -> list[float]:
    """The quantile at each of `parts`, 0 to 1, of at least one value (values,); NaN if a value is NaN.

    Values between two of the sorted ones are interpolated linearly. Source: Hyndman and Fan, 1996, definition 7.

    Raises:
        IndexError: there is no value.
    """
    last = len(values) - 1
    places = [part * last for part in parts]
    befores = [math.floor(place) if place < last else -1 for place in places]
    afters = [before + 1 if before >= 0 else -1 for before in befores]
    # NaN is sorted behind all numbers
    ordered = np.partition(values, sorted({0, -1, *befores, *afters}))
    if math.isnan(ordered[-1]):
        return [math.nan] * len(parts)
    return [
        _interpolate(float(ordered[before]), float(ordered[after]), place - before)
        for place, before, after in zip(places, befores, afters, strict=True)
    ]


def lower_quantile(values: Floats, part: float) -> float:
    """The largest value at or below the quantile `part`, 0 to 1, of at least one value (values,); NaN if one is NaN.

    Raises:
        IndexError: there is no value.
    """
    place = math.floor(part * (len(values) - 1))
    ordered = np.partition(values, (place, -1))
    return math.nan if math.isnan(ordered[-1]) else float(ordered[place])


def _interpolate(before: float, after: float, part: float) -> float:
    """The value at `part` of the way between two, computed from the nearer one, as numpy does."""
    step = after - before
    return before + step * part if part < 0.5 else after - step * (1 - part)
