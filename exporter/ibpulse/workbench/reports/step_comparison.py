"""Compares the steps of a job before and after a change: did they get shorter, and may overlap be the reason?

From the network alone, exposed communication is not known. What is known: the length of steps, their bytes, the least
time that the rails need for these, and the time in which the rails were busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ibpulse.core.statistics.bootstrap import FEWEST_UNITS, STRONG_CORRELATION
from ibpulse.workbench.reports.run import WholeSteps, ratio_interval
from ibpulse.workbench.reports.span import ReportOptions

SAME_WORK = 0.01
"""Bytes per step that differ by more are not those of the same work."""
TOO_CORRELATED, ENOUGH_STEPS = 0.8, 200
"""Above this correlation of neighbouring steps, fewer steps give no verdict: intervals are too narrow."""
WIRE_BOUND = 0.9
"""Above this share of the step, the rails need so much of it that overlap cannot shorten it."""

Outcome = Literal["no-verdict", "other-work", "no-difference", "shorter", "longer"]


@dataclass(frozen=True, slots=True)
class RatioChange:
    """After ÷ before - 1, and its interval; NaN if unknown."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StepComparison:
    """The steps of two runs, and what can be said of the change.

    `saved_seconds` per step is negative if steps got longer.
    `claim_seconds` is a saving that somebody claims, or else the measured one; it is `possible` by overlap alone if the
    rails were busy for at least that long, and `doubtful` if the bytes need less time at the line rate.
    """

    before: WholeSteps
    after: WholeSteps
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


def compare_steps(before: WholeSteps, after: WholeSteps, options: ReportOptions) -> StepComparison:
    """What two recordings of a job say of a change between them."""
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
        claim_seconds=options.claim_seconds or saved,
        claimed=options.claim_seconds > 0,
        outcome=outcome,
        reason=reason,
    )


def _change(before: WholeSteps, after: WholeSteps, key: Literal["seconds", "moved_bytes"], level: float) -> RatioChange:
    base, other = getattr(before, key), getattr(after, key)
    low, high = ratio_interval(before.spreads.get(key), after.spreads.get(key), level)
    return RatioChange(other / base - 1 if base > 0 else math.nan, low, high)


def _judge(
    before: WholeSteps, after: WholeSteps, seconds: RatioChange, moved: RatioChange, options: ReportOptions
) -> tuple[Outcome, str]:
    for name, run in (("before", before), ("after", after)):
        if run.count < FEWEST_UNITS:
            return "no-verdict", f"the recording {name} has {run.count} whole steps; {FEWEST_UNITS} or more are needed"
        if run.correlation > TOO_CORRELATED and run.count < ENOUGH_STEPS:
            return "no-verdict", (
                f"neighbouring steps of the recording {name} are too alike (correlation {run.correlation:.2f}) for "
                f"{run.count} steps; record {ENOUGH_STEPS} or more"
            )
    if abs(moved.ratio) > SAME_WORK:
        return "other-work", (
            f"bytes per step changed by {100 * moved.ratio:+.2f} %, more than {100 * SAME_WORK:g} %; "
            "compare steps with the same work"
        )
    if seconds.low <= 0 <= seconds.high or abs(seconds.ratio) < options.least_change:
        return "no-difference", ""
    return ("shorter" if seconds.ratio < 0 else "longer"), ""


def wide_interval(run: WholeSteps) -> bool:
    """Whether steps are so correlated that their interval is wide for their number."""
    return run.correlation > STRONG_CORRELATION
