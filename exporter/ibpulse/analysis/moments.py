"""Time-weighted sums of samples, and the statistics that follow from them.

Sums are the currency: they add up over seconds, ports and restarts, and every statistic is computed from them at the
end. A sample weighs the seconds it stands for, so that a gauge here and PromQL over the same counters agree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Floats

# fields of the last axis of sums
COUNT, SECONDS, FIRST, SECOND = range(4)
FIELDS = 4


def weighted_sums(values: Floats, seconds: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Sums over the last axis of the chosen samples: (..., 4) as COUNT, SECONDS, FIRST (v dt) and SECOND (v² dt).

    Law: the sums of a span are the sum of the sums of its parts, however it is cut.
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
    """Time-weighted mean from sums (..., 4); NaN where they cover no time."""
    return quotient(sums[..., FIRST], sums[..., SECONDS])


def variation(sums: Floats) -> Floats:
    """Coefficient of variation (population σ ÷ mean) from sums (..., 4); NaN where the mean is 0 or unknown.

    Law: it does not change when all values are multiplied, and is 0 (to 1e-7: the sums cancel) when all are equal.
    For a share d of the time at one level and zero for the rest it is sqrt((1 - d) / d).
    """
    centre = mean(sums)
    variance = quotient(sums[..., SECOND], sums[..., SECONDS]) - centre**2
    return quotient(np.sqrt(np.maximum(variance, 0.0)), centre)


def duty_cycle(active_seconds: Floats, observed_seconds: Floats) -> Floats:
    """Active time ÷ observed time, 0..1; NaN where nothing was observed."""
    return np.minimum(quotient(active_seconds, observed_seconds), 1.0)


def quotient(above: Floats, below: Floats) -> Floats:
    """`above / below`, NaN where `below` is 0 or unknown."""
    out = np.full(np.broadcast(above, below).shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def rebin(values: Floats, seconds: Floats, ticks: int) -> tuple[Floats, Floats]:
    """Mean value and seconds of bins of `ticks` ticks along the last axis, whose length is a multiple of it.

    A bin with any hole (NaN) is no sample: NaN and 0 seconds.
    Law: where no bin has a hole, the sum of `value * seconds` is the same before and after.
    """
    shape = (*values.shape[:-1], values.shape[-1] // ticks, ticks)
    weight = seconds.reshape(shape)
    total = weight.sum(axis=-1)
    merged = quotient((values.reshape(shape) * weight).sum(axis=-1), total)
    return merged, np.where(np.isnan(merged), 0.0, total)


def count_into_buckets(values: Floats, chosen: npt.NDArray[np.bool_], bounds: Floats) -> npt.NDArray[np.int64]:
    """How many chosen values of each row fall into each bucket: int64 (rows, len(bounds) + 1) from (rows, samples).

    A bucket holds its upper bound, as Prometheus' `le` does; the last takes the rest.
    """
    width = len(bounds) + 1
    row, _ = np.nonzero(chosen)
    flat = row * width + np.searchsorted(bounds, values[chosen], side="left")
    return np.bincount(flat, minlength=len(values) * width).reshape(len(values), width)
