"""Doctor's options, the facts of a node that it collects, and its checks, which turn facts into findings."""

from __future__ import annotations

import enum
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from ibpulse.base.clocks import ClockState
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND, HISTORY_NS, SAMPLING_INTERVAL_NS, SIGNAL_INTERVAL_NS
from ibpulse.core.events.event import Event, started_states
from ibpulse.core.jobs import Key
from ibpulse.core.model import Fabric, PortId, SamplerHealth

SYSFS = "sysfs"
# links that flap and clocks that are set are reported for so long
RECENT_NS = 3600 * SECOND_NS
# a port that neither the fabric nor the ring has is reported for so long
GONE_NS = 24 * RECENT_NS
UNREADABLE = frozenset({"unreadable", "hung"})
SUBJECT = re.compile(r"[\w.-]*(?::[0-9]+)?", re.ASCII)
"""The names of ports and devices, and the empty one of the node."""


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The daemon's settings, and doctor's own options.

    `sample` is whether to sample the counters for some seconds; otherwise only static files are read. `keep` lists
    further directories that will hold files: setting, path, and the bytes they may need. `root` is the directory that
    contains /proc.
    """

    sysfs: Path = Path("/sys")
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    interval_ns: int = SAMPLING_INTERVAL_NS
    history_ns: int = HISTORY_NS
    signal_ticks: int = SIGNAL_INTERVAL_NS // SAMPLING_INTERVAL_NS
    scheduler: str = "other"
    cpu: int | None = None
    ring_dir: Path = Path("/dev/shm/ibpulse")
    keep: tuple[tuple[str, Path, int], ...] = ()
    host: str = ""
    port: int = 10055
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    sample: bool = True
    root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that contains the tree."""

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
    """A PCI function of a network card; `kind` is its vendor and device id, `rdma` whether it has an RDMA device.

    `chain` is the path to it as in `DevicePlace`.
    """

    chain: tuple[str, ...]
    kind: tuple[str, str]
    infiniband: bool
    rdma: bool

    @property
    def address(self) -> str:
        """Its PCI address."""
        return self.chain[-1]


@dataclass(frozen=True, slots=True)
class TreeFacts:
    """Facts of the sysfs tree as a whole.

    `listed` are the names in `class/infiniband`, None if there is no such directory; `admitted` are those that the
    include and exclude patterns admit. `shared` are devices with an `hw_counters` folder of their own. `silent` are
    devices that did not answer doctor, `absent` those that are only links. `unsupported` are the numbers of adapters of
    networks that are not supported. `cards` is None if the tree does not show the PCI functions.
    """

    mount: Mount | None = None
    listed: tuple[str, ...] | None = ()
    admitted: tuple[str, ...] = ()
    folders: Mapping[PortId, Folders] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unsupported: Mapping[str, int] = field(default_factory=dict)
    cards: tuple[Card, ...] | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether the tree is a kernel's sysfs, not a simulated fabric or a fixture.

        True if the mount is unknown.
        """
        return self.mount is None or self.mount.type == SYSFS

    @property
    def is_other_namespace(self) -> bool:
        """Whether there are ports but none has a counter folder, as in a pod's own sysfs."""
        return bool(self.folders) and not any(one.counters or one.hw_counters for one in self.folders.values())


@dataclass(frozen=True, slots=True)
class Reads:
    """Durations in seconds of single reads of a byte counter; `both_p99` is that of both reads of a port together."""

    p50: float
    p99: float
    worst: float
    both_p99: float


@dataclass(frozen=True, slots=True)
class PortSamples:
    """Statistics of one port's samples. Rates are bytes per second, transmit and receive.

    `slow_signals` counts the readings of its congestion counters that hung, and those that took too long if many did.
    """

    samples: int
    stride: int
    reads: Reads | None
    rates: tuple[float, float] | None
    resets: int
    errors: int
    last_errno: int
    left_alone: bool
    gone: bool
    resolution_seconds: float | None
    standing: RailStatistics | None
    slow_signals: int = 0


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """The samples of some seconds.

    `by_daemon` is whether a running daemon took them. `history_seconds` is the period searched for resets. `fabrics`
    are the results of the scans during that time, oldest first, without repetitions. `remembered` are ports that are
    in the ring but no longer in the fabric, `owners` the jobs of each port that has any. Lateness values are upper
    bounds. Quota, throttling and timer slack are those of the sampler process.
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
    owners: Mapping[PortId, frozenset[Key]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """Slow counters of a port by folder and file name, before and after sampling.

    `begin` holds only the counters that show traffic and flaps. `full` are counters at their maximum in `end`.
    `unreadable` are those without a value, with the reason.
    """

    begin: Mapping[str, int] = field(default_factory=dict)
    end: Mapping[str, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def rise(self, name: str) -> int:
        """The increase of a counter; 0 if it was not read twice, or if it dropped."""
        return max(0, self.end.get(name, 0) - self.begin.get(name, self.end.get(name, 0)))


@dataclass(frozen=True, slots=True)
class Space:
    """A directory that will hold files: the bytes they need at most, and the free bytes, None if unknown."""

    setting: str
    path: str
    needed_bytes: int
    free_bytes: int | None
    writable: bool
    type: str = ""


@dataclass(frozen=True, slots=True)
class WebPort:
    """Who uses the address of the web server: `free`, `ibpulse`, `other`, or `refused` with the reason.

    The reason with `ibpulse` is the parts of that daemon that fail, or empty.
    """

    holder: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that doctor runs on. `quota_cpus` is doctor's own CPU quota, infinite without one."""

    kernel: str = ""
    clock: ClockState | None = None
    quota_cpus: float | None = None
    allowed_cpus: frozenset[int] = frozenset()
    available_bytes: int | None = None
    spaces: tuple[Space, ...] = ()
    web: WebPort | None = None


