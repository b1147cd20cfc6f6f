"""The statistics of a span that no sums give, its step period, and all of them by the key of their row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ibpulse.analysis import moments, signature
from ibpulse.analysis.balance import Balance, BalanceOptions, RailSums, balance_rails, line_of_carriers
from ibpulse.analysis.bins import rate_bins
from ibpulse.analysis.bursts import split_runs, start_runs
from ibpulse.analysis.node_statistics import usual_peak
from ibpulse.analysis.period import StepPeriod, choose_bin_seconds, find_rails_period
from ibpulse.analysis.signature import describe_features, find_signature
from ibpulse.analysis.steps import NONE, Steps, find_steps
from ibpulse.arrays import Floats
from ibpulse.reports.resampling_units import variation_key
from ibpulse.reports.span import RailSeries, ReportOptions


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The period, and the steps, whose bounds are places in the series."""

    period: StepPeriod
    steps: Steps


def find_rhythm(series: RailSeries) -> Rhythm:
    """The period of the sum over the ports, by the method of the daemon, and the steps.

    The daemon has counters, which say what flowed over a hole; a recording has not: a hole is filled by a straight
    line from the rate before it to that after, unless it is longer than two bins.
    """
    coarsest = max(series.coarsest_stride, series.resolution_ticks)
    bin_seconds = choose_bin_seconds(coarsest, series.interval_seconds)
    span = len(series.whole) * series.interval_seconds
    bins = int(span / bin_seconds)
    known = [index for index in series.up if series.good[index].any()]
    if bins < 1 or not known:
        return Rhythm(find_rails_period([], bin_seconds), NONE)
    edges = span - bin_seconds * np.arange(bins, -1, -1, dtype=np.float64)
    period = find_rails_period([_bins_of(series, index, edges) for index in known], bin_seconds)
    steps = (
        NONE if math.isnan(period.seconds) else find_steps(series.bandwidth, period.seconds / series.interval_seconds)
    )
    return Rhythm(period, steps)


def _bins_of(series: RailSeries, index: int, edges: Floats) -> Floats:
    good = series.good[index]
    rates = series.rates[index].sum(axis=0)
    at = np.arange(len(good))
    if not good.all():
        rates = np.interp(at, at[good], rates[good])
    seconds = np.arange(len(good) + 1, dtype=np.float64) * series.interval_seconds
    moved = np.concatenate(([0.0], np.cumsum(rates * series.interval_seconds)))
    # what is known of a running sum is its value on either side of a known tick
    kept = np.concatenate((good, [False])) | np.concatenate(([False], good))
    return rate_bins(seconds[kept], moved[kept], edges)


Value = float | int | str | tuple[str, ...] | None


def sum_ports(series: RailSeries, options: ReportOptions) -> RailSums:
    """The sums that the rails are weighed by; time is that of the first direction that was recorded."""
    ways = np.flatnonzero(series.recorded)
    chosen = series.good[:, None] & (series.rates > options.active_bytes_per_second)
    return RailSums(
        active=moments.weighted_sums(series.rates, series.seconds, chosen),
        moved_bytes=np.einsum("pwi,pwi->pw", series.rates, series.seconds),
        observed_seconds=series.seconds[:, ways[0]].sum(axis=-1) if len(ways) else np.zeros(len(series.ports)),
        up=np.array([port.active for port in series.ports], dtype=np.bool_),
    )


def weigh(sums: RailSums, options: ReportOptions) -> Balance:
    """The balance of the ports over the window."""
    judge = BalanceOptions(active_bytes_per_second=options.active_bytes_per_second)
    return balance_rails(sums.mean_rates(), sums.active_rates(), judge)


def describe_rails(series: RailSeries, balance: Balance) -> dict[str, Value]:
    """Fairness, and which rails are idle or slow."""
    names = [str(port.id) for port in series.ports]
    return {
        "rails": len(names),
        "active_rails": balance.active,
        "fairness_ratio": balance.fairness,
        "idle_rails": tuple(name for name, idle in zip(names, balance.idle, strict=True) if idle),
        "slow_rails": tuple(name for name, slow in zip(names, balance.slow, strict=True) if slow),
    }


