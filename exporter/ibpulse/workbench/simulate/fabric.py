"""NICs with counters under traffic and faults, and a sysfs tree of them that advances in real time."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.units import SECOND_NS, WORD_BYTES
from ibpulse.workbench.simulate import tree
from ibpulse.workbench.simulate.faults import HEALTHY, DeviceFaults, parse_faults
from ibpulse.workbench.simulate.jobs import (
    JOBS_FOLDER,
    SharedTraffic,
    SimulatedJob,
    SimulatedJobs,
    Traffic,
    find_job_errors,
    plan_jobs,
)
from ibpulse.workbench.simulate.pacing import Pace, Slips
from ibpulse.workbench.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Workload
from ibpulse.workbench.simulate.workloads import Constant, Idle, Stretched, make_workload

START_WORDS = (205_143_497_464_492, 205_128_687_774_249)
BITS_PER_BYTE = 8
PACKET_BYTES = 4096 + 26  # a full packet of a 4 KiB MTU and its headers
REQUEST_BYTES = 2**20  # a chunk of a collective, written in one request
_DIRECTION = {"xmit": 0, "rcv": 1}
FAST = ("port_xmit_data", "port_rcv_data")
SLOW = tuple(name for name in tree.COUNTERS if name not in FAST)
UNACKNOWLEDGED = "local_ack_timeout_err"
NO_PMA = "N/A (no PMA)"


@dataclass(frozen=True, slots=True)
class _Follower:
    """A counter that follows the bytes of a direction: it counts `share` of them, in units of `bytes_per_count`."""

    direction: int
    bytes_per_count: int
    share: Callable[[DeviceFaults], float] = lambda faults: faults.carried
    maximum: int | None = None


# Files of `counters/` freeze with the data; those of `hw_counters/` belong to other hardware and do not.
_FOLLOWERS = {
    # a count is the time in which the port could send 8 bytes, as on recent devices
    "port_xmit_wait": _Follower(0, 8, lambda faults: faults.flow * faults.congested, 2**32 - 1),
    "symbol_error": _Follower(1, 1, lambda faults: faults.flow * faults.bit_errors * BITS_PER_BYTE, 2**16 - 1),
    "rx_write_requests": _Follower(1, REQUEST_BYTES),
    # switches mark packets, and one notification answers several of them
    "np_ecn_marked_roce_packets": _Follower(1, PACKET_BYTES, lambda faults: faults.carried * faults.congested),
    "np_cnp_sent": _Follower(1, 4 * PACKET_BYTES, lambda faults: faults.carried * faults.congested),
    "rp_cnp_handled": _Follower(0, 4 * PACKET_BYTES, lambda faults: faults.carried * faults.congested),
}
# written as often as congestion is read
SOON = tuple(name for name in SLOW if name in _FOLLOWERS)
# the port has waited before; a counter that is 0 may be one that never counts
START_WAITS = 1000
_ROCE_ONLY = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Counter values when the faults last changed. Replaced as a whole, so readers need no lock."""

    flowed: tuple[int, int]
    words: tuple[int, int]
    faults: DeviceFaults = HEALTHY
    followers: Mapping[str, int] = field(default_factory=dict)


