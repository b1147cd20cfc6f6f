"""The values that packages pass to each other: ports, where their bytes are read, the fabric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ibpulse.defaults import CAPTURE_RULES

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
    """What a port is, as text for `ibpulse_port_info`. An empty string means that the kernel does not say.

    `kind` is a word of `sysfs.rails`. `gpu` names the nearest GPUs by PCI address with commas between them, and
    `gpu_distance` says how near all of these are, in the words of `nvidia-smi topo -m`.
    """

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
    kind: str = ""
    gpu: str = ""
    gpu_distance: str = ""


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
class CounterReading:
    """One counter of errors or congestion as it was read at `taken_ns` on the monotonic clock.

    `name` is the metric that it is exported as, `file` the counter's file. `saturated` is true while it stands at its
    maximum, where it counts no further.
    """

    name: str
    file: str
    value: int
    taken_ns: int
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class PortReadings:
    """The counters of one port that could be read at its last slow read; those that failed are left out."""

    port: PortId
    readings: tuple[CounterReading, ...]


@dataclass(frozen=True, slots=True)
class PcieLink:
    """One PCIe link between two PCI functions; None where the kernel does not say.

    `address` is the lower end (a card, or a switch's upstream port), `upper` the port it is plugged into, empty where
    the tree shows none. The maxima are what both ends can do. Bytes per second are of one direction after line coding.
    """

    address: str
    upper: str = ""
    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None
    bytes_per_second: float | None = None
    max_bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with the place of a device: a word (`downtrained`, `slow_slot`, `unknown`) and a sentence.

    The sentence is the same for devices that suffer the same, so that they can stand together.
    """

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """Where one RDMA device is plugged in.

    `chain` is the host bridge (`pci0000:15`) and the PCI functions below it down to the device's, `links` the PCIe
    links on that way from the root down. `pcie_bytes_per_second` is that of the narrowest link now, the maximum that of
    the narrowest if all did what both ends can; both None when a link of the card itself is unknown. `gpus` are the
    nearest by PCI address, all at `gpu_distance`. `source` is `sysfs`, or `topology.file` where that replaced a part.
    """

    device: str
    kind: str = ""
    pci_address: str = ""
    numa_node: int | None = None
    local_cpus: str = ""
    chain: tuple[str, ...] = ()
    links: tuple[PcieLink, ...] = ()
    pcie_bytes_per_second: float | None = None
    pcie_max_bytes_per_second: float | None = None
    gpus: tuple[str, ...] = ()
    gpu_distance: str = ""
    verdicts: tuple[Verdict, ...] = ()
    source: str = "sysfs"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of the node: PCI ids as the kernel writes them, the product and form factor they stand for or empty."""

    address: str
    vendor: str
    device: str
    name: str = ""
    form_factor: str = ""
    numa_node: int | None = None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """The place of every RDMA device and GPU, GPUs in the order of their PCI addresses.

    `distances` has a row per device and in it a word per GPU: PIX, PXB, PHB, NODE, SYS, or empty for unknown.
    """

    devices: tuple[DevicePlace, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    distances: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Fabric:
    """All ports of a node, and what the scan has to tell the operator (each notice is one clear sentence).

    `topology` is part of the fabric, as old as its ports: who has the one has the other. `counters` are what the slow
    reader read last; a fabric is the same whatever they are.
    """

    ports: tuple[Port, ...] = ()
    notices: tuple[str, ...] = ()
    stuck_devices: tuple[str, ...] = ()
    topology: Topology = Topology()
    counters: tuple[PortReadings, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class DeviceReads:
    """How long one read of a device's counters takes, p99 of the last seconds, and whether that slows its sampling.

    `p99_seconds` is None while too little was read to tell.
    """

    device: str
    p99_seconds: float | None
    interval_lengthened: bool = False


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
    reads: tuple[DeviceReads, ...] = ()


CAPTURE_ORIGINS = ("api", "alertmanager", *CAPTURE_RULES)
"""What can ask for a capture: a request, an alert, and the local rules."""


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """How the flight recorder goes: captures taken by what asked for them, failures, and what is stored.

    `newest_seconds` is the wall time of the newest stored capture's trigger, None without any.
    """

    taken: tuple[tuple[str, int], ...] = ()
    errors: int = 0
    stored: int = 0
    stored_bytes: int = 0
    newest_seconds: float | None = None
