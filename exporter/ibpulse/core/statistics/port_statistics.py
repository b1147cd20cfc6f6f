"""The statistics of single ports over a time range, separately for each direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.node_statistics import Seconds

# fields of the last axis of the sums: moments of the active samples, their observed time, all bytes with their time
OBSERVED, COVERED, MOVED = range(moments.FIELDS, moments.FIELDS + 3)
FIELDS = moments.FIELDS + 3


def sum_directions(
    rates: Floats, seconds: Floats, good: Bools, active_bytes_per_second: float, bridged: Seconds | None = None
) -> Floats:
    """Sums of spans: (ports, 2, spans, FIELDS) from (ports, 2, spans, samples).

    Samples count where `good` (ports, spans, samples) is true. `bridged` are the rates that also cover missing samples,
    None if no sample is missing.

    Law: the sums of a span are the sum of the sums of its parts.
    """
    chosen = np.broadcast_to(good[:, None], rates.shape)
    sums = np.empty((*rates.shape[:-1], FIELDS))
    sums[..., : moments.FIELDS] = moments.weighted_sums(rates, seconds, chosen & (rates > active_bytes_per_second))
    # both directions of a port are read at nearly the same instant
    sums[..., OBSERVED] = np.where(good, (seconds[:, 0] + seconds[:, 1]) / 2, 0.0).sum(axis=-1)[:, None]
    if bridged is None:
        sums[..., COVERED] = sums[..., OBSERVED]
        sums[..., MOVED] = np.einsum("...i,...i->...", np.where(chosen, rates, 0.0), seconds)
    else:
        sums[..., COVERED] = bridged.seconds.mean(axis=1).sum(axis=-1)[:, None]
        sums[..., MOVED] = np.einsum("...i,...i->...", bridged.bytes_per_second, bridged.seconds)
    return sums


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """Statistics of both directions of ports: arrays (..., ports, 2), NaN if unknown.

    Mean and peak are in bytes per second.
    """

    mean: Floats
    peak: Floats
    duty_cycle: Floats
    burstiness_cv: Floats


def describe_directions(sums: Floats, peaks: Floats, strides: Counts, finest_known: Bools) -> DirectionStatistics:
    """The statistics from sums (..., ports, 2, FIELDS) and peaks (..., ports, 2).

    Statistics of single samples are unknown for ports whose counters do not change at every sample (`finest_known`
    (ports,) is false). `strides` (ports,) are the ticks between two samples: a coefficient of variation needs two
    samples, and each sample covers one stride of ticks.
    """
    told = np.where(finest_known[:, None], sums[..., OBSERVED], 0.0)
    enough = (sums[..., moments.COUNT] >= 2 * strides[:, None]) & (told > 0)
    return DirectionStatistics(
        mean=moments.quotient(sums[..., MOVED], sums[..., COVERED]),
        peak=np.where(told > 0, peaks, np.nan),
        duty_cycle=moments.duty_cycle(sums[..., moments.SECONDS], told),
        burstiness_cv=np.where(enough, moments.variation(sums), np.nan),
    )
