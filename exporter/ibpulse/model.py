"""The values that the rooms pass to each other: ports, where their bytes are read, the fabric. No behaviour, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TRANSMIT = 0
RECEIVE = 1
DIRECTIONS = ("transmit", "receive")


class PortId(NamedTuple):
    """A port of a device, written `mlx5_0:1`."""

    device: str
    port: int

    def __str__(self) -> str:
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True)
class ByteSource:
    """Where the bytes of one port are read: absolute file names, added up per direction.

    `scale` is bytes per count. `refresh_seconds` is how long the kernel or the device may serve an old value;
    0 means that every read asks the device. `note` says what is not certain about the source, or is empty.
    """

    name: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    scale: int
    refresh_seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class PortIdentity:
    """What a port is, as text for `ibpulse_port_info`. An empty string means that the kernel does not say."""

    link_layer: str = ""
    rate: str = ""
    guid: str = ""
    board: str = ""
    hca_type: str = ""
    firmware: str = ""
    driver: str = ""
    pci_address: str = ""
    numa_node: str = ""
    netdev: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """One port as the last scan saw it.

    `rate_bytes_per_second` is the data rate of one direction after line coding, and None unless the port is
    ACTIVE and its rate is known. `source` is None when no file of the port counts bytes; `problem` then says why.
    """

    id: PortId
    identity: PortIdentity
    active: bool
    state: str
    rate_bytes_per_second: float | None
    source: ByteSource | None
    rail: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """All ports of a node, and what the scan has to tell the operator (each notice is one clear sentence)."""

    ports: tuple[Port, ...] = ()
    notices: tuple[str, ...] = ()
    stuck_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplerHealth:
    """How the sampling goes, as the supervisor sees it.

    `heartbeat_age_seconds` is None before the first heartbeat; `throttled_periods` is None where no cgroup says.
    """

    restarts: int = 0
    takeovers: int = 0
    quarantined_devices: tuple[str, ...] = ()
    scheduler_requested: str = "other"
    scheduler_actual: str = "other"
    cpu_requested: str = ""
    cpu_actual: str = ""
    heartbeat_age_seconds: float | None = None
    throttled_periods: int | None = None
