"""The rows of the table: what each is called, its unit, what it means. Documentation and tests read them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ibpulse.reports.resampling_units import variation_key
from ibpulse.units import format_duration

Unit = Literal["rate", "bytes", "seconds", "ratio", "number", "count", "names", "word"]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row: its key in JSON, the section it stands in, its label, unit and definition.

    `finest` says that it rests on single ticks, so that it is not known where counters stand still over several.
    `least` is the smallest change that can matter, in its unit, besides the relative one. Where `compared` is false a
    change says nothing of the job.
    """

    key: str
    section: str
    label: str
    unit: Unit
    definition: str
    finest: bool = False
    least: float = 0.0
    compared: bool = True


_BEFORE = (
    ReportRow("mean_bytes_per_second", "Throughput", "mean", "rate", "Bytes of both directions ÷ observed time."),
    ReportRow("transmit_bytes_per_second", "Throughput", "mean, transmit", "rate", "Bytes sent ÷ observed time."),
    ReportRow("receive_bytes_per_second", "Throughput", "mean, receive", "rate", "Bytes received ÷ observed time."),
    ReportRow(
        "active_mean_bytes_per_second",
        "Throughput",
        "mean when active",
        "rate",
        "Time-weighted mean of the ticks above the threshold.",
        finest=True,
    ),
    ReportRow("peak_bytes_per_second", "Throughput", "peak", "rate", "Highest single tick.", finest=True),
    ReportRow("peak_to_mean_ratio", "Throughput", "peak ÷ mean", "number", "Peak ÷ mean.", finest=True),
    ReportRow(
        "duty_cycle_ratio",
        "Throughput",
        "duty cycle",
        "ratio",
        "Time of the ticks above the threshold ÷ observed time.",
        finest=True,
        least=0.002,
    ),
    ReportRow(
        "utilization_ratio",
        "Throughput",
        "utilisation, mean",
        "ratio",
        "Mean ÷ line rate, both directions, of the rails that carry at least 5 % of what the fullest does.",
    ),
    ReportRow(
        "peak_utilization_ratio", "Throughput", "utilisation, peak", "ratio", "Peak ÷ that line rate.", finest=True
    ),
    ReportRow(
        "line_bytes_per_second",
        "Throughput",
        "line rate",
        "rate",
        "That line rate: 2 x the sum of the rails' rates.",
        compared=False,
    ),
)
_AFTER = (
    ReportRow(
        "bursts",
        "Bursts",
        "bursts",
        "count",
        "Runs of ticks above the threshold whose beginning and end were seen.",
        finest=True,
    ),
    ReportRow("burst_seconds_p50", "Bursts", "burst length, median", "seconds", "Of those bursts.", finest=True),
    ReportRow("burst_seconds_p95", "Bursts", "burst length, p95", "seconds", "Of those bursts.", finest=True),
    ReportRow("burst_seconds_longest", "Bursts", "burst length, longest", "seconds", "Of those bursts.", finest=True),
    ReportRow("burst_bytes", "Bursts", "bytes per burst", "bytes", "Mean of those bursts.", finest=True),
    ReportRow(
        "gaps", "Bursts", "gaps", "count", "Runs of the other ticks whose beginning and end were seen.", finest=True
    ),
    ReportRow("gap_seconds_p50", "Bursts", "gap length, median", "seconds", "Of those gaps.", finest=True),
    ReportRow("gap_seconds_p95", "Bursts", "gap length, p95", "seconds", "Of those gaps.", finest=True),
    ReportRow("gap_seconds_longest", "Bursts", "gap length, longest", "seconds", "Of those gaps.", finest=True),
    ReportRow(
        "censored_seconds",
        "Bursts",
        "time in runs cut off",
        "seconds",
        "Time of runs that touch a hole or an end of the window, so that nobody knows how long they were.",
        finest=True,
        compared=False,
    ),
    ReportRow(
        "step_period_seconds", "Steps", "step period", "seconds", "Period of the sum over the rails; none below 0.4."
    ),
    ReportRow(
        "step_period_score",
        "Steps",
        "score of the period",
        "number",
        "0 to 1: twice the rhythm's share of the variance.",
        compared=False,
    ),
    ReportRow(
        "steps", "Steps", "whole steps", "count", "Steps that were told apart, of which at least half was observed."
    ),
    ReportRow("step_seconds", "Steps", "step time", "seconds", "Mean length of the whole steps."),
    ReportRow(
        "step_spread_seconds",
        "Steps",
        "step time, spread",
        "seconds",
        "Standard deviation of the length of whole steps.",
        compared=False,
    ),
    ReportRow(
        "step_gap_seconds",
        "Steps",
        "exposed gaps per step",
        "seconds",
        "Time of a whole step in which the wire is silent: (1 - its duty cycle) x its length, mean.",
        finest=True,
        least=0.0005,
    ),
    ReportRow(
        "step_bytes",
        "Steps",
        "bytes per step",
        "bytes",
        "Mean rate in whole steps x their mean length; without holes their bytes ÷ their number.",
    ),
    ReportRow("rails", "Rails", "rails", "count", "Ports that are described."),
    ReportRow("active_rails", "Rails", "active rails", "count", "Those with a mean above the threshold."),
    ReportRow(
        "fairness_ratio",
        "Rails",
        "fairness (Jain index)",
        "number",
        "(Σx)² ÷ (n Σx²) of the mean rates of the rails.",
        least=0.002,
    ),
    ReportRow("idle_rails", "Rails", "idle rails", "names", "Below 5 % of the median of their siblings."),
    ReportRow(
        "slow_rails",
        "Rails",
        "slow rails",
        "names",
        "Not idle, and below 75 % of the median of their siblings, by the mean or by the mean when active.",
    ),
    ReportRow(
        "signature", "Signature", "resembles", "word", "dense_like, moe_like, idle or unknown: a resemblance, no fact."
    ),
    ReportRow(
        "signature_confidence",
        "Signature",
        "confidence",
        "number",
        "Of that label, at most 0.6 for dense and MoE.",
        compared=False,
    ),
    ReportRow("window_seconds", "Window", "window", "seconds", "Length of what is described.", compared=False),
    ReportRow("observed_ratio", "Window", "observed", "ratio", "Time that no hole covers ÷ window.", compared=False),
    ReportRow("holes", "Window", "holes", "count", "Runs of ticks at which the sum over the rails is not known."),
    ReportRow("hole_seconds_longest", "Window", "longest hole", "seconds", "Of those.", compared=False),
)


def rows(timescales_ns: Sequence[int]) -> tuple[ReportRow, ...]:
    """All rows of a table, with a row of burstiness for each time scale."""
    variations = (
        ReportRow(
            variation_key(scale_ns),
            "Burstiness",
            f"CV at {format_duration(scale_ns)}",
            "number",
            "σ ÷ mean of the bins of that length that are above the threshold.",
            least=0.01,
        )
        for scale_ns in timescales_ns
    )
    return (*_BEFORE, *variations, *_AFTER)
