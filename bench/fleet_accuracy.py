"""Counts how often late nodes of synthetic fleets are found and falsely named, and writes docs/fleet-accuracy.md.

Every run makes samples of 10 ms of all nodes, with jitter, noise and clock errors, and compares them as a report does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.fleet_sentences import count_sentences
from bench.machine import describe
from bench.synthetic_fleet import FleetPlan, SyntheticFleet
from ibpulse.fleet.clock_offsets import ClockOffset
from ibpulse.fleet.lateness import ENOUGH_MS, ENOUGH_Z, MAD_TO_DEVIATION, Lateness, compare_nodes
from ibpulse.fleet.step_edges import StepTimes
from ibpulse.units import MILLISECOND_NS

PAGE = Path(__file__).parents[1] / "docs/fleet-accuracy.md"
LATE = 2
LATENESS_MS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)
CLOCKS_MS = (0.1, 2.0)
SIZES = ((8, 20), (64, 100))
PREFACE = f"""\
# Accuracy of fleet reports

Written by `python -m bench.fleet_accuracy`; do not edit.

Synthetic fleets: steps of 315 ms with a duty cycle of 0.6, sampled every 10 ms; the start of every node and step has
jitter with a standard deviation of 1 ms, every end one of 0.2 ms, the rate noise of 2 %. One node is late. *Found*: it
is named. *False*: runs in which any other node is named. *Estimate*: median of its lateness over the runs, with the
median of the ± that is reported; *within*: how often the truth lies within it. A node is named if it is late by more
than {ENOUGH_MS:g} ms, by more than ± says, and by more than {ENOUGH_Z:g} robust standard deviations of its peers.
"""


@dataclass
class Tally:
    """What was found in several runs."""

    runs: int = 0
    found: int = 0
    false: int = 0
    within: int = 0
    by_clocks: int = 0
    by_clocks_false: int = 0
    apart: int = 0
    estimates: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_accuracy", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="Runs with 8 nodes; a tenth with 64 (default: 300)")
    parser.add_argument("--output", type=Path, default=PAGE, help="Output file (default: docs/fleet-accuracy.md)")
    parser.add_argument("--seeds", type=int, default=10, help="Seeds of each job of the sentences (default: 10)")
    options = parser.parse_args()
    begun = time.process_time()
    parts = [*count_sentences(options.seeds), *_late_tables(options.runs), *_case_table(options.runs)]
    lines = [*describe(), f"- the runs took {time.process_time() - begun:.0f} s of CPU time"]
    options.output.write_text("\n".join([PREFACE, *lines, "", *parts, ""]))
    print(options.output.read_text())


def run_fleets(runs: int, late_ms: float, plan: Mapping[str, Any], bound_ms: float, **clocks: Any) -> Tally:
    """Count over seeds; `claimed_ms` are clocks that are measured wrongly."""
    tally = Tally()
    for seed in range(runs):
        late = {LATE: late_ms} if late_ms else {}
        fleet = SyntheticFleet(FleetPlan(seed=seed, **{"late_ms": late, **plan}))
        times = fleet.step_times()
        measured = {} if clocks.get("unknown") else fleet.clocks(bound_ms, clocks.get("claimed_ms"))
        _count(tally, late_ms, compare_nodes(times, measured), _late_by_clocks(times, measured))
    return tally


def _count(tally: Tally, late_ms: float, found: Mapping[str, Lateness], by_clocks: set[str]) -> None:
    name = f"node{LATE + 1}"
    tally.runs += 1
    if name in found and late_ms:
        late = found[name]
        tally.found += late.late
        tally.within += abs(late.lateness_ms - late_ms) <= late.uncertainty_ms
        tally.estimates.append(late.lateness_ms)
        tally.bounds.append(late.uncertainty_ms)
    tally.false += any(each.late for node, each in found.items() if node != name or not late_ms)
    tally.apart += any(each.ends_apart for each in found.values())
    tally.by_clocks += name in by_clocks and bool(late_ms)
    tally.by_clocks_false += bool(by_clocks - ({name} if late_ms else set()))


def _late_by_clocks(times: Mapping[str, StepTimes], clocks: Mapping[str, ClockOffset]) -> set[str]:
    """The nodes that would be named by their first transmission on the clocks as they are, without any correction."""
    steps = min(len(each) for each in times.values())
    edges = np.array([each.transmit.at[:steps] for each in times.values()]) / MILLISECOND_NS
    scores = np.nanmedian(edges - np.nanmedian(edges, axis=0), axis=1)
    deviation = MAD_TO_DEVIATION * float(np.median(np.abs(scores - np.median(scores))))
    named = (scores > ENOUGH_MS) & (scores - np.median(scores) > ENOUGH_Z * deviation)
    return {name for name, late in zip(times, named, strict=True) if late}


def _late_tables(runs: int) -> Iterator[str]:
    for ring in (False, True):
        yield (
            "## One ring: nobody runs ahead by more than its buffers\n"
            if ring
            else "## Nodes that begin on their own\n"
        )
        if ring:
            yield (
                "The others send 0.4 ms ahead and wait for the late node. A lateness below a sample is not visible "
                "then: what is sent ahead and the start of the burst fall into the same or neighbouring samples.\n"
            )
        else:
            yield (
                "*By clocks*: the same threshold on first transmissions by the clocks as they are, without the ends of "
                "the steps, found and false; the accuracy is that of the clocks then.\n"
            )
        yield "| nodes, steps | clocks | late | found | false | estimate | within | by clocks |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|"
        for nodes, steps in SIZES:
            count = runs if nodes == SIZES[0][0] else max(1, runs // 10)
            for clock in CLOCKS_MS:
                for late in LATENESS_MS:
                    plan = {"nodes": nodes, "steps": steps, "clock_ms": clock, "ring": ring}
                    tally = run_fleets(count, late, plan, 2 * clock)
                    yield f"| {nodes}, {steps} | {clock:g} ms | {late:g} ms | {_cells(tally, late)} |"
        yield ""


def _cells(tally: Tally, late_ms: float) -> str:
    share = f"{100 * tally.found / tally.runs:.0f} %" if late_ms else "-"
    estimate = f"{median(tally.estimates):.2f} ± {median(tally.bounds):.2f} ms" if tally.estimates else "-"
    within = f"{100 * tally.within / tally.runs:.0f} %" if late_ms else "-"
    clocks = f"{100 * tally.by_clocks / tally.runs:.0f} %" if late_ms else "-"
    false = f"{tally.false} of {tally.runs}"
    return f"{share} | {false} | {estimate} | {within} | {clocks}, {tally.by_clocks_false} of {tally.runs} false"


CASES: tuple[tuple[str, float, dict[str, Any], dict[str, Any]], ...] = (
    ("nobody late, 1 % missing data", 0.0, {"missing": 0.01}, {}),
    ("20 ms late, 1 % missing data", 20.0, {"missing": 0.01}, {}),
    ("20 ms late, 5 % missing data", 20.0, {"missing": 0.05}, {}),
    ("nobody late, jitter of 3 ms", 0.0, {"jitter_ms": 3.0}, {}),
    ("5 ms late, jitter of 3 ms", 5.0, {"jitter_ms": 3.0}, {}),
    ("5 ms late, clock errors of 30 ms", 5.0, {"clock_ms": 30.0}, {"bound_ms": 60.0}),
    ("5 ms late, clocks unknown", 5.0, {"clock_ms": 2.0}, {"unknown": True}),
    (
        "nobody late, one clock wrong by 8 ms with a bound of 0.1 ms",
        0.0,
        {"clocks_ms": {5: 8.0}},
        {"claimed_ms": {5: 0.0}},
    ),
    (
        "20 ms late in a ring, its clock wrong by 8 ms with a bound of 0.1 ms",
        20.0,
        {"clocks_ms": {LATE: 8.0}, "ring": True, "period_ms": 313.7},
        {"claimed_ms": {LATE: 0.0}},
    ),
    (
        "nobody late, two of eight nodes in a later stage that is not known",
        0.0,
        {"stage_ms": {6: 30.0, 7: 30.0}, "late_ms": {6: 12.0, 7: 12.0}},
        {},
    ),
    ("nobody late, steps of 320 ms in a ring", 0.0, {"period_ms": 320.0, "ring": True}, {}),
    ("nobody late, 2 nodes", 0.0, {"nodes": 2}, {}),
    ("nobody late, 4 nodes", 0.0, {"nodes": 4}, {}),
    ("5 ms late, 4 nodes", 5.0, {"nodes": 4}, {}),
)


def _case_table(runs: int) -> Iterator[str]:
    yield "## Other cases\n"
    yield "8 nodes and 40 steps unless the case says otherwise. *Ends apart*: runs in which the steps of a node are"
    yield "said to end apart from those of its peers.\n"
    yield "| case | found | false | estimate | ends apart |"
    yield "|---|---:|---:|---:|---:|"
    for title, late, plan, clocks in CASES:
        bound = float(clocks.get("bound_ms", 0.2))
        rest = {name: value for name, value in clocks.items() if name != "bound_ms"}
        tally = run_fleets(max(1, runs // 3), late, plan, bound, **rest)
        share, false, estimate, *_ = _cells(tally, late).split(" | ")
        yield f"| {title} | {share} | {false} | {estimate} | {tally.apart} of {tally.runs} |"


if __name__ == "__main__":
    main()
