"""The rows of the table: label, unit, definition, and the statistic of a span that each shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from ibpulse.base.units import format_duration
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics.recorded import StepStatistics, UnitStatistics
from ibpulse.core.statistics.span import SpanStatistics

Unit = Literal["rate", "bytes", "seconds", "ratio", "number", "count", "names", "word"]
Value = float | int | str | tuple[str, ...] | None
Missing = Literal["any", "few", "none"]
STEPS = "Steps"
VARIATION = "burstiness_cv"


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row: its section, its key in JSON, its label, unit and definition.

    The value is `of_span` of the statistics of a span, or `of_units` or `of_steps` of those that follow from sums. Only
    the latter two have an interval, which comes from resampled sums.

    `finest` rows depend on single samples and are unknown if the counters stay constant over several samples.
    `missing` says how many samples may be missing: a row for which only a `few` may, at most `MAX_MISSING_SHARE`, would
    be that of other traffic with more. If samples are missing, the counts among these are the least that they can be.
    A row of burstiness is about bins of `bin_ns`.
    `least` is the smallest significant change in the row's unit, besides the relative one. If `compared` is false,
    changes of the row say nothing about the job.
    """

    section: str
    key: str
    label: str
    unit: Unit
    of_span: Callable[[SpanStatistics], Value | Floats] | None = None
    of_units: Callable[[UnitStatistics], Floats] | None = None
    of_steps: Callable[[StepStatistics], Floats] | None = None
    finest: bool = False
    least: float = 0.0
    compared: bool = True
    missing: Missing = "any"
    bin_ns: int = 0

    @property
    def definition(self) -> str:
        """Its meaning, in a sentence or two."""
        return DEFINITIONS[self.key if not self.bin_ns else VARIATION]

    @property
    def at_least(self) -> bool:
        """Whether the value is the least possible one if samples are missing."""
        return self.unit == "count" and self.missing == "few"

    def value(self, span: SpanStatistics) -> Value:
        """The value of the row for a span; NaN if unknown."""
        found: Value | Floats = math.nan
        if self.of_span:
            found = self.of_span(span)
        elif self.of_units:
            found = self.of_units(span.whole)
        elif self.of_steps:
            found = self.of_steps(span.steps)
        return float(found) if isinstance(found, np.ndarray | float) else found


def _chosen(span: SpanStatistics, which: Bools) -> tuple[str, ...]:
    """The names of some rails."""
    return tuple(name for name, here in zip(span.series.rails.names, which, strict=True) if here)


_BEGUN = "Of the {what}s with observed beginning (Kaplan-Meier); unknown if too many are cut off."
_OF_RUNS = {
    "s": "Runs of samples {where} the threshold with observed beginning and end; at least so many if samples are "
    "missing.",
    "_seconds_p50": _BEGUN,
    "_seconds_p95": _BEGUN,
    "_seconds_longest": "Of the {what}s with observed beginning and end; unknown if samples are missing.",
}
DEFINITIONS: Mapping[str, str] = {
    "mean_bytes_per_second": "Bytes of both directions ÷ observed time.",
    "transmit_bytes_per_second": "Bytes sent ÷ observed time.",
    "receive_bytes_per_second": "Bytes received ÷ observed time.",
    "active_mean_bytes_per_second": "Time-weighted mean of the samples above the threshold.",
    "active_p50_bytes_per_second": "Median of the samples above the threshold; of uncertain ones the certain part, as "
    "for the peak.",
    "active_p95_bytes_per_second": "95 % quantile of the samples above the threshold; of uncertain ones the certain "
    "part.",
    "peak_bytes_per_second": "Highest single sample.",
    "peak_to_mean_ratio": "Peak ÷ mean.",
    "duty_cycle_ratio": "Time of the samples above the threshold ÷ observed time.",
    "utilization_ratio": "Mean ÷ line rate of all rails, both directions, whether they carry traffic or not.",
    "peak_utilization_ratio": "Highest sample ÷ the line rate at that sample.",
    "line_bytes_per_second": "2 x the sum of the rates of all rails, active, idle or down; while a link is down, its "
    "last rate while it was ACTIVE. A rail whose rate was never known counts like the fastest other one. The mean if "
    "it changed.",
    "burst_bytes": "Mean of the bursts with observed beginning and end; unknown if samples are missing.",
    "censored_seconds": "Time of runs whose length is unknown because missing data or an end of the window cuts them "
    "off.",
    "step_period_seconds": "Period of the sum over the rails; none if the score is below 0.4.",
    "step_period_score": "0 to 1: twice the rhythm's share of the variance.",
    "steps": "Steps that were distinguished and at least half observed; without those that miss three samples in a "
    "row, if 20 are left. At least so many if samples are missing.",
    "step_seconds": "Mean length of the whole steps.",
    "step_spread_seconds": "Standard deviation of the length of whole steps; unknown if samples are missing.",
    "step_gap_seconds": "Silent time within a whole step: (1 - its duty cycle) x its length, mean.",
    "step_bytes": "Mean rate in whole steps x their mean length; without missing data, their bytes ÷ their number.",
    "step_silent_ratio": "Silent time per step ÷ step time. Silence is computation, waiting or the host, not exposed "
    "traffic.",
    "wire_seconds_lower": "Bytes per step in the busier direction ÷ line rate of one direction.",
    "exposed_seconds_lower": "Exposed traffic between nodes per step is at least this: 0; with --gpu-active, the "
    "active time of the wire that exceeds that of the GPUs. Waiting inside kernels and traffic within the node are not "
    "included.",
    "exposed_seconds_upper": "It is at most this: the active time of the wire; with --gpu-active, no more than the "
    "inactive time of the GPUs.",
    "rails": "Ports in this report.",
    "active_rails": "Those with a mean above the threshold.",
    "fairness_ratio": "(Σx)² ÷ (n Σx²) of the mean rates of the rails. With several jobs: of rails with the same jobs; "
    "the harmonic mean of these, weighted by rails.",
    "idle_rails": "Below 5 % of the median of their siblings while their link was up.",
    "slow_rails": "Not idle, and below 75 % of the median of their siblings while their link was up, by the mean or by "
    "the mean when active.",
    "signature": "dense_like, moe_like, idle or unknown: a resemblance, not an identification.",
    "signature_confidence": "Confidence of that label, at most 0.6 for dense and MoE.",
    "window_seconds": "Length of the window.",
    "observed_ratio": "Observed time ÷ window.",
    "holes": "Runs of samples at which the sum over the rails is unknown.",
    "hole_seconds_longest": "Length of the longest of them.",
    VARIATION: "σ ÷ mean of the bins of that length that are above the threshold; unknown if most bins miss a sample.",
    **{
        what + end: text.format(what=what, where=where)
        for what, where in (("burst", "above"), ("gap", "at or below"))
        for end, text in _OF_RUNS.items()
    },
}
"""The definitions of the rows by their keys."""

