"""When each node of a training job communicates, from the dependencies of its collective operations.

A node has two queues, as in FSDP: computation and communication. Operation k waits for operation k-1 of its node
and for the computation before it; this waits for operation k-`ahead`. A collective begins when its last member has
arrived and ends for all at the same time. A member that never arrives stops the others by these same rules, each
where the dependencies of its topology lead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
INF = float("inf")
CHUNK = 512 * 1024
"""Bytes of one network message of NCCL with the protocol Simple."""
IN_FLIGHT = 4 * 8 * CHUNK
"""Bytes that a rail sends to a receiver that takes nothing: 8 messages on each of 4 connections."""


@dataclass(frozen=True)
class Shape:
    """A training job.

    Parameters
    ----------
    topology:
        `ring` (data parallel or FSDP over all nodes), `all-to-all` (experts), `pipeline` (stages of neighbours, data
        parallel at the end of the step), `shards` (FSDP within groups of four nodes, AllReduce across the groups).
    step, operations:
        Seconds of a step, and its collective operations.
    share:
        Share of the step in which the wire is busy.
    ahead:
        1 without overlap; 2 or more if communication runs ahead of computation.
    rate:
        Bytes/s of one rail in one direction.
    spread:
        Relative standard deviation of computation times.
    """

    nodes: int
    topology: str = "ring"
    rails: int = 8
    step: float = 1.0
    operations: int = 4
    share: float = 0.4
    ahead: int = 1
    rate: float = 47e9
    spread: float = 0.02

    def __post_init__(self) -> None:
        assert self.topology != "pipeline" or self.operations >= 4, "fewer operations leave stages unconnected"

    @property
    def wire(self) -> float:
        """Seconds of one operation on the wire."""
        return self.step * self.share / self.operations

    @property
    def computation(self) -> float:
        """Seconds of computation before an operation."""
        part = self.step / self.operations
        return part if self.ahead > 1 else part - self.wire

    def groups(self, operation: int) -> list[list[int]]:
        """The groups of nodes of the n-th operation; each list is in the order of the ring."""
        nodes, last = list(range(self.nodes)), operation % self.operations == self.operations - 1
        size = min(4, self.nodes)
        if self.topology in ("ring", "all-to-all"):
            return [nodes]
        if last:
            return [nodes[index::size] for index in range(size)]
        if self.topology == "shards":
            return [nodes[first : first + size] for first in range(0, self.nodes, size)]
        odd = operation % 2
        replicas = [nodes[first : first + size] for first in range(0, self.nodes, size)]
        return [replica[first : first + 2] for replica in replicas for first in range(odd, len(replica), 2)] + [
            replica[:1] for replica in replicas if odd
        ]


def computation_times(shape: Shape, operations: int, rng: np.random.Generator) -> Table:
    """Seconds before each operation of each node, (nodes, operations), log-normal."""
    spread = rng.normal(0.0, shape.spread, (shape.nodes, operations))
    return shape.computation * np.exp(spread - shape.spread**2 / 2)


def schedule(shape: Shape, times: Table, *, broken: dict[int, set[int]] | None = None) -> tuple[Table, Table]:
    """When each node arrives at each operation, and when this ends there; both (nodes, operations), infinite if never.

    An infinite computation time is a node that never arrives. `broken` has the nodes, by operation, in whose groups
    an operation never ends.
    """
    arrives, ends = np.full(times.shape, INF), np.full(times.shape, INF)
    computed = np.zeros(shape.nodes)
    for index in range(times.shape[1]):
        waits = ends[:, index - shape.ahead] if index >= shape.ahead else np.zeros(shape.nodes)
        computed = np.maximum(computed, waits) + times[:, index]
        arrives[:, index] = np.maximum(computed, ends[:, index - 1] if index else 0.0)
        for group in shape.groups(index):
            never = (broken or {}).get(index, set()) & set(group)
            wire = shape.wire if len(group) > 1 else 0.0
            ends[group, index] = INF if never else arrives[group, index].max() + wire
    return arrives, ends


def incomplete(
    shape: Shape, group: list[int], arrives: Table, rng: np.random.Generator, *, credit: float | None = None
) -> tuple[dict[int, tuple[float, float, float]], dict[int, tuple[float, float, float]]]:
    """What the arrived members of a collective still send and receive on one rail while others are missing.

    `arrives` is indexed by node. Returns (begin, end, bytes) by node for sent and for received. A missing member
    takes `credit` bytes, if its buffers were posted ahead of its kernel.
    """
    sent: dict[int, tuple[float, float, float]] = {}
    received: dict[int, tuple[float, float, float]] = {}
    here = [node for node in group if np.isfinite(arrives[node])]
    if not here or len(group) < 2:
        return sent, received
    volume = shape.rate * shape.wire
    credit = float(rng.choice([0, IN_FLIGHT])) if credit is None else credit
    if shape.topology == "all-to-all":
        begin, part = max(arrives[node] for node in here), volume * (len(here) - 1) / (len(group) - 1)
        for node in here if len(here) > 1 else ():
            sent[node] = received[node] = (begin, begin + part / shape.rate, part)
        return sent, received
    chunk, size = volume / (len(group) - 1), len(group)
    first = next(place for place in range(size) if group[place] not in here)
    begin, chunks = -INF, 0
    for place in range(first + 1, first + size):
        node, after = group[place % size], group[(place + 1) % size]
        if node not in here:
            begin, chunks = -INF, 0
            continue
        begin, chunks = max(begin, arrives[node]), chunks + 1
        passed = chunks * chunk if after in here else min(chunks * chunk, credit)
        if passed:
            sent[node] = received[after] = (begin, begin + passed / shape.rate, passed)
    return sent, received


def cut_delays(group: list[int], node: int, rng: np.random.Generator) -> dict[int, float]:
    """Seconds after which members of a running ring stop when one stops: starved on one side, full on the other."""
    size, place = len(group), group.index(node)
    after, before = rng.uniform(20e-6, 100e-6, 2)
    return {
        member: min((index - place) % size * after, (place - index) % size * before)
        for index, member in enumerate(group)
    }
