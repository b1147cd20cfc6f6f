"""The comparison of steps in a report: its verdict, its rows and remarks, as JSON, and what to look at next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any

from ibpulse.base.text import NOT_KNOWN, statistic_text
from ibpulse.workbench.reports.comparison import Report
from ibpulse.workbench.reports.run import WholeSteps
from ibpulse.workbench.reports.step_comparison import SAME_WORK, WIRE_BOUND, RatioChange, StepComparison, wide_interval

ONE_RUN_EACH = (
    "one run each proves nothing about the cause: runs also differ by placement, temperature and other jobs; record in "
    "the order before, after, before, after, and compare each pair"
)


def steps_json(found: StepComparison) -> dict[str, Any]:
    """The comparison for JSON; unknown values are null."""
    return {
        "verdict": verdict(found),
        "outcome": found.outcome,
        "remarks": list(step_remarks(found)),
        "before": _steps(found.before),
        "after": _steps(found.after),
        "step_seconds_change": _change(found.seconds),
        "step_bytes_change": _change(found.moved_bytes),
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
        "sent_bytes": run.sent_bytes,
        "silent_share": run.silent_share,
        "busy_seconds": run.busy_seconds,
        "least_wire_seconds": run.least_wire_seconds,
        "line_rate_bytes_per_second": run.line_bytes_per_second,
        "correlation": run.correlation,
        "steps_resampled_together": run.group,
    }


def _change(change: RatioChange) -> dict[str, float]:
    return {"ratio": change.ratio, "low": change.low, "high": change.high}


def verdict(found: StepComparison) -> str:
    """One sentence: what can be said of the change."""
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
    correlation = "Correlation of the lengths of neighbouring steps."
    yield row("correlation of steps", correlation, (_correlation(runs[0]), _correlation(runs[1])))


def _shown(change: RatioChange) -> str:
    return NOT_KNOWN if math.isnan(change.ratio) else _percent(change)


def _text(value: float, unit: str) -> str:
    return statistic_text(value, unit) if math.isfinite(value) else NOT_KNOWN


def _correlation(run: WholeSteps) -> str:
    return NOT_KNOWN if math.isnan(run.correlation) else f"{run.correlation:.2f}"


def step_remarks(found: StepComparison) -> Iterator[str]:
    """What limits the verdict, and what the wire says of the saving."""
    if found.outcome in ("shorter", "longer"):
        yield f"{ONE_RUN_EACH[0].upper()}{ONE_RUN_EACH[1:]}."
    if found.outcome in ("shorter", "longer", "no-difference"):
        yield f"Bytes per step agree within {100 * SAME_WORK:g} %: the same work, as far as the wire shows."
    yield from _guard(found)
    for name, run in (("before", found.before), ("after", found.after)):
        if wide_interval(run):
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
    """What to look at after a report of two runs, each with a command; empty for another number of runs."""
    if len(report.runs) != 2:
        return []
    before, after = (shlex.quote(str(run.path)) for run in report.runs)
    found = [f"the samples side by side: `ibpulse render {before} {after} -o runs.png`"]
    hosts = [run.meta.host or "its node" for run in report.runs]
    if hosts[0] != hosts[1]:
        found.append(f"the nodes, which differ: `ibpulse doctor` on {hosts[0]} and on {hosts[1]}")
    for key, words in (("idle_rails", "idle"), ("slow_rails", "slow")):
        new = [rail for rail in _names(report, 1, key) if rail not in _names(report, 0, key)]
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


def _names(report: Report, place: int, key: str) -> tuple[str, ...]:
    value = report.runs[place].values.get(key)
    return value if isinstance(value, tuple) else ()
