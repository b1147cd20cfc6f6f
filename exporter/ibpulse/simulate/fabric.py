"""A sysfs tree of plain files whose counters advance in real time, in the sampler's phase."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from ibpulse.errors import ConfigError
from ibpulse.simulate.faults import HEALTHY, DeviceFaults, parse_faults
from ibpulse.simulate.nic import Nic
from ibpulse.simulate.pacing import Pace, Slips, Stop
from ibpulse.simulate.timeline import LINE_BYTES_PER_SECOND, Schedule, Workload
from ibpulse.simulate.tree import list_function, make_devices
from ibpulse.simulate.tree_files import CounterReads, clear_tree, write_listing
from ibpulse.simulate.workloads import Constant, Stretched, make_workload
from ibpulse.units import SECOND_NS

log = logging.getLogger(__name__)

FAULTS_FILE = "faults.json"
FAULTS_EVERY_NS = 250_000_000
SLOW_EVERY_NS = 1_000_000_000
MANAGEMENT_BYTES_PER_SECOND = 12e6


CONTROL_EXAMPLE = '{"name": "dense", "stretch": 1.1}'


@dataclass(frozen=True, slots=True)
class Control:
    """The content of the faults file: the faults of each device that has any, and the workload (None: the initial).

    The file holds `{"workload": "moe"}` or `{"workload": {"name": "dense", "stretch": 1.1}}` next to the faults.
    """

    faults: Mapping[str, DeviceFaults]
    workload: Workload | None = None


def parse_control(text: str, devices: Collection[str], place: str) -> Control:
    """The parsed content. An empty text means no faults and the initial workload.

    Raises ConfigError with every error in the text, each naming `place`.
    """
    try:
        document = json.loads(text or "{}")
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or "workload" not in document:
        return Control(parse_faults(text, devices, place))
    workload = _parse_workload(document.pop("workload"), place)
    return Control(parse_faults(json.dumps(document), devices, place), workload)


def _parse_workload(entry: object, place: str) -> Workload:
    named = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(named, dict) or not isinstance(named.get("name"), str) or named.keys() - {"name", "stretch"}:
        raise ConfigError(
            [f"{place}: workload: {json.dumps(entry)} is not valid; give a name, or for example {CONTROL_EXAMPLE}"]
        )
    factor = named.get("stretch", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.1 <= factor <= 10:
        raise ConfigError(
            [f"{place}: workload: stretch: {json.dumps(factor)} is not valid; give a number from 0.1 to 10"]
        )
    try:
        workload = make_workload(named["name"])
    except ConfigError as error:
        raise ConfigError([f"{place}: {fault}" for fault in error.faults]) from error
    return workload if factor == 1 else Stretched(workload, float(factor))


class SimulatedFabric:
    """The tree in `directory`, one device per rail of the schedule, whose clock is the wall clock (ns).

    `management` adds an Ethernet NIC with a trickle of traffic. Faults and a new workload are read from
    `faults.json` in the directory.
    Raises FabricError if the directory holds anything but an earlier fabric.
    """

    def __init__(self, directory: Path, schedule: Schedule, interval_ns: int, management: bool = False) -> None:
        self.directory = directory
        self.schedule = schedule
        self._first_workload = schedule.workload
        self.interval_ns = interval_ns
        trickle = Schedule(Constant(MANAGEMENT_BYTES_PER_SECOND), schedule.seed, 1, schedule.start_ns)
        self.devices = make_devices(schedule.rails, management)
        # opened before all other files: `select` takes no high descriptor
        self._reads = CounterReads()
        watch = self._reads.watch
        self._rails = [Nic(directory, device, schedule, watch) for device in self.devices if device.rail is not None]
        self._others = [Nic(directory, device, trickle, watch) for device in self.devices if device.rail is None]
        self._names = [device.name for device in self.devices]
        self._faults_seen: tuple[int, int] = (0, 0)
        self._faults_due = self._slow_due = self._written_ns = 0

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
        clear_tree(self.directory)
        self.faults_file.write_text(text + "\n")
        for nic in (*self._rails, *self._others):
            write_listing(self.directory, list_function(nic.device))
            nic.create()
        self.write(at_ns)

    def write(self, at_ns: int) -> None:
        """Write the counters of an instant, after checking the faults file if that is due."""
        if at_ns >= self._faults_due:
            self._faults_due = at_ns + FAULTS_EVERY_NS
            self._read_faults(at_ns)
        slow = at_ns >= self._slow_due
        if slow:
            self._slow_due = at_ns + SLOW_EVERY_NS
        self._written_ns = at_ns
        flowed = self.schedule.cumulative_bytes(at_ns).tolist()
        for rail, nic in enumerate(self._rails):
            nic.write(at_ns, (flowed[rail][0], flowed[rail][1]), slow)
        for nic in self._others:
            nic.write(at_ns, nic.flowed(at_ns), slow)

    def advance(self, at_ns: int, line_ns: int) -> int:
        """Write the counters of an instant, or of the latest until which no port moves more than in `line_ns` at the
        line rate; returns that instant."""
        most_bytes = LINE_BYTES_PER_SECOND * line_ns / SECOND_NS
        # building a large tree takes longer than an interval
        at_ns = min(at_ns, self._written_ns + self.interval_ns)
        at_ns = self.schedule.latest_within(self._written_ns, at_ns, most_bytes)
        self.write(at_ns)
        return at_ns

    def run(
        self,
        stop: Stop,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        pause: Callable[[float], Set[int] | None] | None = None,
    ) -> Slips:
        """Keep the tree up to date until `stop` is set; call `build` first. Clocks are in ns.

        When the wall clock is set, the traffic continues unaffected: no counter jumps or falls. When the process is
        late, the traffic pauses.
        """
        pace = Pace(self.advance, self.interval_ns, pause or self._reads.pause, wall, monotonic)
        pace.run(stop)
        return pace.slips

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
            text = self.faults_file.read_text()
            wanted = parse_control(text, self._names, str(self.faults_file))
        except FileNotFoundError:
            self._faults_seen, wanted = (0, 0), Control({})
        except ConfigError as error:
            log.error("faults file rejected, keeping the current faults: %s", error)
            return
        self.apply(wanted.faults, at_ns)
        self.play(wanted.workload or self._first_workload, at_ns)

    def play(self, workload: Workload, at_ns: int) -> None:
        """From an instant on, the rails carry this workload, from its first step if it is a new one."""
        if workload != self.schedule.workload:
            log.info("workload: %s", workload.name)
            self.schedule = Schedule(workload, self.schedule.seed, self.schedule.rails, at_ns)
            for nic in self._rails:
                nic.follow(self.schedule, at_ns)

    def apply(self, faults: Mapping[str, DeviceFaults], at_ns: int) -> None:
        """From an instant on, each device has exactly these faults."""
        for nic in (*self._rails, *self._others):
            wanted = faults.get(nic.device.name, HEALTHY)
            if wanted != nic.counters.faults:
                log.info("%s: %s", nic.device.name, wanted)
                nic.apply(wanted, at_ns)


def run_fabric(
    directory: Path,
    schedule: Schedule,
    interval_ns: int,
    stop: Stop,
    management: bool = False,
    faults: Mapping[str, object] | None = None,
) -> None:
    """Builds a fabric and keeps it up to date until stopped."""
    fabric = SimulatedFabric(directory, schedule, interval_ns, management)
    try:
        fabric.build(time.time_ns(), faults)
        fabric.run(stop)
    finally:
        fabric.close()
