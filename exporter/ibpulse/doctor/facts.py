"""What doctor is asked and what it found out about a node, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.aggregator import RailStanding
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND, HISTORY_NS, SAMPLING_INTERVAL_NS
from ibpulse.model import Fabric, PortId, SamplerHealth


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The settings that the daemon would run with, and what doctor does.

    `sample` is whether the counters are sampled for some seconds; without it only files are read. `keep` names
    directories beside the ring's that will hold files, with the bytes that these may take. `root` is the file system
    under which /proc lies.
    """

    sysfs: Path = Path("/sys")
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    interval_ns: int = SAMPLING_INTERVAL_NS
    history_ns: int = HISTORY_NS
    scheduler: str = "other"
    cpu: int | None = None
    ring_dir: Path = Path("/dev/shm/ibpulse")
    keep: tuple[tuple[str, Path, int], ...] = ()
    host: str = ""
    port: int = 10055
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    sample: bool = True
    root: Path = Path("/")


SYSFS = "sysfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """What is mounted where the tree lies."""

    point: str
    type: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Folders:
    """The counter folders of a port, and the `lifespan` of its `hw_counters`."""

    counters: bool = False
    hw_counters: bool = False
    lifespan_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A PCI function of a network card; `kind` is its vendor and device id, `rdma` whether it has an RDMA device."""

    address: str
    kind: tuple[str, str]
    infiniband: bool
    driver: str
    rdma: bool


@dataclass(frozen=True, slots=True)
class TreeFacts:
    """The tree beside its ports.

    `listed` are the names in `class/infiniband`, None when there is no such directory; `admitted` those that the
    patterns leave. `shared` are devices that have an `hw_counters` folder of their own. `silent` are devices that did
    not answer doctor itself. `cards` is None when the tree does not show the PCI functions.
    """

    mount: Mount | None = None
    listed: tuple[str, ...] | None = ()
    admitted: tuple[str, ...] = ()
    folders: Mapping[PortId, Folders] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    cards: tuple[Card, ...] | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether a kernel serves the tree, which is assumed where the mount is unknown.

        Else it is a simulated one, a fixture or a bundle.
        """
        return self.mount is None or self.mount.type == SYSFS

    @property
    def is_other_namespace(self) -> bool:
        """Whether there are ports and none has a counter folder, as in a pod's own sysfs."""
        return bool(self.folders) and not any(one.counters or one.hw_counters for one in self.folders.values())


@dataclass(frozen=True, slots=True)
class Reads:
    """Seconds that one read of a byte counter took, and the slowest percent of both reads of a port together."""

    count: int
    p50: float
    p99: float
    worst: float
    both_p99: float


@dataclass(frozen=True, slots=True)
class PortSamples:
    """What the samples of one port show. Rates are bytes per second, transmit and receive."""

    samples: int
    expected: int
    stride: int
    reads: Reads | None
    rates: tuple[float, float] | None
    resets: int
    errors: int
    last_errno: int
    left_alone: bool
    gone: bool
    resolution_seconds: float | None
    standing: RailStanding | None


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """The samples of some seconds.

    `by_daemon` is whether they are those of a running daemon. `history_seconds` is how far back resets were looked
    for. `fabrics` are those that the scans meanwhile saw, oldest first, each unlike the one before. `remembered` are
    ports that the ring knows and the fabric does not. The lateness is an upper bound. Quota, throttling and timer slack
    are those of the sampler.
    """

    by_daemon: bool
    interval_ns: int
    seconds: float
    history_seconds: float
    fabrics: tuple[Fabric, ...]
    health: SamplerHealth
    ports: Mapping[PortId, PortSamples]
    ticks: int
    missed_ticks: int
    clock_steps: int
    lateness_p50: float | None
    lateness_p99: float | None
    timer_slack_ns: int | None
    quota_cpus: float | None = None
    throttled_periods: int | None = None
    remembered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """Slow counters of a port by folder and file name, at the begin and at the end of the sampling.

    At the begin only those that tell traffic and flaps are read. `full` are those of the end that stand at the largest
    number that they can hold. `unreadable` are those that gave no count, with the reason in words.
    """

    begin: Mapping[str, int] = field(default_factory=dict)
    end: Mapping[str, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def rise(self, name: str) -> int:
        """By how much a counter rose; 0 when it was not read twice, or fell."""
        return max(0, self.end.get(name, 0) - self.begin.get(name, self.end.get(name, 0)))


@dataclass(frozen=True, slots=True)
class ClockState:
    """What the kernel says of its clock (adjtimex(2)); the error is its own bound."""

    synchronised: bool
    max_error_seconds: float


@dataclass(frozen=True, slots=True)
class Space:
    """A directory that will hold files: what they take at most, what is free there, None when that is unknown."""

    setting: str
    path: str
    needed_bytes: int
    free_bytes: int | None
    writable: bool
    type: str = ""


@dataclass(frozen=True, slots=True)
class WebPort:
    """Who holds the address of the web server: `free`, `ibpulse`, `other`, or `refused` with the reason."""

    holder: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that doctor runs on. `quota_cpus` is that of doctor itself, infinite without a quota."""

    kernel: str = ""
    clock: ClockState | None = None
    quota_cpus: float | None = None
    allowed_cpus: frozenset[int] = frozenset()
    available_bytes: int | None = None
    spaces: tuple[Space, ...] = ()
    web: WebPort | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks know. `sampling` is None when nothing was sampled; `no_sampling` then says why."""

    options: DoctorOptions
    fabric: Fabric = field(default_factory=Fabric)
    tree: TreeFacts = field(default_factory=TreeFacts)
    sampling: SamplingResult | None = None
    no_sampling: str = ""
    counts: Mapping[PortId, Counts] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