class SimulatedCounters:
    """Counters that follow `flowed`, the bytes (transmit, receive) that the schedule has sent by an instant.

    Between two changes of the faults, the value depends on the instant only and can be computed for any instant.
    """

    def __init__(self, words: tuple[int, int], flowed: tuple[int, int] = (0, 0), waits: int = 0) -> None:
        self.link_downed = 0
        self._anchor = _Anchor(flowed, words, followers={"port_xmit_wait": waits})

    @property
    def faults(self) -> DeviceFaults:
        """The faults that were applied last."""
        return self._anchor.faults

    def words(self, direction: int, flowed: int) -> int:
        """The counter in 4-octet words."""
        anchor = self._anchor
        moved = max(0, flowed - anchor.flowed[direction])
        flow = anchor.faults.flow
        counted = moved if flow == 1.0 else int(moved * flow)
        return anchor.words[direction] + counted // WORD_BYTES

    def apply(self, faults: DeviceFaults, flowed: tuple[int, int]) -> None:
        """From `flowed` on, the counters have these faults. Each is applied once, when it is new."""
        words, followers = self._counted(flowed)
        if faults.reset and not self.faults.reset:
            words = (0, 0)
            followers = {name: 0 if name in tree.COUNTERS else count for name, count in followers.items()}
        if faults.down and not self.faults.down:
            self.link_downed += 1
        self._anchor = _Anchor(flowed, words, faults, followers)

    def start_over(self, flowed: tuple[int, int], begin: tuple[int, int] = (0, 0)) -> None:
        """Continue from the counter values at `flowed` with a flow that counts from `begin`."""
        words, followers = self._counted(flowed)
        self._anchor = _Anchor(begin, words, self.faults, followers)

    def _counted(self, flowed: tuple[int, int]) -> tuple[tuple[int, int], dict[str, int]]:
        """The values at `flowed`: words of both directions, and those that follow the traffic."""
        words = (self.words(0, flowed[0]), self.words(1, flowed[1]))
        return words, {name: self.follow(name, flowed) for name in _FOLLOWERS}

    def follow(self, file: str, flowed: tuple[int, int]) -> int:
        """The value of a counter that follows the traffic; it stays at its maximum."""
        anchor, follower = self._anchor, _FOLLOWERS[file]
        moved = max(0, flowed[follower.direction] - anchor.flowed[follower.direction])
        count = anchor.followers.get(file, 0) + int(moved * follower.share(anchor.faults)) // follower.bytes_per_count
        return count if follower.maximum is None else min(count, follower.maximum)

    def value(self, file: str, flowed: tuple[int, int]) -> int:
        """The value of a file in `counters/`: data, the packets that this makes, 0 for most errors and multicast."""
        if file == "link_downed":
            return self.link_downed
        if file in _FOLLOWERS:
            return self.follow(file, flowed)
        kind, _, what = file.partition("_")
        direction, _, unit = what.partition("_")
        if kind not in ("port", "unicast") or unit not in ("data", "packets"):
            return 0
        words = self.words(_DIRECTION[direction], flowed[_DIRECTION[direction]])
        return words if unit == "data" else words * WORD_BYTES // PACKET_BYTES


class Nic:
    """A device, the counters of its port, and its files while they exist.

    `watch` is called with the file of received data, which a sampler reads last, whenever it is created.
    """

    def __init__(self, root: Path, device: tree.Device, schedule: Traffic, watch: Callable[[Path], object]) -> None:
        self.root = root
        self.device = device
        self.schedule, self.position = schedule, device.rail or 0
        self.counters = SimulatedCounters(
            (START_WORDS[0] + device.index, START_WORDS[1] + device.index), waits=START_WAITS
        )
        self._files: dict[str, tree.SimulatedCounterFile] = {}
        self._watch = watch
        # retransmissions until the faults last changed, and when that was
        self._retransmitted, self._changed_ns = 0, 0

    def flowed(self, at_ns: int) -> tuple[int, int]:
        """The bytes that the schedule has sent on this rail by an instant: transmit, receive."""
        return self.schedule.port_bytes(at_ns, self.position, 0), self.schedule.port_bytes(at_ns, self.position, 1)

    def retransmitted(self, at_ns: int) -> int:
        """The packets that nobody had acknowledged by an instant."""
        return self._retransmitted + int(self.counters.faults.unanswered * (at_ns - self._changed_ns) / SECOND_NS)

    def follow(self, schedule: Traffic, at_ns: int, position: int) -> None:
        """From an instant on, follow a position of another schedule; the counters go on from their values."""
        before = self.flowed(at_ns)
        self.schedule, self.position = schedule, position
        self.counters.start_over(before, self.flowed(at_ns))

    def create(self, at_ns: int) -> None:
        """Writes the files of the device with its counters at an instant, and opens them."""
        flowed = self.flowed(at_ns)
        # a reader would see a jump if they began at 0
        counters = {name: self.counters.value(name, flowed) for name in tree.COUNTERS}
        tree.write_listing(self.root, tree.list_device(self.device, counters))
        folder = self.root / self.device.counters_path
        self._files = {name: tree.SimulatedCounterFile(folder / name) for name in tree.COUNTERS}
        self._watch(folder / FAST[1])
        folder = self.root / self.device.port_path / "hw_counters"
        self._files |= {
            name: tree.SimulatedCounterFile(folder / name) for name in (*self._other_hardware(), UNACKNOWLEDGED)
        }

    def write(self, at_ns: int, flowed: tuple[int, int], slow: bool, soon: bool = False) -> None:
        """Write the counters of an instant: bytes always, those that follow them if `soon`, all when `slow`."""
        faults = self.counters.faults
        if faults.vanished:
            return
        if faults.refresh_ns:
            flowed = self.flowed(at_ns - at_ns % faults.refresh_ns)
        for name in (*FAST, *(SLOW if slow else SOON if soon else ())):
            self._files[name].write(NO_PMA if faults.unreadable else str(self.counters.value(name, flowed)))
        for name in self._other_hardware() if slow or soon else ():
            self._files[name].write(str(self.counters.follow(name, flowed)))
        if slow:
            self._files[UNACKNOWLEDGED].write(str(self.retransmitted(at_ns)))

    def _other_hardware(self) -> list[str]:
        """The counters of `hw_counters/` that move."""
        roce = self.device.rail is None
        return [name for name in _FOLLOWERS if name not in tree.COUNTERS and (roce or name not in _ROCE_ONLY)]

    def apply(self, faults: DeviceFaults, at_ns: int) -> None:
        """Apply these faults from an instant on: counters, link, existence."""
        before, flowed = self.counters.faults, self.flowed(at_ns)
        self._retransmitted, self._changed_ns = self.retransmitted(at_ns), at_ns
        if before.vanished and not faults.vanished:
            self.counters = SimulatedCounters((0, 0), flowed)
            self.create(at_ns)
        self.counters.apply(faults, flowed)
        if faults.vanished and not before.vanished:
            self.close()
            tree.remove_listing(self.root, tree.list_device(self.device))
        if not faults.vanished:
            for name, text in tree.status_files(self.device, not faults.down, faults.trained_down).items():
                tree.replace_text(self.root / self.device.port_path / name, text)
            self.write(at_ns, flowed, slow=True)

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files.values():
            file.close()
        self._files = {}


