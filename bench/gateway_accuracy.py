"""Compares the clock offsets and the late node that a gateway reports with the truth.

The simulated nodes of the demo have clocks with known offsets, and one of them computes longer by a known time. All of
them share one true clock, so the errors are those of the measurement.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import clients, processes
from bench.gateway import Gateway, running_gateway
from ibpulse.workbench.simulate.fleet import STRAGGLER
from ibpulse.workbench.simulate.jobs import STRAGGLER_DELAY_NS

OFFSETS_MS = (0.1, -0.1, 0.5, -0.5, 1.0, -1.0, 5.0, -5.0, 10.0, -10.0, 50.0, -50.0)
NODES = tuple(f"node{number + 1}" for number in range(len(OFFSETS_MS)))
LATE_NODE, LATE_MS = NODES[STRAGGLER], STRAGGLER_DELAY_NS / 1e6
JOB = "/api/v1/jobs/1001"
PORTS = 2
SECONDS = 60.0
POLL_SECONDS = 0.5
# the samples of the last ten seconds, and polls of the nodes every five
SETTLE_SECONDS = 15.0


@dataclass(slots=True)
class Run:
    """What a gateway said in a minute: offsets and uncertainties in ms by node, and summaries of the job."""

    clocks: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NODES})
    summaries: list[dict[str, Any]] = field(default_factory=list)

    def cells(self) -> dict[str, str]:
        """The figures by the name of the number."""
        true_ms = dict(zip(NODES, OFFSETS_MS, strict=True))
        offsets = [(abs(offset - true_ms[name]), bound) for name, told in self.clocks.items() for offset, bound in told]
        rows = [row for summary in self.summaries for row in summary["rows"]]
        late = [
            (row["lateness_ms"], row["lateness_uncertainty_ms"])
            for row in rows
            if row["node"] == LATE_NODE and row["lateness_ms"] is not None
        ]
        named = sum((summary["job"]["late"] or {}).get("row") == LATE_NODE for summary in self.summaries)
        return {
            "clock offset": f"at most {max(error for error, _ in offsets):.3f} ms",
            "its uncertainty": f"at most {max(bound for _, bound in offsets):.3f} ms, {held(offsets)}",
            "lateness of 20 ms": f"{min(late)[0]:.1f} to {max(late)[0]:.1f} ms",
            "its bound": f"median {median(bound for _, bound in late):.1f} ms, "
            + held([(abs(each - LATE_MS), bound) for each, bound in late]),
            "late node named": f"{100 * named / len(self.summaries):.0f} %",
            "other node named": str(sum(row["late"] and row["node"] != LATE_NODE for row in rows)),
        }


def held(errors: Sequence[tuple[float, float]]) -> str:
    """How often errors were within their bounds."""
    return f"held in {100 * sum(error <= bound for error, bound in errors) / len(errors):.1f} %"


def measure() -> dict[str, list[str]]:
    """The figures without and with load, by the name of the number."""
    with running_demo() as (nodes, folder), running_gateway(nodes, folder / "gateway.log") as gateway:
        processes.wait_for(lambda: all_known(gateway), "all nodes", 60.0)
        with watching(gateway) as summaries:
            idle = watch(gateway, summaries)
            with processes.compete(), windows(gateway, folder / "clients.log"):
                loaded = watch(gateway, summaries)
    others = loaded.cells()
    return {name: [cell, others[name]] for name, cell in idle.cells().items()}


@contextmanager
def running_demo() -> Iterator[tuple[Path, Path]]:
    """The demo with its nodes: the file that lists them, and a directory for other files."""
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
            yield Path(listed[1]), Path(folder)


def all_known(gateway: Gateway) -> bool:
    """Whether the clocks and jobs of all nodes are known."""
    return sum(bool(node["clock"] and node["jobs"]) for node in gateway.nodes()) == len(NODES)


@contextmanager
def watching(gateway: Gateway) -> Iterator[list[dict[str, Any]]]:
    """A viewer of the job; yields its summaries as they come."""
    found: list[dict[str, Any]] = []
    stop = threading.Event()

    def follow() -> None:
        for name, data in gateway.events(f"{JOB}/stream"):
            if stop.is_set():
                return
            if name == "summary":
                found.append(data)

    viewer = threading.Thread(target=follow)
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


def watch(gateway: Gateway, summaries: list[dict[str, Any]]) -> Run:
    """What the gateway says in a minute, twice a second."""
    time.sleep(SETTLE_SECONDS)
    run = Run()
    first = len(summaries)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for node in gateway.nodes():
            if node["clock"]:
                run.clocks[node["node"]].append((node["clock"]["offset_ms"], node["clock"]["uncertainty_ms"]))
        time.sleep(POLL_SECONDS)
    run.summaries = summaries[first:]
    return run
