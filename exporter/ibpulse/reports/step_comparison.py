"""Compares the steps of a job before and after a change: did they get shorter, and may overlap be the reason?

From the network alone, exposed communication is not known. What is known: the length of steps, their bytes, the least
time that the rails need for these, and the time in which the rails were busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ibpulse.analysis.bootstrap import FEWEST_UNITS, STRONG_CORRELATION, group_size, lag_correlation, resample
from ibpulse.analysis.node_statistics import OBSERVED, RECEIVE, TRANSMIT
from ibpulse.analysis.resampling_units import DURATION, StepStatistics, describe_steps
from ibpulse.analysis.span_statistics import SpanStatistics, describe_span
from ibpulse.arrays import Floats
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.reports.comparison import ratio_interval
from ibpulse.reports.run import Spread
from ibpulse.reports.span import Outside, ReportOptions, choose_window

SAME_WORK = 0.01
"""Bytes per step that differ by more are not those of the same work."""
TOO_CORRELATED, ENOUGH_STEPS = 0.8, 200
"""Above this correlation of neighbouring steps, fewer steps give no verdict: intervals are too narrow."""
WIRE_BOUND = 0.9
"""Above this share of the step, the rails need so much of it that overlap cannot shorten it."""

Outcome = Literal["no-verdict", "other-work", "no-difference", "shorter", "longer"]


@dataclass(frozen=True, slots=True)
class StepRun:
    """The whole steps of a recording, means per step; NaN if unknown.

    `sent_bytes` are those of the direction with more. `least_wire_seconds` is the time that they need at the line
    rate, `busy_seconds` the time in which the rails were active. `correlation` is that of neighbouring step times,
    `group` the number of steps that are resampled together.
    """

    path: Path
    meta: RecordingMeta
    steps: int
    seconds: float
    moved_bytes: float
    sent_bytes: float
    silent_share: float
    least_wire_seconds: float
    busy_seconds: float
    line_bytes_per_second: float
    correlation: float
    group: int
    spreads: dict[str, Spread]

    @property
    def wire_share(self) -> float:
        """The share of the step that the rails need at least."""
        return self.least_wire_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class RatioChange:
    """After ÷ before - 1, and its interval; NaN if unknown."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StepComparison:
    """Two runs of a job, and what can be said of the change. `saved_seconds` per step is negative if steps got longer.

    `claim_seconds` is a saving that somebody claims, or else the measured one; it is `possible` by overlap alone if the
    rails were busy for at least that long, and `doubtful` if the bytes need less time at the line rate.
    """

    before: StepRun
    after: StepRun
    options: ReportOptions
    seconds: RatioChange
    moved_bytes: RatioChange
    saved_seconds: float
    claim_seconds: float
    claimed: bool
    outcome: Outcome
    reason: str

    @property
    def possible(self) -> bool:
        """Whether the rails were busy at least as long as the saving."""
        return not self.claim_seconds > self.before.busy_seconds

    @property
    def doubtful(self) -> bool:
        """Whether the saving is more than the bytes need at the line rate."""
        return self.claim_seconds > self.before.least_wire_seconds


def describe_steps_of(
    path: Path, recording: Recording, options: ReportOptions, place: int = 0, outside: Outside = (0, 0)
) -> StepRun:
    """The steps of the part of a recording that the options select; `place` is its position in the comparison.

    Raises:
        RecordingError: the part is empty, or the recording lacks a chosen port.
    """
    chosen = choose_window(path, recording, options, outside)
    span = describe_span(chosen.series, options.span_options())
    lengths = span.step_sums[:, DURATION]
    correlation = lag_correlation(lengths) if len(lengths) > 1 else math.nan
    group = group_size(max(1, len(lengths)), 0.0 if math.isnan(correlation) else correlation)
    # a seed per position: the same one would resample two runs alike
    drawn = resample(span.step_sums, options.resamples, np.random.default_rng((options.seed, place)), size=group)
    own = describe_steps(span.step_sums.sum(axis=0))
    sent = _sent_bytes(span.step_sums.sum(axis=0))
    line = span.line / max(1, sum(span.series.recorded))
    silent = _silent_share(own, span)
    return StepRun(
        path=path,
        meta=recording.meta,
        steps=len(lengths),
        seconds=float(own.seconds),
        moved_bytes=float(own.moved_bytes),
        sent_bytes=sent,
        silent_share=silent,
        least_wire_seconds=sent / line if line > 0 else math.nan,
        busy_seconds=(1 - silent) * float(own.seconds),
        line_bytes_per_second=line,
        correlation=correlation,
        group=group,
        spreads={} if drawn is None else _spreads(describe_steps(drawn.sums), drawn.groups),
    )


