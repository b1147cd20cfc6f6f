"""Compares recordings: the significant differences of their statistics, and the steps of a job in two of them.

The network alone does not show exposed communication. It shows the length of steps, their bytes, the least time that
the rails need for these, and the time in which the rails were busy.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ibpulse.base.document import members_of
from ibpulse.base.text import NOT_KNOWN, statistic_text
from ibpulse.core.statistics.recorded import MIN_UNITS, STRONG_CORRELATION
from ibpulse.workbench.reports.rows import ReportRow, brief_rows, rows
from ibpulse.workbench.reports.run import Run, WholeSteps, ratio_interval
from ibpulse.workbench.reports.span import ReportOptions

SAME_WORK = 0.01
"""Steps whose bytes differ by more do not do the same work."""
TOO_CORRELATED, MIN_STEPS = 0.8, 200
"""Above this correlation of neighbouring steps, fewer steps give no verdict: intervals are too narrow."""
WIRE_BOUND = 0.9
"""Above this share of the step, the time on the wire is too long for overlap to shorten the step."""

Outcome = Literal["no-verdict", "other-work", "no-difference", "shorter", "longer"]
ONE_RUN_EACH = (
    "one run each proves nothing about the cause: runs also differ by placement, temperature and other jobs; record in "
    "the order before, after, before, after, and compare each pair"
)
COUNTED = ("count", "names", "word")


@dataclass(frozen=True, slots=True)
class RatioChange:
    """After ÷ before - 1, and its interval; NaN if unknown."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StepComparison:
    """The steps of two runs, and the verdict on the change.

    The saving is `possible` by overlap alone if the rails were busy for at least that long, and `doubtful` if the bytes
    need less time at the line rate.
    """

    before: WholeSteps
    after: WholeSteps
    options: ReportOptions
    seconds: RatioChange
    moved_bytes: RatioChange
    outcome: Outcome
    reason: str

    @property
    def saved_seconds(self) -> float:
        """The measured saving per step, negative if steps got longer."""
        return self.before.seconds - self.after.seconds

    @property
    def claimed(self) -> bool:
        """Whether a saving was claimed."""
        return self.options.claim_seconds > 0

    @property
    def claim_seconds(self) -> float:
        """The claimed saving per step, or else the measured one."""
        return self.options.claim_seconds or self.saved_seconds

    @property
    def possible(self) -> bool:
        """Whether the rails were busy at least as long as the saving."""
        return not self.claim_seconds > self.before.busy_seconds

    @property
    def doubtful(self) -> bool:
        """Whether the saving is more than the bytes need at the line rate."""
        return self.claim_seconds > self.before.least_wire_seconds


def compare_steps(before: WholeSteps, after: WholeSteps, options: ReportOptions) -> StepComparison:
    """Compare the steps of a job before and after a change."""
    seconds = _relative(before, after, "seconds", options.level)
    moved = _relative(before, after, "moved_bytes", options.level)
    outcome, reason = _find_outcome(before, after, seconds, moved, options)
    return StepComparison(before, after, options, seconds, moved, outcome, reason)


def _relative(
    before: WholeSteps, after: WholeSteps, key: Literal["seconds", "moved_bytes"], level: float
) -> RatioChange:
    base, other = getattr(before, key), getattr(after, key)
    low, high = ratio_interval(before.spreads.get(key), after.spreads.get(key), level)
    return RatioChange(other / base - 1 if base > 0 else math.nan, low, high)


def _find_outcome(
    before: WholeSteps, after: WholeSteps, seconds: RatioChange, moved: RatioChange, options: ReportOptions
) -> tuple[Outcome, str]:
    for name, run in (("before", before), ("after", after)):
        if run.count < MIN_UNITS:
            return "no-verdict", f"the recording {name} has {run.count} whole steps; {MIN_UNITS} or more are needed"
        if run.correlation > TOO_CORRELATED and run.count < MIN_STEPS:
            return "no-verdict", (
                f"neighbouring steps of the recording {name} are too alike (correlation {run.correlation:.2f}) for "
                f"{run.count} steps; record {MIN_STEPS} or more"
            )
    if abs(moved.ratio) > SAME_WORK:
        return "other-work", (
            f"bytes per step changed by {100 * moved.ratio:+.2f} %, more than {100 * SAME_WORK:g} %; "
            "compare steps with the same work"
        )
    if seconds.low <= 0 <= seconds.high or abs(seconds.ratio) < options.least_change:
        return "no-difference", ""
    return ("shorter" if seconds.ratio < 0 else "longer"), ""


def steps_json(found: StepComparison) -> dict[str, Any]:
    """The comparison for JSON; unknown values are null."""
    return {
        "verdict": verdict(found),
        "outcome": found.outcome,
        "remarks": list(step_remarks(found)),
        "before": _steps(found.before),
        "after": _steps(found.after),
        "step_seconds_change": found.seconds,
        "step_bytes_change": found.moved_bytes,
        "saved_seconds": found.saved_seconds,
        "wire_guard": {
            "saving_seconds": found.claim_seconds,
            "claimed": found.claimed,
            "least_wire_seconds": found.before.least_wire_seconds,
            "busy_seconds": found.before.busy_seconds,
            "possible_by_overlap": found.possible,
        },
    }


