"""Bytes that one node sends, and one GPU passes on over NVLink, in a collective operation.

`size` is the whole array in bytes: of an all-gather its result, of a reduce-scatter and an all-reduce its input, of an
all-to-all the buffer of one rank. One node receives as many bytes as it sends.

Ring factors are those of nccl-tests, doc/PERFORMANCE.md. Over several nodes with several GPUs each, NCCL's tuner
(src/graph/tuning.cc) leaves only the ring for all-gather and reduce-scatter; hierarchical kernels need registered
buffers, CollNet, or one GPU per node (PAT). Trees and hierarchical algorithms reduce within the node first, over
NVLink, so that only the exchange between nodes is on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ibpulse.workbench.models.placement import RankGroup

RING, HIERARCHICAL = "ring", "hierarchical"
ALGORITHMS = (RING, HIERARCHICAL)


@dataclass(frozen=True, slots=True)
class WireRule:
    """Bytes on the wire per group and node, and over NVLink per GPU, for an array of one byte, with their formula."""

    wire: Callable[[RankGroup], float]
    nvlink: Callable[[RankGroup], float]
    formula: str


def _ring_share(group: RankGroup) -> float:
    return (group.size - 1) / group.size


def _ring_nvlink_share(group: RankGroup) -> float:
    """Of g hops of a ring, N lead to another node and leave through a NIC."""
    return _ring_share(group) * (_member_share(group) if group.crosses_wire else 1.0)


def _node_share(group: RankGroup) -> float:
    return (group.nodes - 1) / group.nodes


def _member_share(group: RankGroup) -> float:
    return (group.members - 1) / group.members


_ONE_WAY: Mapping[str, WireRule] = {
    RING: WireRule(_ring_share, _ring_nvlink_share, "S (g-1)/g"),
    HIERARCHICAL: WireRule(_node_share, _member_share, "S (N-1)/N"),
}
RULES: Mapping[str, Mapping[str, WireRule]] = {
    "all-gather": _ONE_WAY,
    "reduce-scatter": _ONE_WAY,
    "all-reduce": {
        RING: WireRule(
            lambda group: 2 * _ring_share(group), lambda group: 2 * _ring_nvlink_share(group), "2 S (g-1)/g"
        ),
        HIERARCHICAL: WireRule(
            lambda group: 2 * _node_share(group), lambda group: 2 * _member_share(group), "2 S (N-1)/N"
        ),
    },
    # over NVLink to the GPU whose NIC is on the rail of the receiver (PXN), or to the receiver itself
    "all-to-all": dict.fromkeys(
        ALGORITHMS, WireRule(lambda group: group.members * _node_share(group), _member_share, "m S (N-1)/N")
    ),
    # each rank sends to the next one: only the last rank of a node sends to another node
    "send": dict.fromkeys(
        ALGORITHMS, WireRule(lambda _: 1.0, lambda group: _member_share(group) if group.crosses_wire else 1.0, "S")
    ),
}
"""By operation and algorithm. g ranks of a group, N nodes that it spans, m of its ranks on one node."""


def group_wire_bytes(operation: str, algorithm: str, size: float, group: RankGroup) -> float:
    """Bytes that a node sends for one group; 0 if the group stays within a node."""
    return RULES[operation][algorithm].wire(group) * size if group.crosses_wire else 0.0


def node_wire_bytes(operation: str, algorithm: str, size: float, group: RankGroup) -> float:
    """Bytes that a node sends for all groups of this kind that it has ranks of."""
    return group.per_node * group_wire_bytes(operation, algorithm, size, group)


def nvlink_bytes(operation: str, algorithm: str, size: float, group: RankGroup) -> float:
    """Bytes that one GPU sends over NVLink, roughly; 0 if it is the only one of its group on the node."""
    if group.members == 1:
        return 0.0
    return RULES[operation][algorithm].nvlink(group) * size


def ring_steps(operation: str, group: RankGroup) -> tuple[int, int]:
    """Steps of a ring within nodes and between nodes: 2(g-1) for an all-reduce, of which 2(N-1) between nodes."""
    rounds = 2 if operation == "all-reduce" else 1
    between = rounds * (group.nodes - 1)
    return rounds * (group.size - 1) - between, between