_throughput = partial(ReportRow, "Throughput")
_burstiness = partial(ReportRow, "Burstiness")
_bursts = partial(ReportRow, "Bursts", finest=True, missing="few")
_steps = partial(ReportRow, STEPS, missing="few")
_bounds = partial(ReportRow, "Overlap, bounds from the wire", finest=True, compared=False, missing="few")
_rails = partial(ReportRow, "Rails")
_signature = partial(ReportRow, "Signature", missing="few")
_window = partial(ReportRow, "Window")

# of a span `s`, of its units `u`, or of its steps
_BEFORE = (
    _throughput("mean_bytes_per_second", "mean", "rate", of_units=lambda u: u.node.mean),
    _throughput("transmit_bytes_per_second", "mean, transmit", "rate", of_units=lambda u: u.node.transmit),
    _throughput("receive_bytes_per_second", "mean, receive", "rate", of_units=lambda u: u.node.receive),
    _throughput(
        "active_mean_bytes_per_second", "mean when active", "rate", of_units=lambda u: u.node.active_mean, finest=True
    ),
    _throughput("active_p50_bytes_per_second", "median when active", "rate", lambda s: s.active_p50, finest=True),
    _throughput("active_p95_bytes_per_second", "p95 when active", "rate", lambda s: s.active_p95, finest=True),
    _throughput("peak_bytes_per_second", "peak", "rate", lambda s: s.node.peak, finest=True, missing="few"),
    _throughput(
        "peak_to_mean_ratio", "peak ÷ mean", "number", lambda s: s.node.peak_to_mean, finest=True, missing="few"
    ),
    _throughput(
        "duty_cycle_ratio", "duty cycle", "ratio", of_units=lambda u: u.node.duty_cycle, finest=True, least=0.002
    ),
    _throughput("utilization_ratio", "utilisation, mean", "ratio", lambda s: s.node.mean / s.line),
    _throughput(
        "peak_utilization_ratio", "utilisation, peak", "ratio", lambda s: s.peak_utilization, finest=True, missing="few"
    ),
    _throughput("line_bytes_per_second", "line rate", "rate", lambda s: s.line, compared=False),
)
_AFTER = (
    _bursts("bursts", "bursts", "count", lambda s: s.bursts.count),
    _bursts("burst_seconds_p50", "burst length, median", "seconds", lambda s: s.bursts.p50_seconds),
    _bursts("burst_seconds_p95", "burst length, p95", "seconds", lambda s: s.bursts.p95_seconds),
    _bursts(
        "burst_seconds_longest", "burst length, longest", "seconds", lambda s: s.bursts.longest_seconds, missing="none"
    ),
    _bursts("burst_bytes", "bytes per burst", "bytes", lambda s: s.bursts.mean_bytes, missing="none"),
    _bursts("gaps", "gaps", "count", lambda s: s.gaps.count),
    _bursts("gap_seconds_p50", "gap length, median", "seconds", lambda s: s.gaps.p50_seconds),
    _bursts("gap_seconds_p95", "gap length, p95", "seconds", lambda s: s.gaps.p95_seconds),
    _bursts("gap_seconds_longest", "gap length, longest", "seconds", lambda s: s.gaps.longest_seconds, missing="none"),
    _bursts("censored_seconds", "time in runs cut off", "seconds", lambda s: s.censored_seconds, compared=False),
    _steps("step_period_seconds", "step period", "seconds", lambda s: s.period.seconds),
    _steps("step_period_score", "score of the period", "number", lambda s: s.period.score, compared=False),
    _steps("steps", "whole steps", "count", lambda s: len(s.step_sums)),
    _steps("step_seconds", "step time", "seconds", of_steps=lambda steps: steps.seconds),
    _steps(
        *("step_spread_seconds", "step time, spread", "seconds", lambda s: s.step_spread_seconds),
        compared=False,
        missing="none",
    ),
    _steps(
        *("step_gap_seconds", "silent time per step", "seconds"),
        of_steps=lambda steps: steps.gap_seconds,
        finest=True,
        least=0.0005,
    ),
    _steps("step_bytes", "bytes per step", "bytes", of_steps=lambda steps: steps.moved_bytes),
    _steps(
        *("step_silent_ratio", "silent share of steps", "ratio", lambda s: s.bounds.silent_ratio),
        finest=True,
        compared=False,
    ),
    _bounds(
        "wire_seconds_lower", "wire time, low bound", "seconds", lambda s: s.bounds.least_wire_seconds, finest=False
    ),
    _bounds("exposed_seconds_lower", "exposed, low bound", "seconds", lambda s: s.bounds.exposed_low_seconds),
    _bounds("exposed_seconds_upper", "exposed, high bound", "seconds", lambda s: s.bounds.exposed_high_seconds),
    _rails("rails", "rails", "count", lambda s: len(s.series.rails.names)),
    _rails("active_rails", "active rails", "count", lambda s: s.balance.active),
    _rails(
        *("fairness_ratio", "fairness (Jain index)", "number", lambda s: s.balance.fairness, lambda u: u.fairness),
        least=0.002,
    ),
    _rails("idle_rails", "idle rails", "names", lambda s: _chosen(s, s.balance.idle)),
    _rails("slow_rails", "slow rails", "names", lambda s: _chosen(s, s.balance.slow)),
    _signature("signature", "resembles", "word", lambda s: s.signature.label),
    _signature("signature_confidence", "confidence", "number", lambda s: s.signature.confidence, compared=False),
    _window("window_seconds", "window", "seconds", lambda s: s.coverage.seconds, compared=False),
    _window("observed_ratio", "observed", "ratio", lambda s: s.coverage.observed_ratio, compared=False),
    _window("holes", "missing spans", "count", lambda s: s.coverage.holes),
    _window(
        *("hole_seconds_longest", "longest missing span", "seconds", lambda s: s.coverage.longest_hole_seconds),
        compared=False,
    ),
)