def _steps(run: WholeSteps) -> dict[str, Any]:
    return {
        "steps": run.count,
        "step_seconds": run.seconds,
        "step_bytes": run.moved_bytes,
        **members_of(run, "sent_bytes", "silent_share", "busy_seconds", "least_wire_seconds"),
        "line_rate_bytes_per_second": run.line_bytes_per_second,
        "correlation": run.correlation,
        "steps_resampled_together": run.group,
    }


def verdict(found: StepComparison) -> str:
    """The verdict on the change, in one sentence."""
    if found.outcome == "no-verdict":
        return f"no verdict: {found.reason}"
    if found.outcome == "other-work":
        return f"not the same work: {found.reason}"
    change = f"{_percent(found.seconds)} per step"
    if found.outcome == "no-difference":
        return f"no difference found: step time {change}"
    saved = statistic_text(abs(found.saved_seconds), "seconds")
    sentence = f"steps are {found.outcome} by {saved}: {change}"
    if found.outcome == "shorter" and not found.possible:
        return f"{sentence}; overlap alone cannot save that much"
    return f"{sentence}; one run each does not prove the cause"


def _percent(change: RatioChange) -> str:
    text = f"{100 * change.ratio:+.2f} %"
    return text if math.isnan(change.low) else f"{text} [{100 * change.low:+.2f}, {100 * change.high:+.2f}]"


def step_rows(found: StepComparison) -> Iterator[tuple[str, str, str, str, str]]:
    """The rows as texts: label, definition, before, after, change."""
    runs = found.before, found.after

    def row(label: str, definition: str, texts: tuple[str, str], change: str = "") -> tuple[str, str, str, str, str]:
        return label, definition, *texts, change

    def texts(name: str, unit: str) -> tuple[str, str]:
        return _text(getattr(runs[0], name), unit), _text(getattr(runs[1], name), unit)

    yield row("steps compared", "Whole steps.", (str(runs[0].count), str(runs[1].count)))
    yield row("time per step", "Mean length of these steps.", texts("seconds", "seconds"), _shown(found.seconds))
    yield row("bytes of a step", "Both directions.", texts("moved_bytes", "bytes"), _shown(found.moved_bytes))
    yield row("silent share per step", "Share in which the rails are not active.", texts("silent_share", "ratio"))
    yield row("rails busy per step", "Time in which the rails are active.", texts("busy_seconds", "seconds"))
    least = "Time that the direction with more bytes needs at the line rate of all rails."
    yield row("least wire time", least, texts("least_wire_seconds", "seconds"))
    yield row("wire time ÷ step time", "Least wire time ÷ step time.", texts("wire_share", "ratio"))
    first, second = (NOT_KNOWN if math.isnan(run.correlation) else f"{run.correlation:.2f}" for run in runs)
    yield row("correlation of steps", "Correlation of the lengths of neighbouring steps.", (first, second))


def _shown(change: RatioChange) -> str:
    return NOT_KNOWN if math.isnan(change.ratio) else _percent(change)


def _text(value: float, unit: str) -> str:
    return statistic_text(value, unit) if math.isfinite(value) else NOT_KNOWN


def step_remarks(found: StepComparison) -> Iterator[str]:
    """The limits of the verdict, and a check of the saving against the wire."""
    if found.outcome in ("shorter", "longer"):
        yield f"{ONE_RUN_EACH[0].upper()}{ONE_RUN_EACH[1:]}."
    if found.outcome in ("shorter", "longer", "no-difference"):
        yield f"Bytes per step agree within {100 * SAME_WORK:g} %: the same work, as far as the wire shows."
    yield from _guard(found)
    for name, run in (("before", found.before), ("after", found.after)):
        if run.correlation > STRONG_CORRELATION:
            yield (
                f"Steps {name} are correlated: intervals are wide, from blocks of {run.group} steps; more steps "
                "narrow them."
            )
        if run.wire_share > WIRE_BOUND:
            share = f"{100 * run.wire_share:.0f} %"
            yield f"The rails need {share} of the step {name}: overlap cannot help, fewer bytes can."
    yield (
        "Silence is not exposed communication: it is computation, waiting, or the host. More overlap may lower or "
        "raise the silent share; judge by the step time. NVLink and waiting inside kernels are invisible here."
    )
    if found.before.spreads:
        yield f"Brackets are {100 * found.options.level:g} % intervals of these rows alone, from blocks of whole steps."


def _guard(found: StepComparison) -> Iterator[str]:
    before = found.before
    if math.isnan(before.least_wire_seconds) or not (found.claimed or found.outcome == "shorter"):
        return
    who = "claimed" if found.claimed else "measured"
    saving, busy = (_text(each, "seconds") for each in (found.claim_seconds, before.busy_seconds))
    least = statistic_text(before.least_wire_seconds, "seconds")
    beginning = f"The {who} saving of {saving} per step is"
    if not found.possible:
        yield (
            f"{beginning} more than the {busy} in which the rails were busy before: overlap of this traffic cannot "
            "save it, so something else changed too."
        )
    elif found.doubtful:
        yield (
            f"{beginning} more than the {least} that the bytes need at the line rate: overlap explains it only if "
            f"the rails were slower than that; they were busy for {busy}."
        )
    else:
        yield f"{beginning} within the {least} that the bytes need at the line rate."


