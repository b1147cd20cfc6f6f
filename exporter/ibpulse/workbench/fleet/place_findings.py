"""Sentences about leaf switches and racks, changes between spans, missing data and clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ibpulse.base.text import count_text, escape_controls, first_names, statistic_text
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.workbench.fleet.fleet_finding import FleetFinding, factor_text, milliseconds_text, shown_names
from ibpulse.workbench.fleet.fleet_report import FleetReport, PlaceRow

# a place differs if its nodes carry so much more or less than the others, and all of them do
DIFFERENT = 0.1
LEAST_MISSING = 0.01
MOST = 8


def describe_places(report: FleetReport) -> list[FleetFinding]:
    """Leaf switches and racks that differ, and jobs that share a leaf."""
    found = []
    for kind in ("leaf", "rack"):
        places = [place for place in report.places if place.kind == kind]
        found += [one for place in places if (one := _describe_place(report, place, places)) is not None]
        found += _late_place(kind, places)
    for place in report.places:
        if place.kind == "leaf" and len(place.jobs) > 1:
            name, jobs = escape_controls(place.name), shown_names(place.jobs)
            found.append(
                FleetFinding(
                    "shared-leaf",
                    f"{count_text(len(place.jobs), 'job')} share {name}: {jobs}.",
                    f"{count_text(len(place.nodes), 'node')} below it.",
                    "That they share it does not show that one slows the other.",
                    (place.name,),
                )
            )
    return found


def _describe_place(report: FleetReport, place: PlaceRow, places: Sequence[PlaceRow]) -> FleetFinding | None:
    mine = _bandwidths(report, place)
    others = [rate for other in places if other is not place for rate in _bandwidths(report, other)]
    if len(mine) < 2 or len(others) < 2:
        return None
    factor = float(np.median(mine) / np.median(others))
    apart = max(mine) < min(others) if factor < 1 else min(mine) > max(others)
    if abs(factor - 1) < DIFFERENT or not apart:
        return None
    return FleetFinding(
        "place",
        f"The nodes at {place.kind} {escape_controls(place.name)} carry {factor_text(factor)} than the others while "
        "active.",
        f"All {len(mine)} nodes of it are {'below' if factor < 1 else 'above'} all {len(others)} others.",
        "Another job or another stage on these nodes looks the same as the switch.",
        (place.name,),
    )


def _bandwidths(report: FleetReport, place: PlaceRow) -> list[float]:
    rates = [report.numbers[name].active_bandwidth for name in place.nodes if name in report.numbers]
    return [rate for rate in rates if rate is not None]


def _late_place(kind: str, places: Sequence[PlaceRow]) -> list[FleetFinding]:
    late = [place for place in places if place.late]
    if len(late) != 1 or len(late[0].late) < 2 or len(places) < 2:
        return []
    names = shown_names(late[0].late)
    return [
        FleetFinding(
            "place",
            f"All late nodes are at {kind} {escape_controls(late[0].name)}: {names}.",
            f"{len(late[0].late)} of its {len(late[0].nodes)} nodes are late, none elsewhere.",
            "",
            (late[0].name,),
        )
    ]


def describe_changes(report: FleetReport) -> list[FleetFinding]:
    """What changed from the other span or job."""
    if report.changes is None:
        return []
    found = []
    changes = report.changes
    for change in changes.changes:
        if math.isnan(change.ratio):
            continue
        before, after = (statistic_text(value, change.unit) for value in (change.before, change.after))
        interval = f"{100 * (change.low - 1):+.1f} % to {100 * (change.high - 1):+.1f} %"
        known = not math.isnan(change.low)
        word = "changed" if change.significant else "did not change certainly"
        found.append(
            FleetFinding(
                "change",
                f"The {change.label} {word}: from {before} to {after} ({100 * (change.ratio - 1):+.1f} %"
                f"{f', interval {interval}' if known else ''}).",
                f"{changes.before_steps} and {changes.after_steps} steps, resampled"
                if known
                else "Fewer than 20 steps on one side, so there is no interval.",
                f"The intervals hold together at {95} %; the cause of a change is not in the counters.",
            )
        )
    return found


def describe_missing(report: FleetReport) -> list[FleetFinding]:
    """Nodes whose data is missing."""
    found = []
    lossy = [(one.node, one.missing_ratio) for one in report.numbers.values() if one.missing_ratio >= LEAST_MISSING]
    if lossy:
        lossy.sort(key=lambda one: -one[1])
        names = first_names([f"{escape_controls(name)} {100 * ratio:.1f} %" for name, ratio in lossy], MOST)
        found.append(
            FleetFinding(
                "missing",
                f"Samples are missing on {count_text(len(lossy), 'node')}: {names}.",
                "Share of samples between the first and the last one of the node.",
                "Missing data is never counted as silence; steps with lost edges are left out.",
                tuple(name for name, _ in lossy),
            )
        )
    partial = [one.node for one in report.numbers.values() if one.partial_ratio >= LEAST_MISSING]
    if partial:
        text = f"Some rails were not read at times on {shown_names(partial)}, so sums of the node are too low there."
        found.append(FleetFinding("missing", text, "Sums of fewer rails than the node has.", "", tuple(partial)))
    if report.missing:
        nodes = list(dict.fromkeys(node for node, *_ in report.missing))
        seconds = sum(end - begin for _, begin, end, _ in report.missing) / 1e9
        reasons = first_names(list(dict.fromkeys(escape_controls(one[3]) for one in report.missing)), 3)
        text = f"{seconds:.0f} s of node time were not collected, on {shown_names(nodes)}."
        found.append(FleetFinding("not-collected", text, f"Reasons: {reasons}.", "", tuple(nodes)))
    return found


def describe_clocks(report: FleetReport) -> list[FleetFinding]:
    """How well the clocks are known."""
    bounds = {name: node.bound_ns for name, node in report.nodes.items()}
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    unknown = [name for name in bounds if name not in known]
    loose = [name for name, node in report.nodes.items() if node.synchronised is False]
    if known:
        worst = max(known, key=known.__getitem__)
        text = (
            f"The clocks of {len(known)} of {len(bounds)} nodes are known, to ± "
            f"{milliseconds_text(known[worst] / MILLISECOND_NS)} or better."
        )
    else:
        text = "No clock was measured, so no order between nodes is claimed from their clocks."
    parts = [f"Unknown: {shown_names(unknown)}." if unknown and known else ""]
    parts += [f"Not synchronised by their own word: {shown_names(loose)}." if loose else ""]
    limit = "Order between two nodes is claimed only beyond the sum of their bounds. Only ends show a wrong bound."
    return [FleetFinding("clocks", text, " ".join(filter(None, parts)), limit)]
