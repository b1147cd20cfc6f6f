"""Groups of ranks, bytes and times of collective operations, and bisection bandwidths of networks.

Ranks fill nodes in blocks, the innermost dimension first: Megatron-LM orders the dimensions tp-cp-ep-dp-pp, innermost
first (parallel_state.py). The distance between two neighbours of a group in ranks is its stride: the product of the
dimensions inside it.

`size` is the whole array in bytes: of an all-gather its result, of a reduce-scatter and an all-reduce its input, of an
all-to-all the buffer of one rank. One node receives as many bytes as it sends.

Ring factors are those of nccl-tests, doc/PERFORMANCE.md. Over several nodes with several GPUs each, NCCL's tuner
(src/graph/tuning.cc) leaves only the ring for all-gather and reduce-scatter; hierarchical kernels need registered
buffers, CollNet, or one GPU per node (PAT). Trees and hierarchical algorithms reduce within the node first, over
NVLink, so that only the exchange between nodes is on the wire.

Fixed costs are the constants of NCCL's tuner for the protocol Simple. Times of 8 GiB are within about 10 % of this
model; nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate with each other, one group of many like it.

    `size` is the number of ranks of a group, `stride` their distance, `node_gpus` the number of GPUs of a node.

    Raises:
        ValueError: groups of this size and stride do not fill nodes evenly.
    """

    name: str
    size: int
    stride: int
    node_gpus: int

    def __post_init__(self) -> None:
        slots = max(1, self.node_gpus // self.stride)
        whole = self.node_gpus % self.stride == 0 or self.stride % self.node_gpus == 0
        if not whole or (self.size % slots and slots % self.size):
            raise ValueError(
                f"{self.name}: groups of {self.size} ranks at a distance of {self.stride} do not fit evenly into nodes "
                f"of {self.node_gpus} GPUs; choose degrees that divide {self.node_gpus} or are multiples of it"
            )

    @property
    def members(self) -> int:
        """Ranks of one group on one node: max(1, min(size, G // stride))."""
        return max(1, min(self.size, self.node_gpus // self.stride))

    @property
    def nodes(self) -> int:
        """Nodes that a group spans: size / members."""
        return self.size // self.members

    @property
    def crosses_wire(self) -> bool:
        """Whether a group spans more than one node: size x stride > G."""
        return self.nodes > 1

    @property
    def per_node(self) -> int:
        """Groups of this kind that have ranks on one node: G / members."""
        return self.node_gpus // self.members


RING, HIERARCHICAL = "ring", "hierarchical"
ALGORITHMS = (RING, HIERARCHICAL)


@dataclass(frozen=True, slots=True)
class WireRule:
    """Bytes on the wire per group and node, and over NVLink per GPU, of an array of one byte, and their formula."""

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
"""By operation and algorithm. g ranks of a group on N nodes, m of them on each."""


def node_wire_bytes(operation: str, algorithm: str, size: float, group: RankGroup) -> float:
    """Bytes that a node sends for all groups of this kind that it has ranks of; 0 if they stay within a node."""
    return group.per_node * RULES[operation][algorithm].wire(group) * size if group.crosses_wire else 0.0


def nvlink_bytes(operation: str, algorithm: str, size: float, group: RankGroup) -> float:
    """Bytes that one GPU sends over NVLink, roughly; 0 if it is the only one of its group on the node."""
    if group.members == 1:
        return 0.0
    return RULES[operation][algorithm].nvlink(group) * size


# NCCL's tuner (src/graph/tuning.cc), in microseconds
RING_BASE_US, RING_NVLINK_US, RING_NETWORK_US = 8.4, 3.4, 14.0
MESSAGE_BYTES = 512 * 1024
"""Bytes of one network message: NCCL_BUFFSIZE of 4 MiB in 8 steps, with the Simple protocol (init.cc, device.h)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rails of a node and their usable rate, and that of NVLink per GPU, in bytes per second and one direction."""

    rails: int
    rail_bytes_per_second: float
    nvlink_bytes_per_second: float

    @property
    def node_bytes_per_second(self) -> float:
        """Usable rate of a node's rails together."""
        return self.rails * self.rail_bytes_per_second


def latency_seconds(operation: str, group: RankGroup) -> float:
    """The fixed cost of one ring operation: base + steps over NVLink + steps between nodes.

    A ring has g-1 steps, N-1 of them between nodes, and an all-reduce twice as many. Sends are one step.
    """
    rounds = 2 if operation == "all-reduce" else 1
    steps, between = rounds * (group.size - 1), rounds * (group.nodes - 1)
    if operation in ("send", "all-to-all"):
        steps = between = 1
    if not group.crosses_wire:
        between = 0
    return (RING_BASE_US + (steps - between) * RING_NVLINK_US + between * RING_NETWORK_US) * 1e-6


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bandwidth between two halves of a network in one direction, its formula, and warnings about the inputs."""

    bytes_per_second: float
    formula: str
    warnings: tuple[str, ...] = ()


NETWORK_FIGURES: Mapping[str, tuple[str, ...]] = {
    "fat-tree": ("oversubscription",),
    "rail-optimised": ("oversubscription",),
    "rail-only": (),
    "torus": ("dimensions",),
    "dragonfly": ("groups", "global-links"),
}
"""The figures of each kind of network; an oversubscription is 1 if it is missing, and the others are required."""


def network_bisection(kind: str, nodes: int, rails: int, link: float, figures: Mapping[str, Any]) -> Bisection:
    """The bisection bandwidth of a network; `link` is the rate of one link of a host, which has one per rail.

    A fat tree, and a rail-optimised network with a spine: n B / (2 o). A network per rail without a spine: N B / 2 for
    each of R rails. A torus with wrap-around links, cut across its longest dimension: 2 n B / k_max. A dragonfly of g
    groups that are joined by L cable ends each, spread evenly: (g/2)^2 L/(g-1) B.

    Raises:
        ValueError: a figure is missing, is for another kind of network, or makes no sense.
    """
    for name in NETWORK_FIGURES[kind]:
        _check(name in figures or name == "oversubscription", f"network: {kind} needs {name}")
    for name in figures:
        _check(name in NETWORK_FIGURES[kind], f"{name}: is not a figure of {kind}; remove it")
    if kind == "rail-only":
        _check(nodes >= 2, f"{nodes} nodes with {rails} rails have no two halves; give 2 nodes or more")
        warning = "no path between rails; it goes over NVLink first"
        return Bisection(rails * nodes * link / 2, "R N B / 2", (warning,))
    if kind == "torus":
        return _torus(figures["dimensions"], link)
    if kind == "dragonfly":
        return _dragonfly(figures["groups"], figures["global-links"], link)
    hosts, oversubscription = nodes * rails, figures.get("oversubscription", 1.0)
    _check(hosts >= 2, f"{hosts} hosts have no two halves; give 2 or more")
    _check(oversubscription >= 1, f"an oversubscription of {oversubscription:g} is below 1; give 7 for 1:7")
    return Bisection(hosts * link / (2 * oversubscription), "n B / (2 o)")


def _torus(lengths: Sequence[float], link: float) -> Bisection:
    whole = len(lengths) <= 8 and all(length == int(length) <= 100_000 for length in lengths)
    _check(whole, "dimensions: give up to 8 whole numbers, such as 16,16,16")
    _check(bool(lengths) and min(lengths) >= 2, "a torus has dimensions of 2 or more, such as 16x16x16")
    longest = int(max(lengths))
    # two nodes in a row have one cable, not two
    cables = 2 if longest > 2 else 1
    warnings = () if longest % 2 == 0 else (f"{longest} is odd: no cut has two equal halves",)
    return Bisection(cables * prod(map(int, lengths)) / longest * link, "2 n B / k_max", warnings)


def _dragonfly(groups: int, links: int, link: float) -> Bisection:
    _check(groups >= 2 and links >= 1, f"{groups} groups with {links} cables; give 2 groups or more")
    warnings = [f"{groups} groups have no two equal halves"] if groups % 2 else []
    if links < groups - 1:
        warnings.append(
            f"{links} global links per group do not reach the {groups - 1} other groups directly: minimal routes do "
            "not exist"
        )
    return Bisection((groups / 2) ** 2 * links / (groups - 1) * link, "(g/2)^2 L/(g-1) B", tuple(warnings))


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
