"""Time-weighted sums of samples, the statistics derived from them, and quantiles.

Sums can be added over seconds, ports and restarts; statistics are computed from them at the end. Each sample is
weighted by the time it covers; therefore the gauges agree with PromQL over the corresponding counters.

Quantiles equal those of `numpy.quantile` bit for bit, which would import `numpy.ma`: 1 MB of code that the daemon never
runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Floats


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


# fields of the last axis of sums
COUNT, SECONDS, FIRST, SECOND = range(4)
FIELDS = 4


def weighted_sums(values: Floats, seconds: Floats, chosen: Bools) -> Floats:
    """Sums of the chosen samples over the last axis: (..., 4) as COUNT, SECONDS, FIRST (v dt) and SECOND (v² dt).

    Law: the sums of a span are the sum of the sums of its parts.
    """
    weight = np.where(chosen, seconds, 0.0)
    value = np.where(chosen, values, 0.0)
    first = value * weight
    out = np.empty((*values.shape[:-1], FIELDS))
    out[..., COUNT] = np.count_nonzero(chosen, axis=-1)
    out[..., SECONDS] = weight.sum(axis=-1)
    out[..., FIRST] = first.sum(axis=-1)
    out[..., SECOND] = np.einsum("...i,...i->...", first, value)
    return out


def mean(sums: Floats) -> Floats:
    """Time-weighted mean from sums (..., 4); NaN if they cover no time."""
    return quotient(sums[..., FIRST], sums[..., SECONDS])


def variation(sums: Floats) -> Floats:
    """Coefficient of variation (population σ ÷ mean) from sums (..., 4); NaN if the mean is 0 or unknown.

    Law: invariant under scaling, and 0 if all values are equal (to within 1e-7, because of cancellation). For a
    constant value during a fraction d of the time and 0 otherwise, it is sqrt((1 - d) / d).
    """
    centre = mean(sums)
    variance = quotient(sums[..., SECOND], sums[..., SECONDS]) - centre**2
    return quotient(np.sqrt(np.maximum(variance, 0.0)), centre)


def duty_cycle(active_seconds: Floats, observed_seconds: Floats) -> Floats:
    """Active time ÷ observed time, 0..1; NaN if no time was observed."""
    return np.minimum(quotient(active_seconds, observed_seconds), 1.0)


def quotient(above: Floats, below: Floats) -> Floats:
    """`above / below`; NaN where `below` is 0 or unknown."""
    out = np.full(np.broadcast(above, below).shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def or_none(value: float) -> float | None:
    """The value, None for NaN."""
    return None if math.isnan(value) else value


def rebin(values: Floats, seconds: Floats, ticks: int) -> tuple[Floats, Floats]:
    """Mean value and seconds of bins of `ticks` samples along the last axis, whose length is a multiple of that.

    A bin with any missing data (NaN) is missing: NaN and 0 seconds.
    Law: without missing data, the sum of `value * seconds` is the same before and after.
    """
    shape = (*values.shape[:-1], values.shape[-1] // ticks, ticks)
    weight = seconds.reshape(shape)
    total = weight.sum(axis=-1)
    merged = quotient((values.reshape(shape) * weight).sum(axis=-1), total)
    return merged, np.where(np.isnan(merged), 0.0, total)


def count_into_buckets(values: Floats, chosen: Bools, bounds: Floats) -> Counts:
    """Number of chosen values of each row in each bucket: int64 (rows, len(bounds) + 1) from (rows, samples).

    A bucket includes its upper bound, like Prometheus' `le`; the last bucket has no bound.
    """
    width = len(bounds) + 1
    row, _ = np.nonzero(chosen)
    flat = row * width + np.searchsorted(bounds, values[chosen], side="left")
    return np.bincount(flat, minlength=len(values) * width).reshape(len(values), width)
