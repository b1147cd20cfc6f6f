"""The report of a dataset as text, JSON and HTML: findings first, then tables of nodes, rails and places."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ibpulse.base import document
from ibpulse.base.document import Section, members_of, section_lines, wrap
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.text import (
    NOT_KNOWN,
    count_text,
    escape_controls,
    first_names,
    moment_text,
    names_text,
    percent,
    rate_text,
    simulated_text,
    size_text,
)
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.lateness import Estimate
from ibpulse.workbench.fleet.findings import find_sentences, milliseconds_text
from ibpulse.workbench.fleet.report import FleetReport, NodeNumbers, StepRow
from ibpulse.workbench.fleet.source import FleetNode

TEMPLATE = Path(__file__).parent / "report.html.j2"
NAMED = 4
# members of `NodeNumbers` and of `StepRow` in the JSON
NUMBERS = ("active_bytes_per_second", "variation", "silent_ratio", "missing_ratio", "partial_ratio")
STEPS = ("node", "ports", "peers", "steps", "step_ms", "step_bytes", "silent_ratio")
REMARKS = (
    "Bandwidth is transmit + receive of the rails, averaged over the samples with traffic; CV is theirs.",
    "Late: first transmission against that of the median of the peers, on the job's own clock, which the ends of the "
    "steps keep; ± is three standard errors of the median and 0.5 ms for ends that do not coincide.",
    "Own: first transmission minus first receipt of the same node; it needs no other clock.",
    "Ends: how much later its steps end by the clocks as they were measured; ± includes the bounds of the clocks.",
)


def render_text(report: FleetReport) -> str:
    """The report in lines of at most 100 characters, except for tables."""
    lines = [*map(escape_controls, (_title(report), *_warnings(report), *_about(report))), ""]
    for finding in find_sentences(report):
        lines.append(wrap(finding.sentence, "- "))
        lines += [wrap(f"Evidence: {finding.evidence}", "  ")] if finding.evidence else []
        lines += [wrap(f"Limit: {finding.limit}", "  ")] if finding.limit else []
    for table in _tables(report):
        lines += ["", *section_lines(table)]
    return "\n".join([*lines, "", *map(wrap, REMARKS)]) + "\n"


def render_page(report: FleetReport) -> str:
    """The report as HTML."""
    return document.render_page(
        _title(report),
        TEMPLATE,
        warnings=_warnings(report),
        abouts=_about(report),
        findings=find_sentences(report),
        sections=[*_tables(report), Section(lines=REMARKS)],
    )


def render_json(report: FleetReport) -> str:
    """The report as one JSON object; unknown values are null. Times are those of the collector."""
    members = {
        "dataset": str(report.path),
        "job": report.choice.job or None,
        "begin": format_rfc3339(report.origin_ns),
        "end": format_rfc3339(report.end_ns),
        "simulated": report.simulated,
        "findings": find_sentences(report),
        "nodes": [_node_json(node, report.numbers.get(node.name)) for node in report.nodes.values()],
        "steps": [_step_json(row) for row in report.steps],
        "rails": [
            {
                "direction": way,
                "rails": dict(zip(split.rails, split.rail.tolist(), strict=True)),
                "nodes": dict(zip(split.nodes, split.node.tolist(), strict=True)),
            }
            for way, split in zip(DIRECTIONS, report.splits, strict=False)
        ],
        **members_of(report, "stalls", "places"),
        "missing": [
            {"node": node, "begin": format_rfc3339(begin), "end": format_rfc3339(end), "reason": reason}
            for node, begin, end, reason in report.missing
        ],
        "changes": report.changes and report.changes.changes,
    }
    return document.render_json("ibpulse_fleet_report_version", members)


def _node_json(node: FleetNode, numbers: NodeNumbers | None) -> dict[str, Any]:
    return {
        "node": node.name,
        **members_of(node, "labels", "jobs"),
        "clock_offset_ms": node.clock.offset_ns / MILLISECOND_NS if node.clock else None,
        "clock_bound_ms": node.clock.uncertainty_ns / MILLISECOND_NS if node.clock else None,
        "clock_synchronised": node.synchronised,
        "line_rate_bytes_per_second": node.line_rate,
        **(members_of(numbers, *NUMBERS) if numbers else dict.fromkeys(NUMBERS)),
    }


def _step_json(row: StepRow) -> dict[str, Any]:
    late, halves = row.lateness, row.halves
    return {
        **members_of(row, *STEPS),
        "compared_with": late.peers if late else 0,
        "late": row.late is not None if late else None,
        "halves": halves
        and {
            "at_seconds": halves.at,
            "first": _estimate_json(halves.first.start),
            "second": _estimate_json(halves.second.start),
        },
        **{name: _estimate_json(getattr(late, name, None)) for name in ("start", "own", "ends")},
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"ms": estimate.ms, "uncertainty_ms": estimate.uncertainty_ms, "robust_deviations": estimate.z}


def _title(report: FleetReport) -> str:
    return f"{report.path}: {report.choice.text}"


def _warnings(report: FleetReport) -> list[str]:
    names = [name for name, node in report.nodes.items() if node.simulated]
    return [simulated_text("" if len(names) == len(report.nodes) else names_text(names))] if names else []


def _about(report: FleetReport) -> list[str]:
    jobs = list(dict.fromkeys(job for node in report.nodes.values() for job in node.jobs))
    intervals = sorted({node.interval_ns / MILLISECOND_NS for node in report.nodes.values()})
    return [
        f"{count_text(len(report.nodes), 'node')}, {report.seconds:.1f} s from {moment_text(report.origin_ns)}, every "
        f"{' or '.join(f'{each:g} ms' for each in intervals)}",
        f"Jobs: {first_names(jobs, NAMED) or 'none chosen'}",
    ]


def _tables(report: FleetReport) -> list[Section]:
    tables = [_node_table(report), _late_table(report)]
    if report.splits:
        rows = [
            (name, *(f"{split.rail[place]:.2f}" for split in report.splits))
            for place, name in enumerate(report.splits[0].rails)
        ]
        tables.append(Section("Rails, factor on all nodes (1 is usual)", ("rail", *DIRECTIONS), rows))
    if report.places:
        heads = ("place", "nodes", "jobs", "bandwidth", "late", "late nodes")
        rows = [
            (
                f"{place.kind} {place.name}",
                str(len(place.nodes)),
                first_names(place.jobs, NAMED) or NOT_KNOWN,
                _known(place.active_bandwidth, rate_text),
                _known(place.lateness_ms, lambda value: f"{value:+.2f} ms"),
                str(len(place.late)),
            )
            for place in report.places
        ]
        tables.append(Section("Places, medians over their nodes", heads, rows))
    return tables


def _node_table(report: FleetReport) -> Section:
    rows = []
    for name, node in report.nodes.items():
        numbers = report.numbers.get(name)
        steps = [row for row in report.steps if row.node == name]
        most = max(steps, key=lambda row: row.step_bytes or 0.0, default=None)
        rows.append(
            (
                name,
                *(node.labels.get(label, "") or NOT_KNOWN for label in ("leaf", "rack", "stage")),
                _known(most.step_ms if most else None, milliseconds_text),
                _known(most.step_bytes if most else None, size_text),
                _known(numbers.silent_ratio if numbers else None, percent),
                _known(numbers.active_bytes_per_second if numbers else None, rate_text),
                _known(numbers.variation if numbers else None, lambda value: f"{value:.2f}"),
                _known(numbers.missing_ratio if numbers else None, percent),
                _known(node.bound_ns, lambda bound: f"± {milliseconds_text(bound / MILLISECOND_NS)}"),
            )
        )
    heads = ("node", "leaf", "rack", "stage", "step", "bytes/step", "silent", "bandwidth", "CV", "missing", "clock")
    return Section("Nodes", heads, rows)


def _late_table(report: FleetReport) -> Section:
    rows = []
    for row in sorted(report.steps, key=lambda row: -(row.lateness.lateness_ms if row.lateness else -math.inf)):
        late = row.lateness
        cells = ["0", *[NOT_KNOWN] * 4]
        if late is not None:
            z = f"{late.start.z:.1f}"
            cells = [str(late.peers), _estimate(late.start), z, _estimate(late.own), _estimate(late.ends)]
        rows.append((row.node, names_text(row.ports, 2), str(row.steps), *cells, _verdict(row)))
    heads = ("node", "ports", "steps", "peers", "late", "z", "own", "ends", "")
    return Section("Lateness, the latest first", heads, rows)


def _verdict(row: StepRow) -> str:
    if row.late is not None:
        return "late" if row.late is row.lateness else "late in a half"
    return "ends apart" if row.lateness and row.lateness.enough_peers and row.lateness.ends_apart else ""


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return NOT_KNOWN if value is None else text(value)


def _estimate(estimate: Estimate | None) -> str:
    return NOT_KNOWN if estimate is None else f"{estimate.ms:+.2f} ± {estimate.uncertainty_ms:.2f} ms"
