"""Compares the clock offsets and the straggler that a gateway reports with the truth, and writes
docs/gateway-accuracy.md.

The simulated nodes of the demo have clocks with known offsets, and one of them computes longer by a known time.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import clients, processes
from bench.gateway import Gateway, running_gateway
from bench.machine import describe
from bench.peak_accuracy import starvation
from ibpulse.simulate.fleet import STRAGGLER
from ibpulse.simulate.shared_job import STRAGGLER_DELAY_NS

PAGE = Path(__file__).parents[1] / "docs/gateway-accuracy.md"
OFFSETS_MS = (0.1, -0.1, 0.5, -0.5, 1.0, -1.0, 5.0, -5.0, 10.0, -10.0, 50.0, -50.0)
NODES = tuple(f"node{number + 1}" for number in range(len(OFFSETS_MS)))
LATE_NODE, LATE_MS = NODES[STRAGGLER], STRAGGLER_DELAY_NS / 1e6
JOB = "/api/v1/jobs/1001"
PORTS = 2
GOAL_MS = 1.0
POLL_SECONDS = 0.5
# the samples of the last ten seconds, and polls of the nodes every five
SETTLE_SECONDS = 15.0

PREFACE = f"""\
# Accuracy of the gateway

Written by `python -m bench.gateway_accuracy`; do not edit.

The demo ran {len(NODES)} simulated nodes with {PORTS} ports each, real daemons on one machine whose clocks are ahead or
behind by known times, with a gateway in front. All of them share one true clock, so the errors are those of the
measurement. *Under load*, two processes compute without pause, and a client requests windows of all nodes from the
gateway without pause; the machine has two processors.
"""


@dataclass(slots=True)
class Run:
    """What a gateway said in some seconds: offsets and uncertainties in ms by node, and summaries of the job."""

    title: str
    clocks: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NODES})
    summaries: list[dict[str, Any]] = field(default_factory=list)
    slips: str = ""

    def errors(self, name: str) -> list[float]:
        """How far the offset of a node was from the truth."""
        true_ms = OFFSETS_MS[NODES.index(name)]
        return [abs(offset - true_ms) for offset, _ in self.clocks[name]]

    def covered(self, name: str) -> int:
        """How often the uncertainty of a node was at least the error."""
        known = zip(self.errors(name), self.clocks[name], strict=True)
        return sum(error <= uncertainty for error, (_, uncertainty) in known)


def main() -> None:
    """Measure with and without load, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_accuracy", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="Length of each measurement (default: 120)")
    parser.add_argument("--output", type=Path, default=PAGE, help="Output file (default: docs/gateway-accuracy.md)")
    options = parser.parse_args()
    machine = describe()
    with running_demo() as (nodes, log, scratch), running_gateway(nodes, scratch / "gateway.log") as gateway:
        processes.wait_for(lambda: all_known(gateway), "all nodes", 60.0)
        with watching(gateway) as summaries:
            idle = measure("idle", gateway, summaries, log, options.seconds)
            with starvation(), windows(gateway, scratch / "clients.log"):
                loaded = measure("under load", gateway, summaries, log, options.seconds)
    runs = (idle, loaded)
    machine.append(f"- each run took {options.seconds} s; {'; '.join(f'{run.title}: {run.slips}' for run in runs)}")
    parts = [PREFACE, *machine, "", *clock_section(runs), "", *late_section(runs), ""]
    options.output.write_text("\n".join(parts))
    print(options.output.read_text())


@contextmanager
def running_demo() -> Iterator[tuple[Path, Path, Path]]:
    """The demo with its nodes: the file that lists them, its log, and a directory for other files."""
    command = [
        *(sys.executable, "-m", "ibpulse", "demo", f"--nodes={len(NODES)}", f"--ports={PORTS}"),
        "--web.listen-address=127.0.0.1:0",
        *(f"--clock-offset={name}={offset:g}ms" for name, offset in zip(NODES, OFFSETS_MS, strict=True)),
    ]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        log = Path(folder) / "demo.log"
        with processes.running(command, log):
            processes.wait_for(lambda: f"{NODES[-1]}: http" in log.read_text(), "the demo", 120.0)
            listed = re.search(r"the nodes are listed in (\S+)", log.read_text())
            assert listed is not None
            yield Path(listed[1]), log, Path(folder)


def all_known(gateway: Gateway) -> bool:
    """Whether the clocks and jobs of all nodes are known."""
    return sum(bool(node["clock"] and node["jobs"]) for node in gateway.nodes()) == len(NODES)


