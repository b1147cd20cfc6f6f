"""The sentences around the table: what was described, how sure it is, what is marked. It must not lay anything out."""

from __future__ import annotations

from datetime import UTC, datetime

from ibpulse.reporters.cells import plain_text
from ibpulse.reporters.report import Report
from ibpulse.reporters.run import Run
from ibpulse.units import SECOND_NS, format_duration, format_rate


def about(run: Run) -> str:
    """What a run is, in one line."""
    meta = run.meta
    begin = datetime.fromtimestamp(run.start_ns / SECOND_NS, UTC)
    length = plain_text((run.end_ns - run.start_ns) / SECOND_NS, "seconds")
    made = f"{meta.source}: {meta.reason}" if meta.reason else meta.source
    return (
        f"{run.path}: node {meta.host or '-'}, {made}, every {format_duration(meta.interval_ns)}; "
        f"{length} from {begin:%Y-%m-%d %H:%M:%S} UTC on, {_cut(run)}"
    )


def _cut(run: Run) -> str:
    before, after = run.cut_seconds
    if not before and not after:
        return "the whole recording"
    return f"without {plain_text(before, 'seconds')} before and {plain_text(after, 'seconds')} after"


def remarks(report: Report) -> list[str]:
    """What must be known to read the table."""
    options = report.options
    trimmed = "trimmed to the first and the last active tick" if options.trim else "not trimmed"
    found = [
        f"Windows are {trimmed}. Active is above {format_rate(int(options.active_bytes_per_second))}, transmit + "
        "receive of all described ports."
    ]
    for name, run in zip(report.names, report.runs, strict=True):
        found += [f"{name}: {remark}" for remark in _remarks_on(run)]
    if any(run.spreads for run in report.runs):
        found.append(f"± is half of the {100 * options.level:g} % interval, from {options.resamples} resamples.")
    return found + _on_changes(report)


def _remarks_on(run: Run) -> list[str]:
    found = []
    if not run.meta.complete:
        found.append("the recording was cut off before it was finished.")
    missing = [way for way, there in zip(("transmit", "receive"), run.recorded, strict=True) if not there]
    if len(missing) == 1:
        found.append(f"{missing[0]} was not recorded; sums are those of the other direction.")
    if run.values["peak_bytes_per_second"] is None and any(run.recorded):
        found.append("counters stand still over several ticks, so what rests on single ticks is not known.")
    if run.units == "step":
        found.append(f"resampled in {run.unit_count} whole steps.")
    elif run.units:
        found.append(f"resampled in {run.unit_count} blocks of {plain_text(run.unit_seconds, 'seconds')}.")
    else:
        found.append("too short for intervals: fewer than 20 steps or seconds.")
    return found


def _on_changes(report: Report) -> list[str]:
    compared = max((changes.rows for changes in report.changes), default=0)
    if not report.changes:
        return []
    if not compared:
        return ["No change is marked: there are no intervals."]
    return [
        f"Changes are against {report.names[0]}. Their intervals hold for all {compared} rows together at "
        f"{100 * report.options.level:g} %. * marks a change that matters: 0 lies outside its interval, and it is at "
        f"least {100 * report.options.least_change:g} %. A row without an interval is never marked."
    ]
