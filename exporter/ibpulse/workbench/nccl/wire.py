"""Bytes that a node sends per operation of NCCL, and what protocols and packet headers add to them.

n ranks on N nodes, S bytes of the full array; `S` of all-to-all and SendRecv is that of one rank. A ring sends
S (n-1)/n from each node for AllGather and ReduceScatter and twice that for AllReduce; trees and hierarchical algorithms
have the nodes in place of the ranks. The bus bandwidth of nccl-tests is that of a ring (PERFORMANCE.md in
NVIDIA/nccl-tests), so a ring sends at the bus bandwidth. Protocols: LL sends 16 bytes per 8 of data, LL128 128 per 120
(NVIDIA/nccl, src/device).
"""

from __future__ import annotations

import re

RING, TREE, HIERARCHICAL, COLLNET, DIRECT = "ring", "tree", "hierarchical", "collnet", "direct"
PROTOCOLS = {"simple": 1.0, "ll128": 128 / 120, "ll": 2.0}
"""Bytes on the wire per byte of data."""

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (RING, TREE, COLLNET),
    "all_gather": (RING, HIERARCHICAL),
    "reduce_scatter": (RING, HIERARCHICAL),
    "alltoall": (DIRECT,),
    "sendrecv": (DIRECT,),
    "broadcast": (RING,),
    "reduce": (RING,),
    "gather": (),
    "scatter": (),
}
"""The algorithms of each collective whose bytes are known, the one of the bus bandwidth first."""
COLLECTIVES = tuple(ALGORITHMS)
# NCCL's words for algorithms that send the same bytes
_SAME = {"nvlstree": TREE, "collnetdirect": COLLNET, "collnetchain": COLLNET, "pat": HIERARCHICAL}

TOLERANCE = 0.005
"""Of a ratio of bytes: acknowledgements, and samples at the ends of a train."""
# InfiniBand: LRH 8 + BTH 12 + ICRC 4, which port_xmit_data counts; RoCEv2 with Ethernet's preamble, gap and FCS: 82
INFINIBAND_HEADER_BYTES, ROCE_HEADER_BYTES = 24, 82
MTUS = (1024, 2048, 4096)
"""MTUs to expect in bytes if it is unknown."""


def collective_of_program(program: str) -> str:
    """The collective of a program of nccl-tests, such as `/opt/all_reduce_perf_mpi`; empty if it is unknown."""
    found = re.search(r"(?:^|/)([a-z_]+?)_perf(?:_mpi)?$", program)
    return found[1] if found and found[1] in ALGORITHMS else ""


def collective_of_name(name: str) -> str:
    """The collective of a name like `AllReduce`, `all_reduce` or `AlltoAll_perf`; empty if it is unknown."""
    plain = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf")
    return next((known for known in ALGORITHMS if known.replace("_", "") == plain), "")


def bus_factor(collective: str, ranks: int) -> float | None:
    """Bus bandwidth divided by algorithm bandwidth; None for an unknown collective."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if collective in ("broadcast", "reduce", "sendrecv", "send", "recv") else None


def plain_algorithm(word: str) -> str:
    """The algorithm that sends the same bytes as one of NCCL's, by its name in any case."""
    word = word.lower()
    return _SAME.get(word, word)


def node_bytes(collective: str, algorithm: str, size_bytes: float, ranks: int, nodes: int) -> float | None:
    """Payload bytes that a node sends per operation, None if that is not known. No node sends alone: 0 for one node.

    Args:
        collective: a key of `ALGORITHMS`.
        algorithm: one of its algorithms.
        size_bytes: S, as `Measurement.size_bytes`.
        ranks: n, a multiple of the nodes.
        nodes: N.
    """
    if algorithm not in ALGORITHMS.get(collective, ()) or ranks % nodes:
        return None
    if nodes == 1:
        return 0.0
    twice = 2 if collective == "all_reduce" else 1
    if collective in ("sendrecv", "broadcast", "reduce") or algorithm == COLLNET:
        return size_bytes
    if collective == "alltoall":
        return ranks / nodes * size_bytes * (nodes - 1) / nodes
    members = ranks if algorithm == RING else nodes
    return twice * size_bytes * (members - 1) / members


def header_factors(link_layer: str = "", mtu_bytes: int | None = None) -> tuple[float, float]:
    """The least and the most bytes that a counter adds up per byte of payload in full packets.

    InfiniBand counters include 24 bytes per packet. Whether those of RoCE include Ethernet's framing depends on the
    device: 24 to 82. An unknown link layer or MTU widens the range.
    """
    most = INFINIBAND_HEADER_BYTES if link_layer == "InfiniBand" else ROCE_HEADER_BYTES
    mtus = (mtu_bytes,) if mtu_bytes else MTUS
    return 1 + INFINIBAND_HEADER_BYTES / max(mtus), 1 + most / min(mtus)


def explanations(collective: str, ranks: int, nodes: int) -> dict[str, float]:
    """Bytes on the wire, without headers, per byte that the collective's first algorithm sends as payload.

    One for each algorithm and protocol, such as `tree, simple`; none if the bytes are not known, or 0.
    """
    names = ALGORITHMS.get(collective, ())
    first = node_bytes(collective, names[0], 1.0, ranks, nodes) if names else None
    if not first:
        return {}
    return {
        f"{name}, {protocol}": (node_bytes(collective, name, 1.0, ranks, nodes) or 0.0) / first * size
        for name in names
        for protocol, size in PROTOCOLS.items()
    }


def explain(ratio: float, factors: dict[str, float], headers: tuple[float, float]) -> list[str]:
    """The explanations that fit a ratio of bytes on the wire to expected payload, within `TOLERANCE`."""
    low, high = headers
    return [
        name for name, size in factors.items() if size * low * (1 - TOLERANCE) <= ratio <= size * high * (1 + TOLERANCE)
    ]
