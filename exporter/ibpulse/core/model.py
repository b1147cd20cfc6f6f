"""The values that packages pass to each other: ports, their byte counters, topology, health, and capture counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ibpulse.core.defaults import CAPTURE_RULES
from ibpulse.core.signals import SignalSource

TRANSMIT = 0
RECEIVE = 1
DIRECTIONS = ("transmit", "receive")
CAPTURE_ORIGINS = ("api", "alertmanager", *CAPTURE_RULES)
"""The origins of captures: an API request, an alert, and the local rules."""

COMPUTE, STORAGE, MANAGEMENT, UNKNOWN_ROLE = ROLES = ("compute", "storage", "management", "unknown")

BYTE_WAYS = NETLINK, SYSFS = ("netlink", "sysfs")
"""How byte counters of `hw_counters` are read."""

JOB_SOURCES = ("file", "slurm-map", "slurm-cgroup", "kubernetes-cgroup")
"""Who names jobs; of two that name the same job, the earlier one decides what it holds."""
JOB_BASES = ("all-gpus", "gpus", "devices", "alone")
"""How the ports of a job are known, in the order in which they are tried."""


def settle_role(rail: bool, role: str) -> str:
    """The role of a port: a rail is `compute` and nothing else is, whatever `role` says."""
    if rail:
        return COMPUTE
    return UNKNOWN_ROLE if role == COMPUTE else role


MAX_PORT_NUMBER = 255


class PortId(NamedTuple):
    """A port of a device, written `mlx5_0:1`."""

    device: str
    port: int

    def __str__(self) -> str:
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True)
class ByteSource:
    """The byte counters of one port: absolute file names, whose values are summed per direction.

    `scale` is bytes per count. `refresh_seconds` is the longest time for which the kernel or the device may return a
    cached value; 0 means that every read queries the device. `note` describes doubts about the source, or is empty.

    With `netlink`, one message has the counters of these files instead, fresh at every request. Otherwise `refusal`
    says why not, as the end of a sentence; it is empty where netlink is no way. Two samples are at least
    `pause_seconds` apart, for the sake of the device.
    """

    name: str
    transmit: tuple[str, ...]
    receive: tuple[str, ...]
    scale: int
    refresh_seconds: float = 0.0
    note: str = ""
    netlink: bool = False
    refusal: str = ""
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PortIdentity:
    """The labels of `ibpulse_port_info`. An empty string means unknown.

    `kind` is one of the words in `sysfs.kinds`. `gpu` lists the PCI addresses of the nearest GPUs, separated by commas;
    `gpu_distance` is the distance of all of them, in the terms of `nvidia-smi topo -m`.
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
class DeviceIdentity:
    """What tells two devices under the same name apart; unknown values are empty.

    `guid` is empty where it is 0, or where several devices have it (virtual functions, the functions of a bond).
    `function` is the last part of the path of its function: a PCI address, or the name of a sub-function. `inode` is
    that of the device's directory `folder`; a device that is removed and comes back has another one.
    """

    guid: str = ""
    function: str = ""
    inode: int = 0
    folder: str = ""

    def __str__(self) -> str:
        # an inode is another one after the next start of the machine
        return f"{self.guid or '-'} {self.function or '-'} {0 if self.guid or self.function else self.inode}"

    @classmethod
    def parse(cls, text: str) -> DeviceIdentity:
        """The identity of `str`, with an inode if nothing else is known; of a text of another form, nothing is."""
        guid, _, rest = text.partition(" ")
        function, _, inode = rest.partition(" ")
        if not (inode.isascii() and inode.isdigit()):
            return cls()
        return cls(guid.strip("-"), function.strip("-"), int(inode))

    def is_another(self, before: DeviceIdentity) -> bool:
        """Whether it is certainly not the device `before`."""
        if self.guid and before.guid:
            return self.guid != before.guid
        if self.function and before.function:
            return self.function != before.function
        if self.guid or before.guid or self.function or before.function:
            return False
        return bool(self.inode and before.inode) and self.inode != before.inode

    def explain(self, before: DeviceIdentity) -> str:
        """How it differs from the other device `before`."""
        if self.guid and before.guid:
            return f"GUID {self.guid} instead of {before.guid}"
        if self.function and before.function:
            return f"at {self.function} instead of {before.function}"
        return "its directory in sysfs is a new one"

    def complete(self, before: DeviceIdentity) -> DeviceIdentity:
        """The identity with what was known of the same device `before`."""
        return replace(self, guid=self.guid or before.guid, function=self.function or before.function)


@dataclass(frozen=True, slots=True)
class Port:
    """One port as found by the last scan.

    `rate_bytes_per_second` is the data rate of one direction after line coding; it is None unless the port is ACTIVE
    and its rate is known. `source` is None when no file of the port counts bytes; `problem` then gives the reason.
    `role` is one of `ROLES`; a `rail` is a port for compute. `trained_down` is a rail that is ACTIVE at a lower rate
    than the other rails of its make. `device` tells which device it belongs to. `signals` are its counters that are
    signs of congestion, or None.
    """

    id: PortId
    identity: PortIdentity
    active: bool
    state: str
    rate_bytes_per_second: float | None
    source: ByteSource | None
    rail: bool = False
    problem: str = ""
    role: str = UNKNOWN_ROLE
    trained_down: bool = False
    device: DeviceIdentity = DeviceIdentity()
    signals: SignalSource | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", settle_role(self.rail, self.role))