def rows(timescales_ns: Sequence[int]) -> tuple[ReportRow, ...]:
    """All rows of a table, with a row of burstiness for each time scale."""
    variations = (
        _burstiness(
            variation_key(scale_ns),
            f"CV at {format_duration(scale_ns)}",
            "number",
            of_units=partial(UnitStatistics.variation, timescale_ns=scale_ns),
            least=0.01,
            bin_ns=scale_ns,
        )
        for scale_ns in timescales_ns
    )
    return (*_BEFORE, *variations, *_AFTER)


def variation_key(scale_ns: int) -> str:
    """The key of the row of the coefficient of variation at a time scale."""
    return f"{VARIATION}_{format_duration(scale_ns)}"


def brief_rows(timescales_ns: Sequence[int]) -> tuple[ReportRow, ...]:
    """The ten rows of a brief report, in one section; the burstiness is that at the shortest timescale."""
    keys = (
        "active_mean_bytes_per_second",
        "peak_bytes_per_second",
        "duty_cycle_ratio",
        variation_key(min(timescales_ns)),
        "active_p50_bytes_per_second",
        "active_p95_bytes_per_second",
        "step_period_seconds",
        "step_gap_seconds",
        "utilization_ratio",
        "fairness_ratio",
    )
    by_key = {row.key: row for row in rows(timescales_ns)}
    return tuple(replace(by_key[key], section="Brief") for key in keys)
