"""Datasets of small synthetic fleets, made once per test session."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.synthetic_dataset import RailPlan, write_dataset
from bench.synthetic_fleet import FleetPlan, SyntheticFleet
from ibpulse.workbench.fleet.findings import Finding, find_sentences
from ibpulse.workbench.fleet.report import FleetReport, describe_dataset
from ibpulse.workbench.fleet.source import DatasetChoice

FOLDER = tempfile.TemporaryDirectory(prefix="ibpulse-fleets-")
NODES, STEPS = 6, 30
USUAL: dict[str, Any] = {"nodes": NODES, "steps": STEPS, "period_ms": 313.7, "rails": 4}


def plan(**changes: Any) -> FleetPlan:
    """A fleet of six nodes with four rails and 30 steps."""
    return FleetPlan(**(USUAL | changes))


def dataset(name: str, plans: Sequence[FleetPlan], rails: RailPlan | None = None, **named: Any) -> Path:
    """A new dataset."""
    return write_dataset(Path(FOLDER.name) / name, [SyntheticFleet(each) for each in plans], rails, **named)


@functools.cache
def busy_dataset() -> Path:
    """A ring with a straggler, a hot rail, a sick port and a failover, below two leaf switches."""
    labels = {
        f"node{number + 1}": {"leaf": f"leaf{number // 3 + 1}", "rack": f"rack{number // 2 + 1}"}
        for number in range(NODES)
    }
    rails = RailPlan(hot={1: 1.3}, ports={(3, 2): 0.5}, failover=(5, 0, 3, 500))
    return dataset("busy", [plan(ring=True, late_ms={2: 20.0}, clock_ms=2.0)], rails, labels=labels)


@functools.cache
def busy_report() -> FleetReport:
    """Its report."""
    return describe_dataset(busy_dataset(), DatasetChoice())


def findings(name: str, plans: Sequence[FleetPlan], rails: RailPlan | None = None, **named: Any) -> list[Finding]:
    """The findings in a new dataset."""
    return find_sentences(describe_dataset(dataset(name, plans, rails, **named), DatasetChoice()))


def named_by(found: Sequence[Finding], kind: str) -> list[tuple[str, ...]]:
    """What the findings of a kind name."""
    return [finding.subjects for finding in found if finding.kind == kind]
