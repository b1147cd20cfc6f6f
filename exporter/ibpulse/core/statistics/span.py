"""All statistics of a recorded time range.

The wire alone only gives bounds of exposed communication: while it is silent, no communication between nodes is
exposed, so exposed communication is at most the time in which it is active. If the share of time in which the GPUs
compute is known as well, the bounds are those of Fréchet for the intersection of two events of known probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics import moments, signature
from ibpulse.core.statistics.balance import Balance, RailSums, balance_rails, find_carriers, join_groups
from ibpulse.core.statistics.moments import quantiles
from ibpulse.core.statistics.recorded import (
    COUNT,
    DURATION,
    RailGroup,
    RailSeries,
    StepStatistics,
    Sums,
    Units,
    UnitStatistics,
    describe_steps,
    describe_units,
    split,
)
from ibpulse.core.statistics.signature import Signature, describe_features, find_signature
from ibpulse.core.statistics.steps.edges import NONE, Steps, find_steps
from ibpulse.core.statistics.steps.period import StepPeriod, find_sampled_period
from ibpulse.core.statistics.steps.runs import (
    RunStatistics,
    describe_runs,
    find_bursts,
    find_runs,
)
from ibpulse.core.statistics.sums import OBSERVED, RECEIVE, TRANSMIT, NodeStatistics, line_rate, usual_peak


@dataclass(frozen=True, slots=True)
class WireBounds:
    """Per step: silent share, least time that the bytes need, and bounds of exposed communication; NaN if unknown."""

    silent_ratio: float
    least_wire_seconds: float
    exposed_low_seconds: float
    exposed_high_seconds: float


def exposed_bounds(wire_active: Floats, computing: Floats) -> tuple[Floats, Floats]:
    """Bounds of the share of time in which the wire is active and nothing computes: arrays like the arguments.

    Arguments are shares of the same intervals. Bounds of a longer time are the sums over its intervals; they are only
    tight if intervals are shorter than the phases of a step. If `computing` is NaN, nothing is known of it.
    """
    low, high = np.maximum(0.0, wire_active - computing), np.minimum(wire_active, 1.0 - computing)
    known = ~np.isnan(computing)
    return np.where(known, low, 0.0 * wire_active), np.where(known, high, wire_active)


def bound_steps(sums: Floats, line: float, computing_ratio: float) -> WireBounds:
    """The bounds of a mean step.

    Args:
        sums: the sums of all steps (fields,).
        line: the line rate of one direction, bytes per second.
        computing_ratio: the share of the time in which the GPUs compute, NaN if unknown.
    """
    steps = describe_steps(sums)
    active = np.asarray(1.0 - moments.quotient(steps.gap_seconds, steps.seconds))
    low, high = exposed_bounds(active, np.asarray(computing_ratio))
    length, least = float(steps.seconds), math.nan
    if sums[COUNT] and sums[OBSERVED] and line > 0:
        sent = max(sums[TRANSMIT], sums[RECEIVE]) / sums[OBSERVED] * sums[DURATION] / sums[COUNT]
        least = float(sent / line)
    return WireBounds(1.0 - float(active), least, float(low) * length, float(high) * length)


MIN_WHOLE_BINS = 0.5
"""Share of the bins of a time scale without a missing sample, below which its burstiness is not given."""


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """Parameters of the statistics; `computing_ratio` is the share of the time in which the GPUs compute, or NaN."""

    active_bytes_per_second: float
    timescales_ns: tuple[int, ...]
    computing_ratio: float = math.nan


@dataclass(frozen=True, slots=True)
class Coverage:
    """Observed part of a span: `holes` counts runs of missing samples; `longest_hole_seconds` is NaN without any."""

    seconds: float
    observed_ratio: float
    holes: int
    longest_hole_seconds: float


@dataclass(frozen=True, slots=True)
class SpanStatistics:
    """The statistics of a span; NaN if unknown.

    `whole` holds the statistics of the whole span. `line` is the line rate of the rails, its mean if it changes;
    `peak_utilization` is the highest sample ÷ the line rate at that sample. `active_p50` and `active_p95` are quantiles
    of the active samples of the sum. `rail_means` (rails,) are the mean rates.
    `balance` compares the rails of each group at the samples at which they are compared; its ratios and verdicts are
    about the time in which a rail is up. `units` are the units for resampling; `step_sums` (steps, fields) are the sums
    of the whole steps, `steps` their statistics, `bounds` what the wire says of their exposed communication.
    """

    series: RailSeries
    whole: UnitStatistics
    line: float
    peak_utilization: float
    active_p50: float
    active_p95: float
    bursts: RunStatistics
    gaps: RunStatistics
    censored_seconds: float
    period: StepPeriod
    steps: StepStatistics
    bounds: WireBounds
    step_spread_seconds: float
    balance: Balance
    rail_means: Floats
    signature: Signature
    coverage: Coverage
    units: Units
    step_sums: Floats

    @property
    def node(self) -> NodeStatistics:
        """The statistics of the sum over the rails."""
        return self.whole.node

    def burstiness(self, bin_ns: int) -> float:
        """The CV of the active bins of that length; NaN if no multiple of the interval, or if most bins miss a sample.

        The few that do not would be a small sample of the traffic.
        """
        found = float(self.whole.variation(bin_ns))
        if math.isnan(found):
            return found
        ticks, lead = bin_ns // self.series.interval_ns, self.series.lead
        first = lead + -lead % ticks
        bins = self.series.whole[first : first + (lead + self.series.ticks - first) // ticks * ticks].reshape(-1, ticks)
        # fewer than one bin is not the fault of missing samples
        return found if not len(bins) or bins.all(axis=1).mean() >= MIN_WHOLE_BINS else math.nan

    def of_units(self, sums: Floats) -> UnitStatistics:
        """The statistics derived from other sums (..., fields) of units of this span."""
        return describe_units(sums, self.series, self.whole.timescales_ns)


def describe_span(series: RailSeries, options: SpanOptions) -> SpanStatistics:
    """All statistics of a span."""
    active = options.active_bytes_per_second
    sums = Sums(series, active, options.timescales_ns)
    rails = sum_over_span(series, active)
    means = rails.mean_rates()
    lines = find_lines(series)
    period, steps = find_rhythm(series, active)
    units, step_sums = split(sums, series, steps, period.seconds)
    whole = _with_peak(describe_units(sums.whole(), series, sums.timescales_ns), series)
    line = _mean_line(series, lines)
    step_total, computing = step_sums.sum(axis=0), options.computing_ratio
    runs = find_bursts(series.bandwidth, series.measured, active)
    active_p50, active_p95 = _active_quantiles(series, active)
    return SpanStatistics(
        series=series,
        whole=whole,
        line=line,
        peak_utilization=_peak(series, lines),
        active_p50=active_p50,
        active_p95=active_p95,
        bursts=describe_runs(runs, burst=True),
        gaps=describe_runs(runs, burst=False),
        censored_seconds=runs.censored_seconds(),
        period=period,
        steps=describe_steps(step_total),
        bounds=bound_steps(step_total, line / max(1, sum(series.recorded)), computing),
        step_spread_seconds=float(step_sums[:, DURATION].std()) if len(step_sums) else math.nan,
        balance=_compare_rails(series, rails, active),
        rail_means=means,
        signature=_name_traffic(series, whole, find_carriers(means)),
        coverage=_describe_coverage(series),
        units=units,
        step_sums=step_sums,
    )


def sum_over_span(series: RailSeries, active_bytes_per_second: float, during: Bools | None = None) -> RailSums:
    """The sums for the balance of the rails, of the samples `during` (samples,) or of all.

    Time is taken from the first recorded direction. A rail that is down part of the time carries nothing meanwhile.
    """
    ways, recorded = np.flatnonzero(series.recorded), slice(series.lead, series.lead + series.ticks)
    rates, seconds, good, up = series.rates, series.seconds, series.good, series.up[:, recorded]
    chosen = np.ones(series.ticks, dtype=np.bool_)
    if during is not None:
        rates, seconds, good, chosen = rates * during, seconds * during, good & during, during[recorded]
    observed = seconds[:, ways[0]].sum(axis=-1) if len(ways) else np.zeros(len(rates))
    down_seconds = np.count_nonzero(chosen & ~up, axis=1) * series.interval_seconds
    return RailSums(
        active=moments.weighted_sums(rates, seconds, good[:, None] & (rates > active_bytes_per_second)),
        moved_bytes=np.einsum("pwi,pwi->pw", rates, seconds),
        observed_seconds=np.where(observed > 0, observed + down_seconds, observed),
        up=np.asarray((chosen & up).any(axis=1)),
    )


def _compare_rails(series: RailSeries, sums: RailSums, active_bytes_per_second: float) -> Balance:
    """The balance of the rails; those of a group are compared. `sums` are those of the whole span.

    A rail that is down part of the time is compared with its siblings in the other part.
    """

    def sum_during(during: Bools) -> RailSums:
        return sum_over_span(series, active_bytes_per_second, during)

    def compare(group: RailGroup) -> Balance:
        rails, together, up = group.rails, series.padded(group.together), series.up[group.rails]

        def weigh(part: RailSums) -> Balance:
            return balance_rails(part.mean_rates()[rails], part.active_rates()[rails], active_bytes_per_second)

        balance = weigh(sums if group.together.all() else sum_during(together))
        for place in np.flatnonzero(up.any(axis=1) & ~up[:, together].all(axis=1)):
            then = weigh(sum_during(up[place] & together))
            balance.ratio[place], balance.idle[place], balance.slow[place] = (
                each[place] for each in (then.ratio, then.idle, then.slow)
            )
        return balance

    groups = series.rails.groups
    balance = join_groups([group.rails for group in groups], [compare(group) for group in groups])
    return replace(balance, active=int(np.count_nonzero(sums.mean_rates() > active_bytes_per_second)))


def find_lines(series: RailSeries, rails: Bools | None = None) -> Floats:
    """The line rate of these rails (rails,) or of all, in the recorded directions, at each recorded sample: (samples,).

    NaN if it is unknown.
    """
    rates = series.rails.line_rates
    return line_rate(rates if rails is None else rates[rails], sum(series.recorded))


def _mean_line(series: RailSeries, lines: Floats) -> float:
    """The mean of the line rate over the measured time."""
    measured = series.measured[series.lead : series.lead + series.ticks]
    if not measured.any() or (lines == lines[0]).all():
        return float(lines[0])
    return float(np.where(measured > 0, lines * measured, 0.0).sum() / measured.sum())


def find_rhythm(series: RailSeries, active_bytes_per_second: float) -> tuple[StepPeriod, Steps]:
    """The period of the sum over the rails, and the steps, whose bounds are positions in the series."""
    period = find_period_between(series, 0, len(series.whole), active_bytes_per_second)
    if math.isnan(period.seconds):
        return period, NONE
    return period, find_steps(series.bandwidth, period.seconds / series.interval_seconds)


def find_period_between(series: RailSeries, first: int, end: int, active_bytes_per_second: float) -> StepPeriod:
    """The period of the sum over the rails in the samples from `first` to before `end`; inactive samples count as 0."""
    known = np.flatnonzero(series.rails.ever_up & series.good[:, first:end].any(axis=1))
    idle = series.bandwidth[first:end] <= active_bytes_per_second
    return find_sampled_period(
        [
            (np.where(idle, 0.0, series.rates[rail, :, first:end].sum(axis=0)), series.good[rail, first:end])
            for rail in known
        ],
        series.interval_seconds,
        max(series.coarsest_stride, series.resolution_ticks),
    )


def _with_peak(statistics: UnitStatistics, series: RailSeries) -> UnitStatistics:
    """The statistics of the whole span, with its peak."""
    node = statistics.node
    peak = np.asarray(_peak(series, np.ones(series.ticks)))
    return replace(statistics, node=replace(node, peak=peak, peak_to_mean=moments.quotient(peak, node.mean)))


def _peak(series: RailSeries, units: Floats) -> float:
    """The highest sample in `units` (samples,); NaN if these are unknown or the counters do not resolve samples."""
    recorded = slice(series.lead, series.lead + series.ticks)
    whole = series.whole[recorded]
    if not whole.any() or series.resolution_ticks > 1:
        return math.nan
    return float((series.certain_bandwidth[recorded][whole] / units[whole]).max())


def _active_quantiles(series: RailSeries, active_bytes_per_second: float) -> tuple[float, float]:
    """The median and the 95 % quantile of the samples of the sum above the threshold; NaN if there are none.

    Of uncertain samples the certain part counts, as for the peak, so that no quantile exceeds it.
    """
    span = slice(series.lead, series.lead + series.ticks)
    chosen = series.certain_bandwidth[span][series.bandwidth[span] > active_bytes_per_second]
    if not len(chosen):
        return math.nan, math.nan
    median, high = quantiles(chosen, [0.5, 0.95])
    return median, high


def _describe_coverage(series: RailSeries) -> Coverage:
    whole = series.whole[series.lead : series.lead + series.ticks]
    first, end = find_runs(~whole)
    lengths = end - first
    return Coverage(
        seconds=series.ticks * series.interval_seconds,
        observed_ratio=float(np.count_nonzero(whole)) / series.ticks,
        holes=len(lengths),
        longest_hole_seconds=int(lengths.max()) * series.interval_seconds if len(lengths) else math.nan,
    )


def _name_traffic(series: RailSeries, whole: UnitStatistics, carriers: Bools) -> Signature:
    """The signature of the span, from the same features as in the daemon; `carriers` (rails,) carry its traffic."""
    node = whole.node
    seconds = (-1, series.ticks_per_second)
    peaks = series.peaks.reshape(seconds).max(axis=1)
    peak = usual_peak(peaks, series.measured.reshape(seconds).sum(axis=1))
    features = describe_features(
        float(node.duty_cycle),
        float(node.active_mean),
        peak if series.resolution_ticks == 1 else math.nan,
        {scale: float(whole.variation(scale)) for scale in signature.TIMESCALES_NS},
        _mean_line(series, find_lines(series, carriers)),
    )
    return find_signature(features)
