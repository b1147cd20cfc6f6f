"""Time of a collective operation: fixed costs of its steps, and its bytes over the slower of wire and NVLink.

The constants are those of NCCL's tuner (src/graph/tuning.cc), in microseconds. Measured times of 8 GiB are within
about 10 % of this model; nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ibpulse.workbench.models.collectives import RING, node_wire_bytes, nvlink_bytes, ring_steps
from ibpulse.workbench.models.placement import RankGroup

PROTOCOLS = ("LL", "LL128", "Simple")
WIRE_BYTES: Mapping[str, float] = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}
"""Bytes on the wire per byte of data, by NCCL's protocol (prims_ll.h, prims_ll128.h)."""
RING_BASE_US: Mapping[str, float] = {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}
RING_NVLINK_US: Mapping[str, float] = {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}
RING_NETWORK_US: Mapping[str, float] = {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}
MESSAGE_BYTES = 512 * 1024
"""Bytes of one network message: NCCL_BUFFSIZE of 4 MiB in 8 steps, with the Simple protocol (init.cc, device.h)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What carries the bytes: rails of a node and their usable rate, and NVLink's per GPU, in bytes per second."""

    rails: int
    rail_bytes_per_second: float
    nvlink_bytes_per_second: float

    @property
    def node_bytes_per_second(self) -> float:
        """Usable rate of a node's rails together, in one direction."""
        return self.rails * self.rail_bytes_per_second


def latency_seconds(operation: str, group: RankGroup, protocol: str = "Simple") -> float:
    """The fixed cost of one ring operation: base + steps over NVLink + steps between nodes. Sends are one step."""
    within, between = (0, 1) if operation in ("send", "all-to-all") else ring_steps(operation, group)
    if not group.crosses_wire:
        within, between = within + between, 0
    hops = within * RING_NVLINK_US[protocol] + between * RING_NETWORK_US[protocol]
    return (RING_BASE_US[protocol] + hops) * 1e-6


def operation_seconds(
    operation: str, size: float, group: RankGroup, hardware: Hardware, algorithm: str = RING, protocol: str = "Simple"
) -> float:
    """Seconds of one operation on all groups of its kind: latency + max(wire bytes / rails, NVLink bytes / NVLink)."""
    inflation = WIRE_BYTES[protocol]
    wire = inflation * node_wire_bytes(operation, algorithm, size, group) / hardware.node_bytes_per_second
    inside = inflation * nvlink_bytes(operation, algorithm, size, group) / hardware.nvlink_bytes_per_second
    return latency_seconds(operation, group, protocol) + max(wire, inside)
