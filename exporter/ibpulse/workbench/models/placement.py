"""Which groups of a job cross the wire: ranks fill nodes in blocks, the innermost dimension first.

Megatron-LM orders the dimensions tp-cp-ep-dp-pp, innermost first (parallel_state.py). The distance between two
neighbours of a group in ranks is its stride: the product of the dimensions inside it.
"""

from __future__ import annotations

from dataclasses import dataclass


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
