"""The rows of the table: what each is called, its unit, what it means. Documentation and tests read them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ibpulse.reporters.units import variation_key
from ibpulse.units import format_duration

Unit = Literal["rate", "bytes", "seconds", "ratio", "number", "count", "names", "word"]


@dataclass(frozen=True, slots=True)
class Row:
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
    Row("mean_bytes_per_second", "Throughput", "mean", "rate", "Bytes of both directions ÷ observed time."),
    Row("transmit_bytes_per_second", "Throughput", "mean, transmit", "rate", "Bytes sent ÷ observed time."),
    Row("receive_bytes_per_second", "Throughput", "mean, receive", "rate", "Bytes received ÷ observed time."),
    Row(
        "active_mean_bytes_per_second",
        "Throughput",
        "mean when active",
        "rate",
        "Time-weighted mean of the ticks above the threshold.",
        finest=True,
    ),
    Row("peak_bytes_per_second", "Throughput", "peak", "rate", "Highest single tick.", finest=True),
    Row("peak_to_mean_ratio", "Throughput", "peak ÷ mean", "number", "Peak ÷ mean.", finest=True),
    Row(
        "duty_cycle_ratio",
        "Throughput",
        "duty cycle",
        "ratio",
        "Time of the ticks above the threshold ÷ observed time.",
        finest=True,
        least=0.002,
    ),
    Row(
        "utilization_ratio",
        "Throughput",
        "utilisation, mean",
        "ratio",
        "Mean ÷ line rate, both directions, of the rails that carry at least 5 % of what the fullest does.",
    ),
    Row("peak_utilization_ratio", "Throughput", "utilisation, peak", "ratio", "Peak ÷ that line rate.", finest=True),
    Row(
        "line_bytes_per_second",
        "Throughput",
        "line rate",
        "rate",
        "That line rate: 2 x the sum of the rails' rates.",
        compared=False,
    ),
)
_AFTER = (
    Row(
        "bursts",
        "Bursts",
        "bursts",
        "count",
        "Runs of ticks above the threshold whose beginning and end were seen.",
        finest=True,
    ),
    Row("burst_seconds_p50", "Bursts", "burst length, median", "seconds", "Of those bursts.", finest=True),
    Row("burst_seconds_p95", "Bursts", "burst length, p95", "seconds", "Of those bursts.", finest=True),
    Row("burst_seconds_longest", "Bursts", "burst length, longest", "seconds", "Of those bursts.", finest=True),
    Row("burst_bytes", "Bursts", "bytes per burst", "bytes", "Mean of those bursts.", finest=True),
    Row("gaps", "Bursts", "gaps", "count", "Runs of the other ticks whose beginning and end were seen.", finest=True),
    Row("gap_seconds_p50", "Bursts", "gap length, median", "seconds", "Of those gaps.", finest=True),
    Row("gap_seconds_p95", "Bursts", "gap length, p95", "seconds", "Of those gaps.", finest=True),
    Row("gap_seconds_longest", "Bursts", "gap length, longest", "seconds", "Of those gaps.", finest=True),
    Row(
        "censored_seconds",
        "Bursts",
        "time in runs cut off",
        "seconds",
        "Time of runs that touch a hole or an end of the window, so that nobody knows how long they were.",
        finest=True,
        compared=False,
    ),
    Row("step_period_seconds", "Steps", "step period", "seconds", "Period of the sum over the rails; none below 0.4."),
    Row(
        "step_period_score",
        "Steps",
        "score of the period",
        "number",
        "0 to 1: twice the rhythm's share of the variance.",
        compared=False,
    ),
    Row("steps", "Steps", "whole steps", "count", "Steps that were told apart, of which at least half was observed."),
    Row("step_seconds", "Steps", "step time", "seconds", "Mean length of the whole steps."),
    Row(
        "step_spread_seconds",
        "Steps",
        "step time, spread",
        "seconds",
        "Standard deviation of the length of whole steps.",
        compared=False,
    ),
    Row(
        "step_gap_seconds",
        "Steps",
        "exposed gaps per step",
        "seconds",
        "Time of a whole step in which the wire is silent: (1 - its duty cycle) x its length, mean.",
        finest=True,
        least=0.0005,
    ),
    Row(
        "step_bytes",
        "Steps",
        "bytes per step",
        "bytes",
        "Mean rate in whole steps x their mean length; without holes their bytes ÷ their number.",
    ),
    Row("rails", "Rails", "rails", "count", "Ports that are described."),
    Row("active_rails", "Rails", "active rails", "count", "Those with a mean above the threshold."),
    Row(
        "fairness_ratio",
        "Rails",
        "fairness (Jain index)",
        "number",
        "(Σx)² ÷ (n Σx²) of the mean rates of the rails.",
        least=0.002,
    ),
    Row("idle_rails", "Rails", "idle rails", "names", "Below 5 % of the median of their siblings."),
    Row(
        "slow_rails",
        "Rails",
        "slow rails",
        "names",
        "Not idle, and below 75 % of the median of their siblings, by the mean or by the mean when active.",
    ),
    Row(
        "signature", "Signature", "resembles", "word", "dense_like, moe_like, idle or unknown: a resemblance, no fact."
    ),
    Row(
        "signature_confidence",
        "Signature",
        "confidence",
        "number",
        "Of that label, at most 0.6 for dense and MoE.",
        compared=False,
    ),
    Row("window_seconds", "Window", "window", "seconds", "Length of what is described.", compared=False),
    Row("observed_ratio", "Window", "observed", "ratio", "Time that no hole covers ÷ window.", compared=False),
    Row("holes", "Window", "holes", "count", "Runs of ticks at which the sum over the rails is not known."),
    Row("hole_seconds_longest", "Window", "longest hole", "seconds", "Of those.", compared=False),
)


def rows(timescales_ns: Sequence[int]) -> tuple[Row, ...]:
    """All rows of a table, with a row of burstiness for each time scale."""
    variations = (
        Row(
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
