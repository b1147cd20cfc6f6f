"""Counts how often late nodes of synthetic fleets are found and falsely named.

Every run makes samples of 10 ms of all nodes, with jitter, noise and clock errors, and compares them as a report does.
"""

from __future__ import annotations

from statistics import median

from bench.synthetic_fleet import FleetPlan, SyntheticFleet
from ibpulse.core.statistics.lateness import compare_nodes

LATE, LATE_NODE = 2, "node3"
LATENESS_MS = (0.0, 2.0, 5.0, 10.0, 20.0)
CLOCK_MS = 2.0
RUNS = 100


def measure() -> dict[str, list[str]]:
    """How often a node is named, by its lateness, without and with a ring."""
    free, ring = run_fleets(ring=False), run_fleets(ring=True)
    return {name: [cell, ring[name]] for name, cell in free.items()}


def run_fleets(ring: bool) -> dict[str, str]:
    """How often the late node is named, with its estimate, and any other one."""
    cells, others = {}, 0
    for late_ms in LATENESS_MS:
        late = {LATE: late_ms} if late_ms else {}
        rows = []
        for seed in range(RUNS):
            fleet = SyntheticFleet(FleetPlan(steps=20, late_ms=late, clock_ms=CLOCK_MS, ring=ring, seed=seed))
            found = compare_nodes(fleet.step_times(), fleet.clocks(2 * CLOCK_MS))
            others += any(row.late for name, row in found.items() if name != LATE_NODE or not late)
            rows.append(found[LATE_NODE])
        if late:
            estimate, bound = median(row.lateness_ms for row in rows), median(row.uncertainty_ms for row in rows)
            named = 100 * sum(row.late for row in rows) / RUNS
            cells[f"{late_ms:g} ms"] = f"{named:.0f} %, {estimate:.1f} ± {bound:.1f} ms"
    return {**cells, "another node named": f"{others} of {RUNS * len(LATENESS_MS)}"}