log = logging.getLogger(__name__)

FAULTS_FILE = "faults.json"
MAX_FAULTS_BYTES = 1_000_000
FAULTS_EVERY_NS = 250_000_000
SLOW_EVERY_NS = 1_000_000_000
SOON_EVERY_NS = 100_000_000
MANAGEMENT_BYTES_PER_SECOND = 12e6


CONTROL_EXAMPLE = '{"name": "dense", "stretch": 1.1}'


@dataclass(frozen=True, slots=True)
class Control:
    """The content of the faults file: the faults of each device that has any, workload and jobs (None: the initial).

    The file holds `{"workload": "moe"}` or `{"workload": {"name": "dense", "stretch": 1.1}}` next to the faults, and
    `{"jobs": {"7": {"workload": "moe", "devices": ["mlx5_0"]}}}`; devices without a job are then silent.
    """

    faults: Mapping[str, DeviceFaults]
    workload: Workload | None = None
    jobs: Mapping[str, SimulatedJob] | None = None


def parse_control(text: str, devices: Collection[str], place: str) -> Control:
    """The parsed content. An empty text means no faults and the initial workload.

    Raises ConfigError with every error in the text, each naming `place`.
    """
    try:
        document = json.loads(text or "{}")
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or not document.keys() & {"workload", "jobs"}:
        return Control(parse_faults(text, devices, place))
    workload = _parse_workload(document.pop("workload"), place) if "workload" in document else None
    jobs = _parse_jobs(document.pop("jobs"), devices, place) if "jobs" in document else None
    return Control(parse_faults(json.dumps(document), devices, place), workload, jobs)


def _parse_jobs(entry: object, devices: Collection[str], place: str) -> Mapping[str, SimulatedJob]:
    if wrong := find_job_errors(entry, devices, place):
        raise ConfigError(wrong)
    assert isinstance(entry, dict)
    return {
        name: SimulatedJob(_parse_workload(job["workload"], f"{place}: jobs: {name}"), tuple(job["devices"]))
        for name, job in entry.items()
    }


