"""A comparison of steps before and after a change, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ibpulse import __version__
from ibpulse.reports.step_comparison import SAME_WORK, WIRE_BOUND, RatioChange, StepComparison, StepRun, wide_interval
from ibpulse.text import NOT_KNOWN, escape_controls, statistic_text
from ibpulse.units import SECOND_NS

VERSION = 1
ONE_RUN_EACH = (
    "one run each proves nothing about the cause: runs also differ by placement, temperature and other jobs; record in "
    "the order before, after, before, after, and compare each pair"
)


def render_json(found: StepComparison) -> str:
    """The comparison as one JSON object; unknown values are null."""
    document = {
        "ibpulse_overlap_compare_version": VERSION,
        "ibpulse_version": __version__,
        "verdict": verdict(found),
        "outcome": found.outcome,
        "remarks": list(remarks(found)),
        "level": found.options.level,
        "before": _run(found.before),
        "after": _run(found.after),
        "step_seconds_change": _change(found.seconds),
        "step_bytes_change": _change(found.moved_bytes),
        "saved_seconds": _known(found.saved_seconds),
        "wire_guard": {
            "saving_seconds": _known(found.claim_seconds),
            "claimed": found.claimed,
            "least_wire_seconds": _known(found.before.least_wire_seconds),
            "busy_seconds": _known(found.before.busy_seconds),
            "possible_by_overlap": found.possible,
        },
    }
    return escape_controls(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), keep="\n") + "\n"


def _run(run: StepRun) -> dict[str, Any]:
    return {
        "file": str(run.path),
        "host": run.meta.host,
        "simulated": run.meta.simulated,
        "interval_seconds": run.meta.interval_ns / SECOND_NS,
        "steps": run.steps,
        "step_seconds": _known(run.seconds),
        "step_bytes": _known(run.moved_bytes),
        "sent_bytes": _known(run.sent_bytes),
        "silent_share": _known(run.silent_share),
        "busy_seconds": _known(run.busy_seconds),
        "least_wire_seconds": _known(run.least_wire_seconds),
        "line_rate_bytes_per_second": _known(run.line_bytes_per_second),
        "correlation": _known(run.correlation),
        "steps_resampled_together": run.group,
    }


def _change(change: RatioChange) -> dict[str, float | None]:
    return {"ratio": _known(change.ratio), "low": _known(change.low), "high": _known(change.high)}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def render_text(found: StepComparison) -> str:
    """The verdict first, then the numbers, then remarks."""
    lines = [verdict(found), "", *_table(found), "", *remarks(found)]
    return escape_controls("\n".join(lines), keep="\n") + "\n"


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


def _table(found: StepComparison) -> Iterator[str]:
    before, after = found.before, found.after
    rows = [
        ("", "before", "after", "change"),
        ("whole steps", str(before.steps), str(after.steps), ""),
        ("step time", _text(before.seconds, "seconds"), _text(after.seconds, "seconds"), _shown(found.seconds)),
        (
            "bytes per step",
            _text(before.moved_bytes, "bytes"),
            _text(after.moved_bytes, "bytes"),
            _shown(found.moved_bytes),
        ),
        ("silent share of a step", _text(before.silent_share, "ratio"), _text(after.silent_share, "ratio"), ""),
        ("rails busy per step", _text(before.busy_seconds, "seconds"), _text(after.busy_seconds, "seconds"), ""),
        (
            "least wire time",
            _text(before.least_wire_seconds, "seconds"),
            _text(after.least_wire_seconds, "seconds"),
            "",
        ),
        ("least wire time, share", _text(before.wire_share, "ratio"), _text(after.wire_share, "ratio"), ""),
        ("correlation of steps", _correlation(before), _correlation(after), ""),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield f"  {'  '.join(cells)}".rstrip()


def _shown(change: RatioChange) -> str:
    return NOT_KNOWN if math.isnan(change.ratio) else _percent(change)


def _text(value: float, unit: str) -> str:
    return statistic_text(value, unit) if math.isfinite(value) else NOT_KNOWN


def _correlation(run: StepRun) -> str:
    return NOT_KNOWN if math.isnan(run.correlation) else f"{run.correlation:.2f}"


def remarks(found: StepComparison) -> Iterator[str]:
    """What limits the verdict, and what the wire says of the saving."""
    if any(run.meta.simulated for run in (found.before, found.after)):
        yield "SIMULATED: at least one recording is from a simulator or a replay, not from hardware."
    if found.outcome in ("shorter", "longer"):
        yield f"{ONE_RUN_EACH[0].upper()}{ONE_RUN_EACH[1:]}."
    if found.outcome in ("shorter", "longer", "no-difference"):
        yield f"Bytes per step agree within {100 * SAME_WORK:g} %: the same work, as far as the wire shows."
    hosts = [run.meta.host for run in (found.before, found.after)]
    if hosts[0] != hosts[1]:
        yield f"The recordings are of different nodes: {hosts[0] or NOT_KNOWN} and {hosts[1] or NOT_KNOWN}."
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
        yield f"Brackets are {100 * found.options.level:g} % intervals, from blocks of neighbouring steps."


def _guard(found: StepComparison) -> Iterator[str]:
    before = found.before
    if math.isnan(before.least_wire_seconds) or not (found.claimed or found.outcome == "shorter"):
        return
    who = "claimed" if found.claimed else "measured"
    saving, busy = statistic_text(found.claim_seconds, "seconds"), _text(before.busy_seconds, "seconds")
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
