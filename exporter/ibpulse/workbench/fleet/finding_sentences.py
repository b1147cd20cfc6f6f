"""The findings of a report as plain sentences, each with its evidence and its limit, the most severe first."""

from __future__ import annotations

from typing import get_args

from ibpulse.workbench.fleet.fleet_finding import FleetFinding, Kind
from ibpulse.workbench.fleet.fleet_report import FleetReport
from ibpulse.workbench.fleet.place_findings import describe_changes, describe_clocks, describe_missing, describe_places
from ibpulse.workbench.fleet.rail_findings import describe_failovers, describe_idle, describe_splits
from ibpulse.workbench.fleet.step_findings import (
    describe_coarse,
    describe_counts,
    describe_ends,
    describe_late,
    describe_rhythms,
    describe_stalls,
)

_PARTS = (
    describe_stalls,
    describe_late,
    describe_rhythms,
    describe_failovers,
    describe_idle,
    describe_splits,
    describe_ends,
    describe_counts,
    describe_places,
    describe_changes,
    describe_missing,
    describe_coarse,
    describe_clocks,
)
_SEVERITY = get_args(Kind)


def find_sentences(report: FleetReport) -> list[FleetFinding]:
    """All findings of a report, in the order of their kinds."""
    found = [finding for part in _PARTS for finding in part(report)]
    return sorted(found, key=lambda finding: _SEVERITY.index(finding.kind))
