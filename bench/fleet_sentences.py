"""Counts which sentences of fleet reports are true for synthetic jobs whose truth is known.

Each job is sampled, collected and reported by the program itself; a sentence counts by its kind and the names in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.synthetic_dataset import RailPlan, write_dataset
from bench.synthetic_fleet import FleetPlan, SyntheticFleet
from ibpulse.workbench.fleet.findings import find_sentences
from ibpulse.workbench.fleet.report import FleetReport, describe_dataset
from ibpulse.workbench.fleet.source import DatasetChoice

Names = frozenset[tuple[str, ...]]
NODES, SECONDS = 8, 40.0
# six bursts; a quarter of the step is silent before the first one
BURSTS = ((0.0, 0.09), (0.11, 0.05), (0.18, 0.05), (0.25, 0.05), (0.32, 0.05), (0.40, 0.35))
DENSE = ((0.0, 0.30), (0.31, 0.30), (0.62, 0.33))
USUAL: Mapping[str, Any] = {
    "nodes": NODES,
    "rails": 4,
    "steps": 40,
    "period_ms": 1444.0,
    "bursts": BURSTS,
    "seconds": SECONDS,
    "step_sd": 0.01,
}
KINDS = {
    "late": "late",
    "stall": "stopped sending first",
    "fewer-steps": "joined late or left early",
    "ends-apart": "ends apart",
    "rhythm": "other rhythm",
    "hot-rail": "hot rail",
    "different-port": "single port",
    "different-node": "node carries more or less",
    "failover": "failover",
    "idle-port": "idle port",
}
STEP_ERROR = 0.03
SEEDS = 10


@dataclass(frozen=True)
class SentenceCase:
    """A job, what its rails carry, and the names that are true by kind.

    Clocks are known to `bound_ms`, None if they are not; some may be known wrongly (`lie`), with the same bound.
    """

    name: str
    plan: Mapping[str, Any] = field(default_factory=dict)
    true: Mapping[str, Names] = field(default_factory=dict)
    rails: RailPlan | None = None
    bound_ms: float | None = 0.2
    lie: Mapping[int, float] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] | None = None


def _names(*names: str | tuple[str, ...]) -> Names:
    return frozenset((name,) if isinstance(name, str) else name for name in names)


def _stop(at: float, first: Mapping[int, float] | None = None) -> dict[int, float]:
    """When nodes stop: all at a part of the recording, inside the long burst of a step, some earlier by so many ms."""
    step = 53.0 + 1444.0 * np.floor(at * SECONDS / 1.444)
    return {node: step + 0.55 * 1444.0 - (first or {}).get(node, 0.0) for node in range(NODES)}


FOUR_STAGES = {node: 60.0 * (node // 2) for node in range(NODES)}
TWO_STAGES = {node: 60.0 * (node // 4) for node in range(NODES)}
LABELS = {f"node{node + 1}": {"stage": str(node // 4)} for node in range(NODES)}
LATE = {"late": _names("node3")}
LEFT = {"fewer-steps": _names("node4"), "different-node": _names("node4")}
FAST = {"period_ms": 315.0, "steps": 160, "step_sd": 0.02}
COARSE = {"missing": 0.01, "stride": {1: 10}}
CASES = (
    SentenceCase("nothing wrong"),
    SentenceCase("nothing wrong, clocks unknown", {"clock_ms": 2.0}, bound_ms=None),
    SentenceCase("start jitter of 4 ms", {"jitter_ms": 4.0}),
    SentenceCase("8 ms late, steps vary by 8 %", {"step_sd": 0.08, "late_ms": {2: 8.0}}, LATE),
    SentenceCase("5 ms late", {"late_ms": {2: 5.0}}, LATE),
    SentenceCase("12 ms late from half time on", {"clock_ms": 2.0, "late_ms": {2: 12.0}, "late_from": 0.5}, LATE),
    SentenceCase("12 ms late from a third on", {"late_ms": {2: 12.0}, "late_from": 0.33}, LATE),
    SentenceCase("20 ms late, 2 nodes", {"nodes": 2, "late_ms": {1: 20.0}}),
    SentenceCase("20 ms late, 3 nodes", {"nodes": 3, "late_ms": {2: 20.0}}),
    SentenceCase("10 ms late, 4 nodes", {"nodes": 4, "late_ms": {2: 10.0}}, LATE),
    SentenceCase("8 ms late, 5 % silence", {"bursts": DENSE, "late_ms": {2: 8.0}}, LATE),
    SentenceCase("5 ms late, steps of 315 ms", {**FAST, "late_ms": {2: 5.0}}, LATE),
    SentenceCase("6 ms late, 1 % missing, one node read every 100 ms", {**COARSE, "late_ms": {2: 6.0}}, LATE),
    SentenceCase("8 ms late in one of two stages", {"stage_ms": TWO_STAGES, "late_ms": {2: 8.0}}, LATE, labels=LABELS),
    SentenceCase("four stages without labels", {"stage_ms": FOUR_STAGES}, {"ends-apart": _names(())}),
    SentenceCase("a clock wrong by 30 ms", {"clocks_ms": {4: 30.0}}, {"ends-apart": _names("node5")}, lie={4: 0.0}),
    SentenceCase("stall, one 60 ms before", {"stop_ms": _stop(0.7, {2: 60.0})}, {"stall": _names("node3")}),
    SentenceCase("stall, one 60 ms before, clocks to 50 ms", {"stop_ms": _stop(0.7, {2: 60.0})}, bound_ms=50.0),
    SentenceCase("stall, one 60 ms before, clocks unknown", {"stop_ms": _stop(0.7, {2: 60.0})}, bound_ms=None),
    SentenceCase("stall, a clock 80 ms slow", {"stop_ms": _stop(0.7), "clocks_ms": {3: -80.0}}, bound_ms=None),
    SentenceCase("stall for 12 s, then on", {"stop_ms": _stop(0.4), "resume_ms": 53.0 + 20 * 1444.0}),
    SentenceCase("end of the job", {"stop_ms": _stop(0.7)}),
    SentenceCase("one joins 6 steps late", {"first_step": {3: 6}}, LEFT),
    SentenceCase("one leaves 7 steps early", {"left_ms": {3: 53.0 + 20 * 1444.0}}, LEFT),
    SentenceCase("a hot rail", {}, {"hot-rail": _names("mlx5_1:1")}, RailPlan(hot={1: 1.4})),
    SentenceCase("a sick port", {}, {"different-port": _names(("node3", "mlx5_2:1"))}, RailPlan(ports={(2, 2): 0.5})),
    SentenceCase("a sick port, 2 nodes", {"nodes": 2}, {}, RailPlan(ports={(1, 2): 0.5})),
    SentenceCase("an idle port", {}, {"idle-port": _names(("node2", "mlx5_3:1"))}, RailPlan(ports={(1, 3): 0.0})),
    SentenceCase("a failover", {}, {"failover": _names(("node6", "mlx5_1:1"))}, RailPlan(failover=(5, 1, 2, 2000))),
)


@dataclass
class KindTally:
    """Names of a kind: said, said rightly, and to be said."""

    said: int = 0
    right: int = 0
    true: int = 0


def report_case(case: SentenceCase, fleet: SyntheticFleet) -> FleetReport:
    """The report of a case."""
    clocks = {} if case.bound_ms is None else fleet.clocks(case.bound_ms, case.lie)
    with tempfile.TemporaryDirectory(prefix="ibpulse-sentences-") as folder:
        path = write_dataset(Path(folder), [fleet], case.rails, clocks=clocks, labels=case.labels)
        return describe_dataset(path, DatasetChoice())


def said_names(report: FleetReport) -> dict[str, Names]:
    """The names that the sentences of a report give, by kind."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for finding in find_sentences(report):
        # a stall without an order names nobody
        if finding.kind in KINDS and (finding.subjects or finding.kind != "stall"):
            found.setdefault(finding.kind, set()).add(finding.subjects)
    return {kind: frozenset(names) for kind, names in found.items()}


def measure() -> dict[str, list[str]]:
    """The numbers of names of each kind: said, right, and true."""
    tallies = {kind: KindTally() for kind in KINDS}
    right = every = 0
    for case in CASES:
        for seed in range(1000, 1000 + SEEDS):
            fleet = SyntheticFleet(FleetPlan(**{**USUAL, **case.plan, "seed": seed}))
            report = report_case(case, fleet)
            said = said_names(report)
            for kind, tally in tallies.items():
                mine, true = said.get(kind, frozenset()), case.true.get(kind, frozenset())
                tally.said += len(mine)
                tally.right += len(mine & true)
                tally.true += len(true)
                if mine != true:
                    print(f"{case.name}, seed {seed}: {KINDS[kind]}: {sorted(mine)} instead of {sorted(true)}")
            lengths = [row.step_ms for row in report.steps if row.step_ms is not None]
            right += sum(abs(length / fleet.step_ms - 1) <= STEP_ERROR for length in lengths)
            every += len(lengths)
    rows = {KINDS[kind]: [str(tally.said), str(tally.right), str(tally.true)] for kind, tally in tallies.items()}
    return {**rows, f"usual step within {100 * STEP_ERROR:g} %": list(map(str, (every, right, every)))}
