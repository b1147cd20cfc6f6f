"""A report as JSON. It must not know what the values mean. docs/report.md describes every member."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ibpulse import __version__
from ibpulse.reporters.changes import Changes
from ibpulse.reporters.report import Report
from ibpulse.reporters.run import Run
from ibpulse.units import SECOND_NS

VERSION = 1


def render_json(report: Report) -> str:
    """The report as one JSON object; what is not known is null."""
    options = report.options
    document = {
        "ibpulse_report_version": VERSION,
        "ibpulse_version": __version__,
        "options": {
            "trim": options.trim,
            "active_bytes_per_second": options.active_bytes_per_second,
            "timescales_seconds": [scale / SECOND_NS for scale in options.timescales_ns],
            "least_change": options.least_change,
            "level": options.level,
            "resamples": options.resamples,
            "seed": options.seed,
        },
        "rows": [
            {name: getattr(row, name) for name in ("key", "section", "label", "unit", "definition")}
            for row in report.rows
        ],
        "recordings": [_recording(report, name, run) for name, run in zip(report.names, report.runs, strict=True)],
        "changes": [
            _changes(report.names[0], name, changes)
            for name, changes in zip(report.names[1:], report.changes, strict=True)
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _recording(report: Report, name: str, run: Run) -> dict[str, Any]:
    keys = [row.key for row in report.rows]
    intervals = {key: run.spreads[key].interval(report.options.level) for key in keys if key in run.spreads}
    return {
        "name": name,
        "file": str(run.path),
        "host": run.meta.host,
        "source": run.meta.source,
        "reason": run.meta.reason,
        "labels": dict(run.meta.labels),
        "complete": run.meta.complete,
        "interval_seconds": run.meta.interval_ns / SECOND_NS,
        "begin": _instant(run.start_ns),
        "end": _instant(run.end_ns),
        "cut_before_seconds": run.cut_seconds[0],
        "cut_after_seconds": run.cut_seconds[1],
        "recorded": [way for way, there in zip(("transmit", "receive"), run.recorded, strict=True) if there],
        "resampled": {"unit": run.units or None, "count": run.unit_count, "mean_seconds": run.unit_seconds},
        "values": {key: run.values[key] for key in keys},
        "intervals": intervals,
        "ports": [asdict(port) for port in run.ports],
    }


def _changes(base: str, name: str, changes: Changes) -> dict[str, Any]:
    return {
        "base": base,
        "name": name,
        "level_of_each": changes.level,
        "values": {key: asdict(change) for key, change in changes.by_key.items()},
    }


def _instant(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