def _spreads(drawn: StepStatistics, groups: int) -> dict[str, Spread]:
    return {"seconds": Spread(drawn.seconds, groups), "moved_bytes": Spread(drawn.moved_bytes, groups)}


def _sent_bytes(sums: Floats) -> float:
    """Bytes per step in the direction with more, from the sums of all steps; NaN if there are none."""
    observed, seconds, count = sums[OBSERVED], sums[DURATION], sums[DURATION + 1]
    if not count or not observed:
        return math.nan
    return float(max(sums[TRANSMIT], sums[RECEIVE]) / observed * seconds / count)


def _silent_share(own: StepStatistics, span: SpanStatistics) -> float:
    """Silent share of a step; NaN if the counters do not resolve samples, which then look active."""
    return math.nan if span.series.resolution_ticks > 1 else float(own.gap_seconds) / float(own.seconds)


def compare_steps(
    before: StepRun, after: StepRun, options: ReportOptions, claim_seconds: float = 0.0
) -> StepComparison:
    """What two recordings of a job say of a change between them; `claim_seconds` is a claimed saving per step."""
    seconds = _change(before, after, "seconds", options.level)
    moved = _change(before, after, "moved_bytes", options.level)
    saved = before.seconds - after.seconds
    outcome, reason = _judge(before, after, seconds, moved, options)
    return StepComparison(
        before=before,
        after=after,
        options=options,
        seconds=seconds,
        moved_bytes=moved,
        saved_seconds=saved,
        claim_seconds=claim_seconds or saved,
        claimed=claim_seconds > 0,
        outcome=outcome,
        reason=reason,
    )


def _change(before: StepRun, after: StepRun, key: Literal["seconds", "moved_bytes"], level: float) -> RatioChange:
    base, other = getattr(before, key), getattr(after, key)
    low, high = ratio_interval(before.spreads.get(key), after.spreads.get(key), level)
    return RatioChange(other / base - 1 if base > 0 else math.nan, low, high)


def _judge(
    before: StepRun, after: StepRun, seconds: RatioChange, moved: RatioChange, options: ReportOptions
) -> tuple[Outcome, str]:
    for name, run in (("before", before), ("after", after)):
        if run.steps < FEWEST_UNITS:
            return "no-verdict", f"the recording {name} has {run.steps} whole steps; {FEWEST_UNITS} or more are needed"
        if run.correlation > TOO_CORRELATED and run.steps < ENOUGH_STEPS:
            return "no-verdict", (
                f"neighbouring steps of the recording {name} are too alike (correlation {run.correlation:.2f}) for "
                f"{run.steps} steps; record {ENOUGH_STEPS} or more"
            )
    if abs(moved.ratio) > SAME_WORK:
        return "other-work", (
            f"bytes per step changed by {100 * moved.ratio:+.2f} %, more than {100 * SAME_WORK:g} %; "
            "compare steps with the same work"
        )
    if seconds.low <= 0 <= seconds.high or abs(seconds.ratio) < options.least_change:
        return "no-difference", ""
    return ("shorter" if seconds.ratio < 0 else "longer"), ""


def wide_interval(run: StepRun) -> bool:
    """Whether steps are so correlated that their interval is wide for their number."""
    return run.correlation > STRONG_CORRELATION