def _parse_workload(entry: object, place: str) -> Workload:
    named = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(named, dict) or not isinstance(named.get("name"), str) or named.keys() - {"name", "stretch"}:
        raise ConfigError(
            [f"{place}: workload: {json.dumps(entry)} is not valid; give a name, or for example {CONTROL_EXAMPLE}"]
        )
    factor = named.get("stretch", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.1 <= factor <= 10:
        raise ConfigError(
            [f"{place}: workload: stretch: {json.dumps(factor)} is not valid; give a number between 0.1 and 10"]
        )
    try:
        workload = make_workload(named["name"])
    except ConfigError as error:
        raise ConfigError([f"{place}: {fault}" for fault in error.faults]) from error
    return workload if factor == 1 else Stretched(workload, float(factor))


class SimulatedFabric:
    """The tree in `directory`, one device per rail of the schedule, whose clock is the wall clock (ns).

    `management` adds an Ethernet NIC with a trickle of traffic; `jobs` is how many jobs `plan_jobs` plans. Faults, a
    new workload and other jobs are read from `faults.json` in the directory. A job with the workload of a schedule that
    several nodes share has that schedule. `reads` may be shared by several fabrics.
    Raises FabricError if the directory holds anything but an earlier fabric.
    """

    def __init__(
        self,
        directory: Path,
        schedule: Traffic,
        interval_ns: int,
        management: bool = False,
        jobs: int = 0,
        reads: tree.CounterReads | None = None,
    ) -> None:
        self.directory = directory
        self.schedule: Traffic = schedule
        self._first_workload = schedule.workload
        self.interval_ns = interval_ns
        trickle = Schedule(Constant(MANAGEMENT_BYTES_PER_SECOND), schedule.seed, 1, schedule.start_ns)
        self.devices = tree.make_devices(schedule.rails, management)
        # opened before all other files: `select` takes no high descriptor
        self._reads = reads or tree.CounterReads()
        self._watched: set[int] = set()
        watch = self._watch
        self._rails = [Nic(directory, device, schedule, watch) for device in self.devices if device.rail is not None]
        self._others = [Nic(directory, device, trickle, watch) for device in self.devices if device.rail is None]
        self._names = [device.name for device in self.devices]
        shared = schedule if isinstance(schedule, SharedTraffic) else None
        self._jobs = SimulatedJobs(directory / JOBS_FOLDER, self.devices, schedule.seed, shared)
        self._planned = jobs
        self._wanted = Control({})
        self._silence: Traffic | None = None
        """The schedule of devices without a job; None while no jobs are simulated."""
        self._begun_ns = 0
        self._faults_seen: tuple[int, int] = (0, 0)
        self._faults_due = self._slow_due = self._soon_due = self._written_ns = 0

    @property
    def faults_file(self) -> Path:
        """The file that switches faults on and off while the fabric runs."""
        return self.directory / FAULTS_FILE

    def build(self, at_ns: int, faults: Mapping[str, object] | None = None) -> None:
        """Write the whole tree with its state at an instant, and the faults file.

        Raises ConfigError for invalid faults, FabricError for a directory with other content.
        """
        text = json.dumps(faults or {})
        parse_control(text, self._names, "faults")
        tree.clear_tree(self.directory)
        self.faults_file.write_text(text + "\n")
        for nic in (*self._rails, *self._others):
            tree.write_listing(self.directory, tree.list_function(nic.device))
            nic.create(at_ns)
        self._begun_ns = at_ns
        self.write(at_ns)

    def write(self, at_ns: int) -> None:
        """Write the counters of an instant, after checking the faults file if that is due."""
        if at_ns >= self._faults_due:
            # fabrics with the same clock read theirs at the same moments
            self._faults_due = at_ns - at_ns % FAULTS_EVERY_NS + FAULTS_EVERY_NS
            self._read_faults(at_ns)
            self._follow_jobs(at_ns)
        slow = at_ns >= self._slow_due
        if slow:
            self._slow_due = at_ns + SLOW_EVERY_NS
        soon = at_ns >= self._soon_due
        if soon:
            self._soon_due = at_ns + SOON_EVERY_NS
        self._written_ns = at_ns
        flowed = {schedule: schedule.cumulative_bytes(at_ns).tolist() for schedule in self._schedules()}
        for nic in self._rails:
            transmitted, received = flowed[nic.schedule][nic.position]
            nic.write(at_ns, (transmitted, received), slow, soon)
        for nic in self._others:
            nic.write(at_ns, nic.flowed(at_ns), slow, soon)

    def advance(self, at_ns: int, line_ns: int) -> int:
        """Write the counters of an instant, or of the latest until which no port moves more than in `line_ns` at the
        line rate; returns that instant."""
        most_bytes = LINE_BYTES_PER_SECOND * line_ns / SECOND_NS
        # building a large tree takes longer than an interval
        at_ns = min(at_ns, self._written_ns + self.interval_ns)
        for schedule in self._schedules():
            at_ns = schedule.latest_within(self._written_ns, at_ns, most_bytes)
        self.write(at_ns)
        return at_ns

    def run(
        self,
        stop: Callable[[], bool],
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        pause: Callable[[float], Set[int] | None] | None = None,
    ) -> Slips:
        """Keep the tree up to date until `stop` is true; call `build` first. Clocks are in ns.

        When the wall clock is set, the traffic continues unaffected: no counter jumps or falls. When the process is
        late, the traffic pauses.
        """
        pace = Pace(self.advance, self.interval_ns, pause or self._reads.pause, wall, monotonic)
        pace.run(stop)
        return pace.slips

    def pace(self, slips: Slips, wall: Callable[[], int]) -> Pace:
        """The pace of this fabric among others, with their slips and this wall clock (ns)."""
        return Pace(self.advance, self.interval_ns, wall=wall, slips=slips, ports=self._watched)

    def _watch(self, path: Path) -> None:
        self._watched.add(self._reads.watch(path))

    def close(self) -> None:
        """Close the descriptors; the files stay."""
        self._reads.close()
        for nic in (*self._rails, *self._others):
            nic.close()

    def _read_faults(self, at_ns: int) -> None:
        try:
            status = self.faults_file.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen == self._faults_seen:
                return
            self._faults_seen = seen
            text = ForeignFile(self.faults_file, ConfigError).read_text(MAX_FAULTS_BYTES)
            wanted = parse_control(text, self._names, str(self.faults_file))
        except FileNotFoundError:
            self._faults_seen, wanted = (0, 0), Control({})
        except ConfigError as error:
            log.error("faults file rejected, keeping the current faults: %s", error)
            return
        self._wanted = wanted
        self.apply(wanted.faults, at_ns)
        self.play(wanted.workload or self._first_workload, at_ns)

    def play(self, workload: Workload, at_ns: int) -> None:
        """From an instant on, the rails carry this workload, from its first step if it is a new one."""
        if workload != self.schedule.workload:
            log.info("workload: %s", workload.name)
            self._begin(workload, at_ns)

    def _begin(self, workload: Workload, at_ns: int) -> None:
        """From an instant on, a new schedule of a workload, which the rails follow unless jobs are simulated."""
        self.schedule = Schedule(workload, self.schedule.seed, self.schedule.rails, at_ns)
        if self._silence is None:
            for rail, nic in enumerate(self._rails):
                nic.follow(self.schedule, at_ns, rail)

    def _follow_jobs(self, at_ns: int) -> None:
        """Begin and end jobs; each device follows that of its job, and without any jobs the workload."""
        jobs = self._wanted.jobs
        if jobs is None and not self._planned:
            if self._silence is not None:
                self._jobs.follow({}, at_ns)
                self._silence = None
                self._begin(self.schedule.workload, at_ns)
            return
        if jobs is None:
            names = [nic.device.name for nic in self._rails]
            jobs = plan_jobs(self._planned, self.schedule.workload, names, at_ns - self._begun_ns)
        if self._jobs.follow(jobs, at_ns) or self._silence is None:
            self._silence = self._silence or Schedule(Idle(), rails=1, start_ns=at_ns)
            for nic in self._rails:
                schedule, position = self._jobs.find(nic.device.name) or (self._silence, 0)
                if nic.schedule is not schedule:
                    nic.follow(schedule, at_ns, position)

    def _schedules(self) -> set[Traffic]:
        return {nic.schedule for nic in self._rails}

    def apply(self, faults: Mapping[str, DeviceFaults], at_ns: int) -> None:
        """From an instant on, each device has exactly these faults."""
        for nic in (*self._rails, *self._others):
            wanted = faults.get(nic.device.name, HEALTHY)
            if wanted != nic.counters.faults:
                log.info("%s: %s", nic.device.name, wanted)
                nic.apply(wanted, at_ns)
