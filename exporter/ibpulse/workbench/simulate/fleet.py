"""Several simulated nodes that share one job: their names, clocks and places, and their trees in one process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.workbench.simulate.fabric import SimulatedFabric
from ibpulse.workbench.simulate.jobs import HOT_RAIL, STRAGGLER_DELAY_NS, share_job
from ibpulse.workbench.simulate.pacing import Slips, run_together
from ibpulse.workbench.simulate.timeline import Workload
from ibpulse.workbench.simulate.tree import CounterReads

CLOCK_OFFSETS_US = (100, -1_200, 2_600, -6_200, 15_000, -23_700, 37_500, -48_700)
"""Offsets of clocks, chosen so that the nodes sample at different parts of an interval of 10 ms."""
STRAGGLER = 2
NODES_PER_RACK = 2
NODES_PER_LEAF = 4
# the trees are written within this time, unless the machine is very busy
BUILD_NS = SECOND_NS // 4


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node: its name, how far its wall clock is ahead of the true time, and where it is."""

    name: str
    clock_offset_ns: int
    rack: str
    leaf: str
    straggler: bool


def plan_nodes(count: int, offsets_ns: Mapping[str, int] | None = None) -> tuple[SimulatedNode, ...]:
    """The nodes `node1`, `node2`, ...; `offsets_ns` has the clock offsets of those that have one."""
    given = offsets_ns or {}
    return tuple(
        SimulatedNode(
            name,
            given.get(name, 0),
            f"rack{number // NODES_PER_RACK + 1}",
            f"leaf{number // NODES_PER_LEAF + 1}",
            number == min(STRAGGLER, count - 1),
        )
        for number, name in enumerate(f"node{number + 1}" for number in range(count))
    )


def different_clocks(nodes: Sequence[SimulatedNode]) -> dict[str, int]:
    """Clock offsets between 0.1 and 50 ms for nodes, by name."""
    choice = itertools.cycle(CLOCK_OFFSETS_US)
    return {node.name: offset_us * MILLISECOND_NS // 1000 for node, offset_us in zip(nodes, choice, strict=False)}


def describe_job(nodes: Sequence[SimulatedNode], rails: int) -> str:
    """The straggler and the hot rail in a sentence."""
    straggler = next(node.name for node in nodes if node.straggler)
    late = f"{straggler} computes {STRAGGLER_DELAY_NS / MILLISECOND_NS:g} ms longer in every step"
    return f"{late}; mlx5_{HOT_RAIL} is the hot rail of every node" if rails > HOT_RAIL else late


def clock_ahead(offset_ns: int) -> Callable[[], int]:
    """A wall clock that is ahead of the true time."""
    return lambda: time.time_ns() + offset_ns


class SimulatedFleet:
    """The trees of the nodes, each in a directory of its name; all of them have the traffic of one job.

    One process writes all trees: it costs less than one for each, and when the machine is busy the job pauses on all
    nodes for the same time, so that their steps stay aligned.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[SimulatedNode],
        workload: Workload,
        seed: int,
        rails: int,
        interval_ns: int,
        management: bool = False,
    ) -> None:
        self._reads = CounterReads()
        self._offsets = [node.clock_offset_ns for node in nodes]
        self.start_ns = time.time_ns() + len(nodes) * BUILD_NS
        """The true time at which the job starts."""
        straggler = next(number for number, node in enumerate(nodes) if node.straggler)
        traffic = share_job(workload, straggler, self._offsets, seed, rails, self.start_ns)
        self.fabrics = [
            SimulatedFabric(directory / node.name, its, interval_ns, management, jobs=1, reads=self._reads)
            for node, its in zip(nodes, traffic, strict=True)
        ]

    def build(self, faults: Mapping[str, object] | None = None) -> None:
        """Write all trees with their state at the start of the job.

        Raises ConfigError for invalid faults, FabricError for a directory with other content.
        """
        for fabric, offset_ns in zip(self.fabrics, self._offsets, strict=True):
            fabric.build(self.start_ns + offset_ns, faults)

    def run(self, stop: Callable[[], bool]) -> Slips:
        """Keep all trees up to date until `stop` is true."""
        slips = Slips()
        paces = [
            fabric.pace(slips, clock_ahead(offset_ns))
            for fabric, offset_ns in zip(self.fabrics, self._offsets, strict=True)
        ]
        run_together(paces, self._reads.pause, stop)
        return slips

    def close(self) -> None:
        """Close the descriptors; the files stay."""
        for fabric in self.fabrics:
            fabric.close()
