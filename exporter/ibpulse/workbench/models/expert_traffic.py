"""Tokens on their way to experts: how many nodes a token visits, and the bytes of an exchange.

A plain all-to-all sends one copy of a token per chosen expert. A deduplicated dispatch (DeepEP, HybridEP, NCCL EP in
its high-throughput mode) sends one copy per node and spreads it there over NVLink.
"""

from __future__ import annotations

from math import comb

PLAIN, DEDUPLICATED = "alltoall", "deduplicated"
DISPATCHERS = (PLAIN, DEDUPLICATED)
FP8_BYTES, BF16_BYTES = 1 + 4 / 128, 2.0
"""Bytes of an element: FP8 has a scale of 4 bytes per 128 elements (DeepEP, tests/test_internode.py)."""


def distinct_nodes(nodes: int, experts: int, chosen: int, most_nodes: int = 0) -> float:
    """Expected number of distinct nodes among the experts of a token: N (1 - C(E - E/N, k) / C(E, k)).

    Routing is uniform and without replacement over `experts`, spread evenly over `nodes`. With node-limited routing
    (`most_nodes` > 0, DeepSeek-V3), the experts are drawn from that many nodes.

    Raises:
        ValueError: more experts are chosen than exist, or experts do not divide by nodes.
    """
    if experts % nodes:
        raise ValueError(f"{experts} experts do not divide by {nodes} nodes")
    if 0 < most_nodes < nodes:
        experts, nodes = experts * most_nodes // nodes, most_nodes
    if chosen > experts:
        raise ValueError(f"{chosen} experts per token are more than the {experts} to choose from")
    return nodes * (1 - comb(experts - experts // nodes, chosen) / comb(experts, chosen))


def remote_copies(dispatcher: str, nodes: int, experts: int, chosen: int, most_nodes: int = 0) -> float:
    """Copies of a token that leave its node.

    Plain: k (N-1)/N. Deduplicated: u (N-1)/N, where u is `distinct_nodes`; by symmetry 1/N of them is its own node.
    """
    copies = chosen if dispatcher == PLAIN else distinct_nodes(nodes, experts, chosen, most_nodes)
    return copies * (nodes - 1) / nodes


def wire_share(logical: float, nodes: int) -> float:
    """The part of a logical bandwidth that is on the wire: (N-1)/N.

    DeepEP's README counts tokens that stay on their node as well.
    """
    return logical * (nodes - 1) / nodes


def exchange_seconds(tokens: float, copies: float, hidden: int, element_bytes: float, bytes_per_second: float) -> float:
    """Seconds of dispatch and combine together; `element_bytes` is the sum for both, 1 + 2 for FP8 and BF16."""
    return element_bytes * tokens * copies * hidden / bytes_per_second


def reached_share(tokens: int, gpus: int, chosen: int) -> float:
    """Expected share of GPUs that get at least one token of a sender: 1 - (1 - k/n)^tokens.

    The k experts of a token are on different GPUs, chosen uniformly.
    """
    return float(1 - (1 - chosen / gpus) ** tokens)