@contextmanager
def watching(gateway: Gateway) -> Iterator[list[dict[str, Any]]]:
    """A viewer of the job; yields its summaries as they come."""
    found: list[dict[str, Any]] = []
    stop = threading.Event()

    def watch() -> None:
        for name, data in gateway.events(f"{JOB}/stream"):
            if stop.is_set():
                return
            if name == "summary":
                found.append(data)

    viewer = threading.Thread(target=watch)
    viewer.start()
    try:
        yield found
    finally:
        stop.set()
        viewer.join()


@contextmanager
def windows(gateway: Gateway, log: Path) -> Iterator[None]:
    """A client that requests windows of all nodes without pause."""
    command = [sys.executable, str(clients.__file__), str(gateway.port), "1", f"{JOB}/window?last=10s"]
    with processes.running(command, log):
        yield


def measure(title: str, gateway: Gateway, summaries: list[dict[str, Any]], log: Path, seconds: int) -> Run:
    """What the gateway says in so many seconds, twice a second."""
    time.sleep(SETTLE_SECONDS)
    run = Run(title)
    first, slipped = len(summaries), slips(log)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for node in gateway.nodes():
            if node["clock"]:
                run.clocks[node["node"]].append((node["clock"]["offset_ms"], node["clock"]["uncertainty_ms"]))
        time.sleep(POLL_SECONDS)
    run.summaries = summaries[first:]
    run.slips = f"the simulation paused for {(slips(log) - slipped) / 1000:.1f} s because the machine was busy"
    return run


def slips(log: Path) -> float:
    """For how long the simulation has paused, in ms, as far as it has said."""
    found = re.findall(r"([0-9.]+) ms in \d+ since it began", log.read_text())
    return float(found[-1]) if found else 0.0


def clock_section(runs: Sequence[Run]) -> Iterator[str]:
    """The table of the clock offsets."""
    yield "## Clock offsets\n"
    yield (
        "`offset_ms` of `/api/v1/nodes`, twice a second. *Error* is the largest distance from the truth, *uncertainty* "
        f"the median and the largest `uncertainty_ms`. The goal is {GOAL_MS:g} ms.\n"
    )
    yield "| clock of the node |" + "".join(f" error, {run.title} | uncertainty, {run.title} |" for run in runs)
    yield "|---:|" + "---:|---:|" * len(runs)
    for name, true_ms in zip(NODES, OFFSETS_MS, strict=True):
        cells = []
        for run in runs:
            unsure = [uncertainty for _, uncertainty in run.clocks[name]]
            cells += [f"{max(run.errors(name)):.3f} ms", f"{median(unsure):.3f} ms, {max(unsure):.3f} ms"]
        yield f"| {true_ms:+g} ms | {' | '.join(cells)} |"
    yield ""
    for run in runs:
        worst = max(max(run.errors(name)) for name in NODES)
        held, every = sum(map(run.covered, NODES)), sum(map(len, run.clocks.values()))
        verdict = "met" if worst <= GOAL_MS else "**missed**"
        yield (
            f"- {run.title}: largest error {worst:.3f} ms ({verdict}); the uncertainty covered the error in {held} of "
            f"{every} cases"
        )


def late_section(runs: Sequence[Run]) -> Iterator[str]:
    """The table of the straggler."""
    yield "## The straggler\n"
    yield (
        f"{LATE_NODE} computes {LATE_MS:g} ms longer in every step; the others are on time. Summaries of the stream of "
        "the job, one per second: `lateness_ms` with its bound `lateness_uncertainty_ms`, and how often the job names "
        "this node as the latest.\n"
    )
    yield "| | summaries | least | median | most | median bound | within the bound | named | others called late |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    yield from map(late_row, runs)


def late_row(run: Run) -> str:
    """The straggler in one run."""
    late, unsure, other = [], [], Counter[str]()
    for summary in run.summaries:
        for row in summary["rows"]:
            if row["node"] == LATE_NODE and row["lateness_ms"] is not None:
                late.append(row["lateness_ms"])
                unsure.append(row["lateness_uncertainty_ms"])
            elif row["late"]:
                other[row["node"]] += 1
    if not late:
        return f"| {run.title} | {len(run.summaries)} |" + " - |" * 7
    held = sum(abs(each - LATE_MS) <= bound for each, bound in zip(late, unsure, strict=True))
    named = sum((summary["job"]["late"] or {}).get("row") == LATE_NODE for summary in run.summaries)
    numbers = (f"{value:.2f} ms" for value in (min(late), median(late), max(late), median(unsure)))
    shares = (f"{100 * held / len(late):.1f} %", f"{100 * named / len(run.summaries):.1f} %")
    return f"| {run.title} | {len(run.summaries)} | {' | '.join((*numbers, *shares))} | {other.total()} |"


if __name__ == "__main__":
    main()
