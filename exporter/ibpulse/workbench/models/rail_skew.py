"""On which rails a hot expert shows, with and without PXN, and with a deduplicated dispatch.

NCCL sends to a GPU of another node over one NIC of the sender's node. With PXN (its default where NVLink is), that is
the NIC with the index of the receiver; without, that of the sender. A deduplicated dispatch sends to the GPU of the
same index on the receiver's node first. Each GPU has a rail of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

PXN, WITHOUT_PXN, DEDUPLICATED = "with PXN", "without PXN", "deduplicated"


@dataclass(frozen=True, slots=True)
class RailLoads:
    """What each rail of each node carries: `transmit` and `receive` are [node][rail], in the unit of the loads."""

    path: str
    transmit: tuple[tuple[float, ...], ...]
    receive: tuple[tuple[float, ...], ...]
    shows: str


def rail_loads(loads: Sequence[float], nodes: int) -> tuple[RailLoads, ...]:
    """The loads of rails for the three ways of sending; every rank sends the same, and `loads` are what ranks receive.

    Law: on each node and for each way, transmit and receive add up to the loads that leave and enter the node.

    Raises:
        ValueError: ranks do not divide by nodes.
    """
    if not 2 <= nodes <= len(loads) or len(loads) % nodes:
        raise ValueError(f"{len(loads)} ranks do not divide by {nodes} nodes; give 2 or more that they divide by")
    gpus = len(loads) // nodes
    held = [loads[at : at + gpus] for at in range(0, len(loads), gpus)]
    others = (nodes - 1) / nodes
    arriving = tuple(tuple(load * others for load in node) for node in held)
    # what one node sends to the others: a share of 1 / nodes of each of their loads
    by_receiver = tuple(
        tuple(math.fsum(held[to][rail] for to in range(nodes) if to != node) / nodes for rail in range(gpus))
        for node in range(nodes)
    )
    evenly = tuple(tuple(math.fsum(row) / gpus for _ in row) for row in by_receiver)
    spread = tuple(tuple(math.fsum(row) / gpus for _ in row) for row in arriving)
    return (
        RailLoads(PXN, by_receiver, arriving, "transmit of one rail on every node, and receive of one port"),
        RailLoads(WITHOUT_PXN, evenly, arriving, "receive of one port only"),
        RailLoads(DEDUPLICATED, evenly, spread, "receive of all rails of one node"),
    )


def hottest(rows: Sequence[Sequence[float]]) -> tuple[int, int, float]:
    """Node, rail and load ÷ mean of the most loaded port."""
    node, rail = max(
        ((at, to) for at, row in enumerate(rows) for to in range(len(row))), key=lambda at: rows[at[0]][at[1]]
    )
    mean = math.fsum(value for row in rows for value in row) / sum(map(len, rows))
    return node, rail, rows[node][rail] / mean if mean else math.nan