@dataclass(frozen=True, slots=True)
class PortState:
    """The properties of a port that belong to a moment.

    `state` and `physical` are the kernel's words for the link and its physical layer. `rate_bytes_per_second` is the
    data rate of one direction while `active`, otherwise the last one while it was; None if it was never known.
    `stride` is the number of ticks between two samples. `problem` is one of `PROBLEMS`, or empty. `role` is one of
    `ROLES`; it follows from `rail` where that is all that is known.
    """

    state: str = ""
    physical: str = ""
    active: bool = False
    rate_bytes_per_second: float | None = None
    rail: bool = False
    stride: int = 1
    problem: str = ""
    role: str = UNKNOWN_ROLE

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", settle_role(self.rail, self.role))

    @property
    def link_down(self) -> bool:
        """Whether the link is known not to be ACTIVE."""
        return not self.active and self.problem in ("", "no-counters")


PROBLEMS = {
    "no-counters": "no file of the port counts bytes",
    "unreadable": "the files of the port cannot be read",
    "hung": "a read of the device does not return",
    "disappeared": "the port does not exist any more",
}
"""Reasons why a port has no samples, and their meanings."""


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The value of one error or congestion counter, read at `taken_ns` on the monotonic clock.

    `name` is the exported metric, `file` the counter's file. `saturated` means that the counter has reached its maximum
    and stopped counting.
    """

    name: str
    file: str
    value: int
    taken_ns: int
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class PortReadings:
    """The counters of one port from its last slow read, without those that could not be read.

    `queue_pairs` is the number of queue pairs of its device, None where the kernel does not tell.
    """

    port: PortId
    readings: tuple[CounterReading, ...]
    queue_pairs: CounterReading | None = None


@dataclass(frozen=True, slots=True)
class PcieLink:
    """One PCIe link between two PCI functions; unknown values are None.

    `address` is the lower end (a card, or a switch's upstream port), `upper` the port it is plugged into, or empty if
    unknown. The maxima are those that both ends support. Rates are for one direction after line coding.
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
    """A problem with the slot of a device: a word (`downtrained`, `slow_slot`, `unknown`) and a sentence.

    Devices with the same problem have the same sentence, so that reports can group them.
    """

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The position of one RDMA device in the PCI tree.

    `chain` lists the host bridge (`pci0000:15`) and the PCI functions from there down to the device, `links` the PCIe
    links along that path, root first. `pcie_bytes_per_second` is the current rate of the slowest link, and the maximum
    is its rate if every link ran at full speed; both are None when a link of the card itself is unknown. `gpus` holds
    the PCI addresses of the nearest GPUs, all at `gpu_distance`. `source` is `sysfs`, or `topology.file` if that
    overrides any part.
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
    """A GPU of the node: PCI ids as in sysfs, and the product name and form factor if known."""

    address: str
    vendor: str
    device: str
    name: str = ""
    form_factor: str = ""
    numa_node: int | None = None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """The positions of all RDMA devices and GPUs; GPUs are sorted by PCI address.

    `distances` has one row per device and one column per GPU: PIX, PXB, PHB, NODE, SYS, or empty for unknown.
    """

    devices: tuple[DevicePlace, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    distances: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Fabric:
    """All ports of a node, and notices of the scan for the operator (one sentence each).

    `topology` comes from the same scan as the ports. `rail_functions` counts the PCI functions of the rails, with those
    of their make that have lost their RDMA device. `counters` holds the latest slow reads and is ignored when fabrics
    are compared. `simulated` says that the tree is not a kernel's but that of a simulator or a replay.
    """

    ports: tuple[Port, ...] = ()
    notices: tuple[str, ...] = ()
    stuck_devices: tuple[str, ...] = ()
    topology: Topology = Topology()
    rail_functions: int = 0
    counters: tuple[PortReadings, ...] = field(default=(), compare=False)
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class DeviceReads:
    """The read time of a device's counters (p99 of the last seconds), and whether it lengthens the sampling interval.

    `p99_seconds` is None until there are enough reads.
    """

    device: str
    p99_seconds: float | None
    interval_lengthened: bool = False


@dataclass(frozen=True, slots=True)
class SamplerHealth:
    """The health of the sampler as seen by the supervisor.

    `heartbeat_age_seconds` is None before the first heartbeat; `throttled_periods` is None without cgroup statistics.
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


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Statistics of the flight recorder: captures taken by origin, failures, and stored captures.

    `newest_seconds` is the wall time of the newest stored capture's trigger, or None if there are no captures.
    """

    taken: tuple[tuple[str, int], ...] = ()
    errors: int = 0
    stored: int = 0
    stored_bytes: int = 0
    newest_seconds: float | None = None