def look_next(report: Report) -> list[str]:
    """Next steps after a report of two runs, each with a command; empty for another number of runs."""
    if len(report.runs) != 2:
        return []
    before, after = (shlex.quote(str(run.path)) for run in report.runs)
    found = [f"the samples side by side: `ibpulse render {before} {after} -o runs.png`"]
    hosts = [run.meta.host or "its node" for run in report.runs]
    if hosts[0] != hosts[1]:
        found.append(f"the nodes, which differ: `ibpulse doctor` on {hosts[0]} and on {hosts[1]}")
    for key, words in (("idle_rails", "idle"), ("slow_rails", "slow")):
        new = [rail for rail in _rails(report, 1, key) if rail not in _rails(report, 0, key)]
        if new:
            found.append(f"rails that became {words}, {', '.join(new)}: `ibpulse doctor` on {hosts[1]}")
    outcome = report.steps.outcome if report.steps else ""
    if outcome == "no-verdict":
        found.append("more steps: `ibpulse record run.parquet --duration=60s` or longer, for each run")
    if outcome in ("other-work", "longer"):
        found.append(f"the bytes that the job should move: `ibpulse model JOB.yaml --against={after}`")
    if outcome in ("shorter", "longer"):
        found.append(
            f"what a step waits for: `ibpulse trace TRACE.json.gz --against={after}`, with a trace of the profiler "
            "taken during that recording"
        )
    return found


def _rails(report: Report, place: int, key: str) -> tuple[str, ...]:
    value = report.runs[place].values.get(key)
    return value if isinstance(value, tuple) else ()


@dataclass(frozen=True, slots=True)
class Change:
    """A value compared with the base: `ratio` is value ÷ base - 1, `low` to `high` its interval; None if unknown.

    `differs`: the change is significant; for the lists of idle and slow rails: they are different rails.
    """

    ratio: float | None
    low: float | None
    high: float | None
    differs: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes by row key. Each interval is at `level`, which makes all hold together at the requested level
    (Bonferroni). `rows` is the number of rows with an interval.
    """

    by_key: Mapping[str, Change]
    level: float
    rows: int


def compare(base: Run, other: Run, table: Sequence[ReportRow], options: ReportOptions) -> Changes:
    """The changes from one recording to another."""
    scattered = [row for row in table if row.compared and row.key in base.spreads and row.key in other.spreads]
    level = 1 - (1 - options.level) / max(1, len(scattered))
    found = {row.key: _change(row, base, other, level, options) for row in table}
    return Changes({key: change for key, change in found.items() if change}, level, len(scattered))


def _change(row: ReportRow, base: Run, other: Run, level: float, options: ReportOptions) -> Change | None:
    before, after = base.values[row.key], other.values[row.key]
    if row.unit == "names":
        return Change(None, None, None, before != after)
    if row.unit in COUNTED or not row.compared:
        return None
    if not isinstance(before, float) or not isinstance(after, float) or before <= 0:
        return None
    ratio = after / before - 1
    low, high = ratio_interval(base.spreads.get(row.key), other.spreads.get(row.key), level)
    if math.isnan(low):
        return Change(ratio, None, None, False)
    matters = abs(ratio) >= options.least_change and abs(after - before) >= row.least
    return Change(ratio, low, high, matters and not low <= 0 <= high)


@dataclass(frozen=True, slots=True)
class Report:
    """The runs in the given order; `changes` compares every run after the first with the first.

    `steps` compares the steps of two runs; None for another number, in a brief report, and with too much missing.
    """

    options: ReportOptions
    rows: tuple[ReportRow, ...]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    changes: tuple[Changes, ...]
    steps: StepComparison | None = None


def assemble(runs: Sequence[Run], options: ReportOptions, titles: Sequence[str] = ()) -> Report:
    """The report of one or more runs, without the rows that no run has a value for.

    `titles` name the first runs; the others are named by their files.
    """
    every = brief_rows(options.timescales_ns) if options.brief else rows(options.timescales_ns)
    # the rows of a brief report are always the same ten
    table = tuple(row for row in every if options.brief or any(run.values[row.key] is not None for run in runs))
    changes = tuple(compare(runs[0], run, table, options) for run in runs[1:])
    comparable = len(runs) == 2 and not options.brief and not any(run.too_much_missing for run in runs)
    steps = compare_steps(runs[0].steps, runs[1].steps, options) if comparable else None
    return Report(options, table, tuple(runs), (*titles, *_names(runs)[len(titles) :]), changes, steps)


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Names that distinguish the runs: file names without suffix, else paths, else numbers."""
    names = [run.path.name.removesuffix(".parquet") for run in runs]
    for unlike in (names, [str(run.path) for run in runs]):
        if len(set(unlike)) == len(unlike):
            return tuple(unlike)
    return tuple(f"{name} ({place})" for place, name in enumerate(names, 1))
