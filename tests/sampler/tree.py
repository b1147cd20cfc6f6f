"""A tree of plain counter files, an inventory over it, and waits with a deadline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.core.model import ByteSource, Fabric, Port, PortId, PortIdentity
from ibpulse.core.ring.file import RingFile


class Tree:
    """Counter files of devices, each with one port."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, device: str, name: str = "port_xmit_data") -> Path:
        return self.root / "class/infiniband" / device / "ports/1/counters" / name

    def write(self, device: str, transmit: object, receive: object) -> None:
        self.path(device).parent.mkdir(parents=True, exist_ok=True)
        self.path(device).write_text(f"{transmit}\n")
        self.path(device, "port_rcv_data").write_text(f"{receive}\n")

    def planned(self, ring: RingFile, device: str, stride: int = 1) -> PlannedPort:
        slot = ring.assign(f"{device}:1", 4, stride)
        return PlannedPort(slot, device, (str(self.path(device)),), (str(self.path(device, "port_rcv_data")),), stride)

    def source(self, device: str, refresh_seconds: float = 0.0) -> ByteSource:
        return ByteSource(
            "counters", (str(self.path(device)),), (str(self.path(device, "port_rcv_data")),), 4, refresh_seconds
        )


def port(device: str, source: ByteSource | None) -> Port:
    return Port(PortId(device, 1), PortIdentity(), True, "ACTIVE", 5e10, source)


@dataclass
class ListedInventory:
    """An inventory whose fabric the test sets."""

    fabric: Fabric
    scans: int = field(default=0)

    def scan(self) -> Fabric:
        self.scans += 1
        return self.fabric