def line_rate(series: RailSeries, sums: RailSums) -> float:
    """Line rate of the ports that carry traffic, in the directions that were recorded; NaN if not known."""
    rates = np.array([port.rate_bytes_per_second or np.nan for port in series.ports])
    return line_of_carriers(sums.mean_rates(), rates, sum(series.recorded))


def describe_runs(series: RailSeries, options: ReportOptions) -> dict[str, Value]:
    """Bursts and gaps of the sum over the rails."""
    # one more hole ends the last run
    rates = np.append(series.bandwidth, np.nan)[None]
    measured = np.append(series.measured, 0.0)[None]
    _, runs = split_runs(start_runs(1), rates, measured, options.thresholds())
    bursts, gaps = runs.bursts(), runs.gaps()
    moved = runs.moved_bytes[bursts]
    return {
        "bursts": int(bursts.sum()),
        **_lengths("burst_seconds", runs.seconds[bursts]),
        "burst_bytes": float(moved.mean()) if len(moved) else None,
        "gaps": int(gaps.sum()),
        **_lengths("gap_seconds", runs.seconds[gaps]),
        "censored_seconds": runs.censored_seconds(),
    }


def _lengths(key: str, seconds: Floats) -> dict[str, Value]:
    if not len(seconds):
        return dict.fromkeys((f"{key}_p50", f"{key}_p95", f"{key}_longest"))
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return {f"{key}_p50": float(p50), f"{key}_p95": float(p95), f"{key}_longest": float(seconds.max())}


def describe_holes(series: RailSeries) -> dict[str, Value]:
    """How much of the window was seen."""
    whole = series.whole[series.lead : series.lead + series.ticks]
    edges = np.flatnonzero(np.diff(np.concatenate(([True], whole, [True]))))
    lengths = (edges[1::2] - edges[::2]) * series.interval_seconds
    window = series.ticks * series.interval_seconds
    return {
        "window_seconds": window,
        "observed_ratio": float(np.count_nonzero(whole)) / series.ticks,
        "holes": len(lengths),
        "hole_seconds_longest": float(lengths.max()) if len(lengths) else None,
    }


def describe_peak(series: RailSeries, mean: float, line: float) -> dict[str, Value]:
    """The highest tick and what follows from it."""
    peak = float(np.nanmax(series.bandwidth)) if series.whole.any() else math.nan
    return {
        "peak_bytes_per_second": peak,
        "peak_to_mean_ratio": peak / mean if mean > 0 else math.nan,
        "peak_utilization_ratio": peak / line,
        "line_bytes_per_second": line,
        "utilization_ratio": mean / line,
    }


def name_traffic(
    series: RailSeries, values: Mapping[str, Value], line: float, options: ReportOptions
) -> dict[str, Value]:
    """The signature of the window, by the features of the daemon."""
    told = series.resolution_ticks == 1
    variations = {scale: _number(values.get(variation_key(scale))) for scale in signature.TIMESCALES_NS}
    names = ("duty_cycle_ratio", "active_mean_bytes_per_second")
    duty, active = (_number(values[name]) if told else math.nan for name in names)
    features = describe_features(duty, active, _usual_peak(series) if told else math.nan, variations, line)
    found = find_signature(features, options.signature)
    return {"signature": found.label, "signature_confidence": found.confidence}


def _usual_peak(series: RailSeries) -> float:
    seconds = (-1, series.ticks_per_second)
    peaks = series.directions.sum(axis=0).reshape(seconds).max(axis=1)
    return usual_peak(peaks, series.measured.reshape(seconds).sum(axis=1))


def is_known(value: Value) -> bool:
    """Whether it is neither None nor a number that is not finite."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _number(value: Value) -> float:
    return value if isinstance(value, float) and math.isfinite(value) else math.nan
