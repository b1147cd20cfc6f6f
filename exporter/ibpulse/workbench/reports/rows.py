"""The rows of the table: label, unit, definition, and the statistic of a span that each shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from ibpulse.base.units import format_duration
from ibpulse.core.arrays import Bools, Floats
from ibpulse.core.statistics.recorded import StepStatistics, UnitStatistics
from ibpulse.core.statistics.span import SpanStatistics
from ibpulse.core.statistics.steps.runs import RunStatistics

Unit = Literal["rate", "bytes", "seconds", "ratio", "number", "count", "names", "word"]
Value = float | int | str | tuple[str, ...] | None
Missing = Literal["any", "few", "none"]
STEPS = "Steps"


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
    definition: str
    of_span: Callable[[SpanStatistics], Value | Floats] | None = None
    of_units: Callable[[UnitStatistics], Floats] | None = None
    of_steps: Callable[[StepStatistics], Floats] | None = None
    finest: bool = False
    least: float = 0.0
    compared: bool = True
    missing: Missing = "any"
    bin_ns: int = 0

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


_throughput = partial(ReportRow, "Throughput")
_burstiness = partial(ReportRow, "Burstiness")
_bursts = partial(ReportRow, "Bursts", finest=True, missing="few")
_steps = partial(ReportRow, STEPS, missing="few")
_bounds = partial(
    ReportRow, "Overlap, bounds from the wire", unit="seconds", finest=True, compared=False, missing="few"
)
_rails = partial(ReportRow, "Rails")
_signature = partial(ReportRow, "Signature", missing="few")
_window = partial(ReportRow, "Window")


def _run_rows(what: str, where: str, runs: Callable[[SpanStatistics], RunStatistics]) -> tuple[ReportRow, ...]:
    """The rows of the number and the lengths of bursts or gaps."""
    begun = f"Of the {what}s with observed beginning (Kaplan-Meier); unknown if too many are cut off."
    count = (
        f"Runs of samples {where} the threshold with observed beginning and end; at least so many if samples are "
        "missing."
    )
    key, label = f"{what}_seconds", f"{what} length"
    return (
        _bursts(f"{what}s", f"{what}s", "count", count, of_span=lambda span: runs(span).count),
        _bursts(f"{key}_p50", f"{label}, median", "seconds", begun, of_span=lambda span: runs(span).p50_seconds),
        _bursts(f"{key}_p95", f"{label}, p95", "seconds", begun, of_span=lambda span: runs(span).p95_seconds),
        _bursts(
            f"{key}_longest",
            f"{label}, longest",
            "seconds",
            f"Of the {what}s with observed beginning and end; unknown if samples are missing.",
            of_span=lambda span: runs(span).longest_seconds,
            missing="none",
        ),
    )


_BEFORE = (
    _throughput(
        "mean_bytes_per_second",
        "mean",
        "rate",
        "Bytes of both directions ÷ observed time.",
        of_units=lambda units: units.node.mean,
    ),
    _throughput(
        "transmit_bytes_per_second",
        "mean, transmit",
        "rate",
        "Bytes sent ÷ observed time.",
        of_units=lambda units: units.node.transmit,
    ),
    _throughput(
        "receive_bytes_per_second",
        "mean, receive",
        "rate",
        "Bytes received ÷ observed time.",
        of_units=lambda units: units.node.receive,
    ),
    _throughput(
        "active_mean_bytes_per_second",
        "mean when active",
        "rate",
        "Time-weighted mean of the samples above the threshold.",
        of_units=lambda units: units.node.active_mean,
        finest=True,
    ),
    _throughput(
        "active_p50_bytes_per_second",
        "median when active",
        "rate",
        "Median of the samples above the threshold; of uncertain ones the certain part, as for the peak.",
        of_span=lambda span: span.active_p50,
        finest=True,
    ),
    _throughput(
        "active_p95_bytes_per_second",
        "p95 when active",
        "rate",
        "95 % quantile of the samples above the threshold; of uncertain ones the certain part.",
        of_span=lambda span: span.active_p95,
        finest=True,
    ),
    _throughput(
        "peak_bytes_per_second",
        "peak",
        "rate",
        "Highest single sample.",
        of_span=lambda span: span.node.peak,
        finest=True,
        missing="few",
    ),
    _throughput(
        "peak_to_mean_ratio",
        "peak ÷ mean",
        "number",
        "Peak ÷ mean.",
        of_span=lambda span: span.node.peak_to_mean,
        finest=True,
        missing="few",
    ),
    _throughput(
        "duty_cycle_ratio",
        "duty cycle",
        "ratio",
        "Time of the samples above the threshold ÷ observed time.",
        of_units=lambda units: units.node.duty_cycle,
        finest=True,
        least=0.002,
    ),
    _throughput(
        "utilization_ratio",
        "utilisation, mean",
        "ratio",
        "Mean ÷ line rate of all rails, both directions, whether they carry traffic or not.",
        of_span=lambda span: span.node.mean / span.line,
    ),
    _throughput(
        "peak_utilization_ratio",
        "utilisation, peak",
        "ratio",
        "Highest sample ÷ the line rate at that sample.",
        of_span=lambda span: span.peak_utilization,
        finest=True,
        missing="few",
    ),
    _throughput(
        "line_bytes_per_second",
        "line rate",
        "rate",
        "2 x the sum of the rates of all rails, active, idle or down; while a link is down, its last rate while it was "
        "ACTIVE. A rail whose rate was never known counts like the fastest other one. The mean if it changed.",
        of_span=lambda span: span.line,
        compared=False,
    ),
)
_AFTER = (
    *_run_rows("burst", "above", lambda span: span.bursts),
    _bursts(
        "burst_bytes",
        "bytes per burst",
        "bytes",
        "Mean of the bursts with observed beginning and end; unknown if samples are missing.",
        of_span=lambda span: span.bursts.mean_bytes,
        missing="none",
    ),
    *_run_rows("gap", "at or below", lambda span: span.gaps),
    _bursts(
        "censored_seconds",
        "time in runs cut off",
        "seconds",
        "Time of runs whose length is unknown because missing data or an end of the window cuts them off.",
        of_span=lambda span: span.censored_seconds,
        compared=False,
    ),
    _steps(
        "step_period_seconds",
        "step period",
        "seconds",
        "Period of the sum over the rails; none if the score is below 0.4.",
        of_span=lambda span: span.period.seconds,
    ),
    _steps(
        "step_period_score",
        "score of the period",
        "number",
        "0 to 1: twice the rhythm's share of the variance.",
        of_span=lambda span: span.period.score,
        compared=False,
    ),
    _steps(
        "steps",
        "whole steps",
        "count",
        "Steps that were distinguished and at least half observed; without those that miss three samples in a row, if "
        "20 are left. At least so many if samples are missing.",
        of_span=lambda span: len(span.step_sums),
    ),
    _steps(
        "step_seconds", "step time", "seconds", "Mean length of the whole steps.", of_steps=lambda steps: steps.seconds
    ),
    _steps(
        "step_spread_seconds",
        "step time, spread",
        "seconds",
        "Standard deviation of the length of whole steps; unknown if samples are missing.",
        of_span=lambda span: span.step_spread_seconds,
        compared=False,
        missing="none",
    ),
    _steps(
        "step_gap_seconds",
        "silent time per step",
        "seconds",
        "Silent time within a whole step: (1 - its duty cycle) x its length, mean.",
        of_steps=lambda steps: steps.gap_seconds,
        finest=True,
        least=0.0005,
    ),
    _steps(
        "step_bytes",
        "bytes per step",
        "bytes",
        "Mean rate in whole steps x their mean length; without missing data, their bytes ÷ their number.",
        of_steps=lambda steps: steps.moved_bytes,
    ),
    _steps(
        "step_silent_ratio",
        "silent share of steps",
        "ratio",
        "Silent time per step ÷ step time. Silence is computation, waiting or the host, not exposed traffic.",
        of_span=lambda span: span.bounds.silent_ratio,
        finest=True,
        compared=False,
    ),
    _bounds(
        key="wire_seconds_lower",
        label="wire time, low bound",
        definition="Bytes per step in the busier direction ÷ line rate of one direction.",
        of_span=lambda span: span.bounds.least_wire_seconds,
        finest=False,
    ),
    _bounds(
        key="exposed_seconds_lower",
        label="exposed, low bound",
        definition="Exposed traffic between nodes per step is at least this: 0; with --gpu-active, the active time of "
        "the wire that exceeds that of the GPUs. Waiting inside kernels and traffic within the node are not included.",
        of_span=lambda span: span.bounds.exposed_low_seconds,
    ),
    _bounds(
        key="exposed_seconds_upper",
        label="exposed, high bound",
        definition="It is at most this: the active time of the wire; with --gpu-active, no more than the inactive time "
        "of the GPUs.",
        of_span=lambda span: span.bounds.exposed_high_seconds,
    ),
    _rails("rails", "rails", "count", "Ports in this report.", of_span=lambda span: len(span.series.rails.names)),
    _rails(
        "active_rails",
        "active rails",
        "count",
        "Those with a mean above the threshold.",
        of_span=lambda span: span.balance.active,
    ),
    _rails(
        "fairness_ratio",
        "fairness (Jain index)",
        "number",
        "(Σx)² ÷ (n Σx²) of the mean rates of the rails. With several jobs: of rails with the same jobs; the harmonic "
        "mean of these, weighted by rails.",
        of_span=lambda span: span.balance.fairness,
        of_units=lambda units: units.fairness,
        least=0.002,
    ),
    _rails(
        "idle_rails",
        "idle rails",
        "names",
        "Below 5 % of the median of their siblings while their link was up.",
        of_span=lambda span: _chosen(span, span.balance.idle),
    ),
    _rails(
        "slow_rails",
        "slow rails",
        "names",
        "Not idle, and below 75 % of the median of their siblings while their link was up, by the mean or by the mean "
        "when active.",
        of_span=lambda span: _chosen(span, span.balance.slow),
    ),
    _signature(
        "signature",
        "resembles",
        "word",
        "dense_like, moe_like, idle or unknown: a resemblance, not an identification.",
        of_span=lambda span: span.signature.label,
    ),
    _signature(
        "signature_confidence",
        "confidence",
        "number",
        "Confidence of that label, at most 0.6 for dense and MoE.",
        of_span=lambda span: span.signature.confidence,
        compared=False,
    ),
    _window(
        "window_seconds",
        "window",
        "seconds",
        "Length of the window.",
        of_span=lambda span: span.coverage.seconds,
        compared=False,
    ),
    _window(
        "observed_ratio",
        "observed",
        "ratio",
        "Observed time ÷ window.",
        of_span=lambda span: span.coverage.observed_ratio,
        compared=False,
    ),
    _window(
        "holes",
        "missing spans",
        "count",
        "Runs of samples at which the sum over the rails is unknown.",
        of_span=lambda span: span.coverage.holes,
    ),
    _window(
        "hole_seconds_longest",
        "longest missing span",
        "seconds",
        "Length of the longest of them.",
        of_span=lambda span: span.coverage.longest_hole_seconds,
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
            "σ ÷ mean of the bins of that length that are above the threshold; unknown if most bins miss a sample.",
            of_units=partial(UnitStatistics.variation, timescale_ns=scale_ns),
            least=0.01,
            bin_ns=scale_ns,
        )
        for scale_ns in timescales_ns
    )
    return (*_BEFORE, *variations, *_AFTER)


def variation_key(scale_ns: int) -> str:
    """The key of the row of the coefficient of variation at a time scale."""
    return f"burstiness_cv_{format_duration(scale_ns)}"


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
