"""The units that a window is resampled in, and the sums over each that every statistic is a quotient of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.analysis import moments, signature
from ibpulse.analysis.balance import jain_index
from ibpulse.analysis.steps import Steps
from ibpulse.arrays import Floats
from ibpulse.reports.span import RailSeries, ReportOptions
from ibpulse.units import format_duration

# fields of the last axis of sums: those of the active ticks, these, those of each time scale, the bytes of each port
DURATION, COUNT, OBSERVED, TRANSMIT, RECEIVE = range(moments.FIELDS, moments.FIELDS + 5)
FIRST_SCALE = moments.FIELDS + 5
# steps stand for the whole window when they make up so much of it
MOST = 0.8
BLOCK_SECONDS = 1.0
# blocks of time hold several steps, so that it matters little where in a step they begin
BLOCK_PERIODS = 3.0
GOLDEN = 0.6180339887498949
# a step of which less was seen says nothing
LEAST_OBSERVED = 0.5


@dataclass(frozen=True, slots=True)
class Units:
    """What a window is resampled in: `sums` is (units, fields), of steps or of blocks of time.

    `begun` has the sums of a first part of each step, because a window begins and ends somewhere within one.
    """

    steps: bool
    sums: Floats
    begun: Floats | None = None


class Sums:
    """Running sums of a window, which give the sums of any part of it, also between two ticks."""

    def __init__(self, series: RailSeries, options: ReportOptions) -> None:
        self._series = series
        self._threshold = options.active_bytes_per_second
        scales = dict.fromkeys((*options.timescales_ns, *signature.TIMESCALES_NS))
        self.timescales_ns = tuple(scale for scale in scales if not scale % series.interval_ns)
        self.fields = FIRST_SCALE + moments.FIELDS * len(self.timescales_ns) + len(series.ports)

    def between(self, bounds: Floats) -> Floats:
        """Sums between each two neighbours of the bounds, places in the series: (bounds - 1, fields)."""
        series, measured = self._series, self._series.measured
        out = np.empty((len(bounds) - 1, self.fields))
        out[:, DURATION] = np.diff(bounds) * series.interval_seconds
        out[:, COUNT] = 1.0
        out[:, : moments.FIELDS] = self._of_scale(1, bounds)
        out[:, OBSERVED] = _cut(measured, bounds)
        for way, field in enumerate((TRANSMIT, RECEIVE)):
            out[:, field] = _cut(series.directions[way] * measured, bounds)
        for index, scale_ns in enumerate(self.timescales_ns):
            ticks = scale_ns // series.interval_ns
            field = FIRST_SCALE + moments.FIELDS * index
            out[:, field : field + moments.FIELDS] = self._of_scale(ticks, bounds)
        for port, (rates, seconds) in enumerate(zip(series.rates, series.seconds, strict=True)):
            out[:, port - len(series.ports)] = _cut((rates * seconds).sum(axis=0), bounds)
        return out

    def whole(self) -> Floats:
        """Sums of the whole window: (fields,)."""
        return np.asarray(self.between(np.array([0.0, len(self._series.whole)]))[0])

    def _of_scale(self, ticks: int, bounds: Floats) -> Floats:
        """Moments of the active bins of so many ticks: (bounds - 1, 4), 0 where the counters cannot tell them."""
        series = self._series
        if ticks < max(series.coarsest_stride if ticks > 1 else 1, series.resolution_ticks):
            return np.zeros((len(bounds) - 1, moments.FIELDS))
        values, seconds = series.bandwidth, series.measured
        if ticks > 1:
            missing = -len(values) % ticks
            values, seconds = moments.rebin(
                np.pad(values, (0, missing), constant_values=np.nan), np.pad(seconds, (0, missing)), ticks
            )
        active = values > self._threshold
        weight = np.where(active, seconds, 0.0)
        first = np.where(active, values, 0.0) * weight
        fields = {
            moments.COUNT: active.astype(np.float64),
            moments.SECONDS: weight,
            moments.FIRST: first,
            moments.SECOND: first * np.where(active, values, 0.0),
        }
        return np.stack([_cut(fields[field], bounds / ticks) for field in range(moments.FIELDS)], axis=1)


def _cut(values: Floats, bounds: Floats) -> Floats:
    running = np.concatenate(([0.0], np.cumsum(values)))
    return np.diff(np.interp(bounds, np.arange(len(running)), running))


def split(sums: Sums, series: RailSeries, steps: Steps, period_seconds: float) -> tuple[Units, Floats]:
    """The units of the window, which are its steps where these fill it, and the sums (steps, fields) of its steps."""
    whole_steps, begun = _sum_steps(sums, steps)
    seconds = series.ticks * series.interval_seconds
    if whole_steps[:, DURATION].sum() >= MOST * seconds:
        return Units(True, whole_steps, begun), whole_steps
    longest = BLOCK_SECONDS if np.isnan(period_seconds) else max(BLOCK_SECONDS, BLOCK_PERIODS * period_seconds)
    width = max(1, round(longest / series.interval_seconds))
    bounds = np.arange(series.lead, series.lead + series.ticks + 1, width, dtype=np.float64)
    blocks = sums.between(bounds) if len(bounds) > 1 else np.zeros((0, sums.fields))
    return Units(False, blocks[blocks[:, OBSERVED] > 0]), whole_steps


def _sum_steps(sums: Sums, steps: Steps) -> tuple[Floats, Floats]:
    """Sums of the whole steps of which enough was seen, and of a first part of each."""
    if len(steps.bounds) < 2:
        return np.zeros((0, sums.fields)), np.zeros((0, sums.fields))
    # parts of all lengths alike, in no order: multiples of the golden ratio
    part = np.arange(1, len(steps.bounds)) * GOLDEN % 1.0
    within = steps.bounds[:-1] + part * np.diff(steps.bounds)
    halves = sums.between(np.append(np.stack([steps.bounds[:-1], within], axis=1).ravel(), steps.bounds[-1]))
    whole, begun = halves[::2] + halves[1::2], halves[::2]
    whole[:, COUNT] = 1.0
    enough = steps.whole & (whole[:, OBSERVED] >= LEAST_OBSERVED * whole[:, DURATION])
    return whole[enough], begun[enough]


def window_ratios(
    sums: Floats, timescales_ns: Sequence[int], recorded: Sequence[bool], ports: int
) -> dict[str, Floats]:
    """The statistics of a window by the key of their row, from its sums (..., fields); NaN for what is not known."""
    observed = sums[..., OBSERVED]
    ratios = {
        "mean_bytes_per_second": moments.quotient(sums[..., TRANSMIT] + sums[..., RECEIVE], observed),
        "active_mean_bytes_per_second": moments.mean(sums[..., : moments.FIELDS]),
        "duty_cycle_ratio": moments.duty_cycle(sums[..., moments.SECONDS], observed),
    }
    for name, field, there in zip(("transmit", "receive"), (TRANSMIT, RECEIVE), recorded, strict=True):
        value = moments.quotient(sums[..., field], observed)
        ratios[f"{name}_bytes_per_second"] = value if there else np.full_like(value, np.nan)
    for index, scale_ns in enumerate(timescales_ns):
        field = FIRST_SCALE + moments.FIELDS * index
        scale = sums[..., field : field + moments.FIELDS]
        enough = scale[..., moments.COUNT] >= 2
        ratios[variation_key(scale_ns)] = np.where(enough, moments.variation(scale), np.nan)
    ratios["fairness_ratio"] = np.apply_along_axis(jain_index, -1, sums[..., -ports:])
    return ratios


def step_ratios(sums: Floats) -> Mapping[str, Floats]:
    """The statistics of steps by the key of their row, from their sums (..., fields)."""
    duration = moments.quotient(sums[..., DURATION], sums[..., COUNT])
    silent = 1.0 - moments.duty_cycle(sums[..., moments.SECONDS], sums[..., OBSERVED])
    mean = moments.quotient(sums[..., TRANSMIT] + sums[..., RECEIVE], sums[..., OBSERVED])
    return {"step_seconds": duration, "step_gap_seconds": silent * duration, "step_bytes": mean * duration}


def variation_key(scale_ns: int) -> str:
    """The key of the row of the coefficient of variation at a time scale."""
    return f"burstiness_cv_{format_duration(scale_ns)}"