@dataclass(frozen=True, slots=True)
class EventFacts:
    """The events of the running daemon in the order in which they were noticed, read at the wall time `now_ns`.

    `problem` is the reason if the log cannot be read.
    """

    events: tuple[Event, ...] = ()
    now_ns: int = 0
    problem: str = ""

    def gone_ports(self) -> dict[str, Event]:
        """The ports that have disappeared and not come back, each with the event."""
        return {name: event for name, event in self._last_changes().items() if event.after is None}

    def unreadable_ports(self) -> dict[str, Event]:
        """The ports that the daemon cannot read, each with the event since which that is so."""
        begins: dict[str, Event] = {}
        last = self._last_changes()
        for event in self.events:
            if event.after is not None and (event.before is None or event.before.problem != event.after.problem):
                begins[event.subject] = event
        return {
            name: begins.get(name, event)
            for name, event in last.items()
            if event.after is not None and event.after.problem in UNREADABLE
        }

    def recent(self, *kinds: str) -> list[Event]:
        """The events of these kinds in the last hour."""
        return [event for event in self.events if event.kind in kinds and self.is_within(event, RECENT_NS)]

    def is_within(self, event: Event, span_ns: int) -> bool:
        """Whether the event is not older than this."""
        return self.now_ns - event.time_ns <= span_ns

    def link_downs(self) -> Counter[str]:
        """The number of times that the link of each port went down in the last hour."""
        downs: Counter[str] = Counter()
        for event in self.recent("link-down", "link-flap"):
            flaps = event.details.get("link_downed", 1)
            downs[event.subject] += flaps if event.kind == "link-flap" and isinstance(flaps, int) and flaps > 0 else 1
        return downs

    def _last_changes(self) -> Mapping[str, Event]:
        """The last event that gave each port a state, or took it away."""
        last: dict[str, Event] = {}
        for event in self.events:
            for name, state in (started_states(event) or {}).items():
                last.setdefault(name, replace(event, subject=name, after=state))
            if event.before is not None or event.after is not None:
                last[event.subject] = event
        return {name: event for name, event in last.items() if name.count(":") == 1 and SUBJECT.fullmatch(name)}


@dataclass(frozen=True, slots=True)
class PciFacts:
    """A PCI function on the path between a rail and its GPU; settings that cannot be seen are None.

    `iommu` is the type of its IOMMU group, empty without one. `redirects` is whether its ACS redirects peer traffic.
    """

    iommu: str | None = None
    redirects: bool | None = None
    relaxed_ordering: bool | None = None


@dataclass(frozen=True, slots=True)
class GpuDirectFacts:
    """Facts about GPUDirect: the kernel's modules, empty if they cannot be seen, and PCI functions by address.

    `driver_version` is that of the NVIDIA module; `driver_text` is what /proc/driver/nvidia/version says. Both are
    empty if they cannot be read.
    """

    modules: frozenset[str] = frozenset()
    driver_version: str = ""
    driver_text: str = ""
    functions: Mapping[str, PciFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All input of the checks.

    If `sampling` is None, `no_sampling` gives the reason. `events` is None without a running daemon.
    """

    options: DoctorOptions
    fabric: Fabric = field(default_factory=Fabric)
    tree: TreeFacts = field(default_factory=TreeFacts)
    sampling: SamplingResult | None = None
    no_sampling: str = ""
    counts: Mapping[PortId, Counts] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    events: EventFacts | None = None
    gpudirect: GpuDirectFacts = field(default_factory=GpuDirectFacts)


class Level(enum.IntEnum):
    """Severity of a finding.

    SKIP: not judged. OK: nothing to do. WARN: the data is correct but incomplete, or something on the node needs
    attention. FAIL: data is missing or would be wrong.
    """

    SKIP = -1
    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page.

    `topic` is the name of the check; `examine` fills it in. `subject` is the port, device, card or setting that the
    sentence is about, and may be empty. `meaning` gives the consequence and `advice` the remedy; both may be empty.
    """

    level: Level
    subject: str
    sentence: str
    meaning: str = ""
    advice: str = ""
    topic: str = ""


def passed(subject: str, sentence: str) -> Finding:
    """A finding of level OK."""
    return Finding(Level.OK, subject, sentence)


def warned(subject: str, sentence: str, meaning: str, advice: str = "") -> Finding:
    """A finding of level WARN."""
    return Finding(Level.WARN, subject, sentence, meaning, advice)


def failed(subject: str, sentence: str, meaning: str, advice: str = "") -> Finding:
    """A finding of level FAIL."""
    return Finding(Level.FAIL, subject, sentence, meaning, advice)


def worst_level(findings: Iterable[Finding]) -> Level:
    """The worst level of the findings; OK if none of them is judged."""
    return max(Level.OK, max((finding.level for finding in findings), default=Level.OK))


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its function and its documentation; `detail` adds an explanation to docs/doctor.md.

    `of_machine` marks a check of the machine that doctor runs on: over a simulated fabric or a fixture its
    findings are shown, but not judged.
    """

    name: str
    find: Callable[[Facts], Iterator[Finding]]
    detail: str = ""
    of_machine: bool = False

    @property
    def sentence(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.find) or "").partition("\n")[0]

    def __call__(self, facts: Facts) -> Iterator[Finding]:
        """The findings of this check."""
        return self.find(facts)


def check(
    name: str, detail: str = "", *, of_machine: bool = False
) -> Callable[[Callable[[Facts], Iterator[Finding]]], Check]:
    """Decorator that turns a function into the check of this name; see `Check` for the other parameters."""
    return lambda find: Check(name, find, detail, of_machine)


def checks_of(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order in which it declares them."""
    return tuple(value for value in vars(module).values() if isinstance(value, Check))
