"""The supervisor: keeps every port of the fabric sampled, even if a device or a process fails.

It runs in the main process and never reads a counter itself. One sampler reads all healthy devices on lane 0. If a read
hangs, the supervisor kills that sampler and immediately starts a new one for the other devices; the hung device is
sampled in isolation, on a separate lane, until it responds steadily.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ibpulse.agent.sampler.adaptive import REFRESH_SECONDS, AdaptiveInterval, stride_of_source
from ibpulse.agent.sampler.followed_ports import FollowedPorts
from ibpulse.agent.sampler.kernel import throttled_periods
from ibpulse.agent.sampler.lane import (
    HUNG_READ_SECONDS,
    EndingProcesses,
    HeaderLog,
    Lane,
    Stall,
    StartProcess,
    start_sampler,
)
from ibpulse.agent.sampler.plan import Plan, PlannedPort, PlannedSignals
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.agent.sampler.quarantine import Quarantine, start_or_log
from ibpulse.agent.sysfs.links import StatePoller
from ibpulse.agent.sysfs.netlink import Monitor
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads, seconds_until_beat
from ibpulse.base.errors import RingError
from ibpulse.base.internal_errors import InternalErrors, Occurrences
from ibpulse.base.units import SECOND_NS
from ibpulse.core.defaults import SCAN_INTERVAL_NS
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort, place_in_ring
from ibpulse.core.model import DeviceIdentity, Fabric, Port, SamplerHealth
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader

log = logging.getLogger(__name__)

# between two looks at the main sampler's heartbeat, at one that stands still, and at everything else
CALM_SECONDS, POLL_SECONDS, CHECK_SECONDS = 0.2, 0.05, 1.0
RESTART_SECONDS_MAX = 5.0
STOP_SECONDS = 1.0
NOT_STARTED = "the sampler could not be started"
STARVED = "the sampler did not get the processor: its reads waited for it, not for a device"
STARVED_ADVICE = "no device is to blame; set sampler.scheduler=fifo, or keep a CPU free for sampler.cpu"
# a heartbeat of this age, or of so many intervals, is that of a sampler that does not sample
MIN_BOUND_SECONDS = 5.0
BOUND_INTERVALS = 20
NO_DETAILS: Mapping[str, str] = {}


def heartbeat_bound_seconds(interval_ns: int) -> float:
    """The age up to which the sampler's last heartbeat is recent."""
    return max(MIN_BOUND_SECONDS, BOUND_INTERVALS * interval_ns / SECOND_NS)


class PortInventory(Protocol):
    """Anything that can list the ports of the node."""

    def scan(self) -> Fabric:
        """The current fabric; may take a second, never raises because of a single bad device."""


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """Options of the sampler.

    The signals of a port are read every `signal_ticks` at most, 0 for never. `steady_seconds` is the time for which a
    device that hung must respond before it is sampled with the others again.
    """

    scheduler: str = "other"
    cpu: int | None = None
    scan_seconds: float = SCAN_INTERVAL_NS / SECOND_NS
    steady_seconds: float = 10.0
    signal_ticks: int = 0

    def count_readings(self, ticks: int) -> int:
        """The readings of the signals of a port in these ticks, at most."""
        return ticks // self.signal_ticks if self.signal_ticks else 0


class Supervisor:
    """Keeps the sampler processes of one ring running for the ports found by the inventory.

    Changes of the ports, of quarantine and of the wall clock go to `events`. `states` reads the state of the links more
    often than the inventory; without it, a change is noticed at the next scan. `errors` counts exceptions; none ends a
    running supervisor. `monitor` hears of devices that come and go; it is closed at the end.
    """

    def __init__(
        self,
        ring: RingFile,
        inventory: PortInventory,
        options: SupervisorOptions,
        events: EventLog | None = None,
        states: StatePoller | None = None,
        errors: InternalErrors | None = None,
        clock: Clock = time,
        start_process: StartProcess = start_sampler,
        monitor: Monitor | None = None,
    ) -> None:
        self._monitor, self._looked_ns = monitor, (0, 0)
        self._ring, self._inventory, self._options, self._clock = ring, inventory, options, clock
        self.slots: dict[str, int] = {}
        self.events = EventLog(interval_ns=ring.interval_ns) if events is None else events
        self._reader = RingReader(ring)
        self._followed = FollowedPorts(self._reader, self.events, states, clock)
        self._threads = DaemonThreads(1, "scan")
        self._main = Lane(ring, MAIN_LANE, clock, start_process)
        self._stall, self._ending = Stall(0.0, ""), EndingProcesses(clock)
        self._errors = errors or InternalErrors()
        self._quarantine = Quarantine(ring, options.steady_seconds, self._ending, self._errors, clock, start_process)
        self._adaptive, self._header_log = AdaptiveInterval(self._reader), HeaderLog(ring)
        self._generation = self._restarts = self._takeovers = 0
        self._restart_seconds = self._restart_after = 0.0
        self._last_fault = NOT_STARTED
        self._rescan_seen, self._rescan_wanted = ring.words[at.H_RESCAN], asyncio.Event()
        self._planned: tuple[PlannedPort, ...] = ()
        self._faults: tuple[str, ...] = ()
        self._logged = Occurrences(clock.monotonic)
        self._scanned, self._failed_scans = False, 0

    @property
    def fabric(self) -> Fabric:
        """The fabric of the last scan, with the newest states of its ports, and a notice for each that has no slot."""
        fabric = self._followed.fabric
        return replace(fabric, notices=(*fabric.notices, *self._faults)) if self._faults else fabric

    async def start(self) -> None:
        """Scan once and start sampling; without a plan, which needs space, sampling starts later.

        Raises:
            SamplerError: the sampler cannot be started.
        """
        interval_ns = self._ring.interval_ns
        now_tick = self._clock.time_ns() // interval_ns + (self._ring.last_shift() or 0)
        for lane in range(at.LANE_COUNT):
            # the time without a running daemon is missing data, but does not count as missed ticks
            index = at.lane_at(lane) + at.L_TICK
            if self._ring.words[index]:
                self._ring.words[index] = max(self._ring.words[index], now_tick)
            self._ring.words[at.lane_at(lane) + at.L_HEARTBEAT_NS] = 0
        for slot in self._ring.slots().values():
            # the status of an earlier sampler says nothing about now
            self._ring.words[at.slot_at(slot) + at.S_STATUS] = at.OK
        await self._scan()
        if self._main.plan is not None:
            self._main.start()

    async def run(self) -> None:
        """Monitor the processes and follow the fabric until cancelled; then stop the processes."""
        if self._monitor is not None:
            asyncio.get_running_loop().add_reader(self._monitor.fileno(), self._hear)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._follow_fabric())
        finally:
            if self._monitor is not None:
                asyncio.get_running_loop().remove_reader(self._monitor.fileno())
                self._monitor.close()
            self._stop()

    def health(self) -> SamplerHealth:
        """The current health of the sampler."""
        fifo, pinned = self._main.word(at.L_FIFO), self._main.word(at.L_PINNED)
        cpu = "" if self._options.cpu is None else str(self._options.cpu)
        return SamplerHealth(
            restarts=self._restarts,
            takeovers=self._takeovers,
            quarantined_devices=self._quarantine.hung_devices,
            scheduler_requested=self._options.scheduler,
            scheduler_actual="fifo" if fifo == 0 else "other",
            cpu_requested=cpu,
            cpu_actual=cpu if pinned == 0 else "",
            heartbeat_age_seconds=self.heartbeat_age_seconds(),
            throttled_periods=throttled_periods(),
            reads=self._adaptive.reads(),
        )

    def heartbeat_age_seconds(self) -> float | None:
        """Seconds since the main sampler last began a tick, None before its first."""
        heartbeat_ns = self._main.word(at.L_HEARTBEAT_NS)
        return max(0.0, (self._clock.monotonic_ns() - heartbeat_ns) / SECOND_NS) if heartbeat_ns else None

    def rescan(self) -> None:
        """Read devices and error counters now, instead of at the next scan."""
        self._rescan_wanted.set()

    async def _follow_fabric(self) -> None:
        reopen_after, pause = 0.0, self._options.scan_seconds
        while True:
            try:
                await asyncio.wait_for(self._rescan_wanted.wait(), pause)
            except TimeoutError:
                reopen_after = 0.0
            self._rescan_wanted.clear()
            await self._scan()
            await asyncio.sleep(pause if self._failed_scans else 0.0)
            with self._errors.boundary("plan", "ports"):
                # the files of a device that disappeared and came back under the same name have to be reopened
                if self._gone_ports() and self._clock.monotonic() >= reopen_after:
                    self._replan(force=True)
                    reopen_after = self._clock.monotonic() + self._options.scan_seconds

    def _hear(self) -> None:
        """Scan at once when devices have come or gone."""
        assert self._monitor is not None
        with self._errors.boundary("fabric", "monitor"):
            try:
                heard = self._monitor.hear()
            except OSError:
                # it would be called again and again
                asyncio.get_running_loop().remove_reader(self._monitor.fileno())
                raise
            if heard:
                # had there been news when the event loop last looked but one, it would have been heard then
                self._followed.hurry(self._looked_ns[0])
                self._rescan_wanted.set()

    async def _scan(self) -> None:
        first, before, loop = not self._scanned, set(self.slots), asyncio.get_running_loop()
        self._failed_scans += 1
        with self._errors.boundary("fabric"):
            listed_ns = self._followed.begin_scan()
            found = await loop.run_in_executor(self._threads, self._inventory.scan)
            if first:
                await loop.run_in_executor(self._threads, self._followed.take_scan, found, listed_ns)
            else:
                self._followed.take_scan(found, listed_ns)
            self._scanned, self._failed_scans = True, 0
        with self._errors.boundary("plan", "ports"):
            self._replan()
        self._note_states()
        if not first:
            self._log_changes(before, set(self.slots))
        for notice in filter(self._logged.is_news, self.fabric.notices):
            log.warning("%s", notice)

    def known_ports(self) -> tuple[KnownPort, ...]:
        """The ports that exist, and those that disappeared within the history, in natural order."""
        return self._followed.known_ports()

    def _note(
        self,
        kind: str,
        device: str,
        text: str,
        uncertainty_ns: int = round(CALM_SECONDS * SECOND_NS),
        details: Mapping[str, str] = NO_DETAILS,
    ) -> None:
        """Record an event of a device."""
        with self._errors.boundary("events", device):
            event = Event(self._clock.time_ns(), kind, device, text, uncertainty_ns, details=details)
            self.events.add(place_in_ring(event, self._reader))

    def _log_changes(self, before: set[str], after: set[str]) -> None:
        if gone := sorted(before - after):
            log.warning("disappeared: port %s", ", ".join(gone))
        if new := sorted(after - before):
            log.info("now sampling: port %s", ", ".join(new))

    def _gone_ports(self) -> list[str]:
        return [name for name, slot in self.slots.items() if self._ring.slot_word(slot, at.S_STATUS) == at.GONE]

    def _replan(self, *, force: bool = False) -> None:
        """Give every lane its current ports, if they changed or could not be given before."""
        ports = [port for port in self.fabric.ports if port.source is not None]
        self._adaptive.follow(self._least_strides(ports))
        planned, faults = self._plan_ports(ports[: at.SLOT_COUNT])
        if len(ports) > at.SLOT_COUNT:
            faults.append(
                f"the node has {len(ports)} ports, but the ring only has space for {at.SLOT_COUNT}: "
                f"{ports[at.SLOT_COUNT].id} and later ports are not sampled; exclude other ports with ports.exclude"
            )
        self._faults = tuple(faults)
        self.slots = {name: plan.slot for name, plan in planned.items()}
        present = {port.device for port in planned.values()}
        # what hung or was slow is gone, or has another name
        for device in set(self._quarantine.devices) - (present - self._replaced):
            self._quarantine.release(device)
        if force or tuple(planned.values()) != self._planned or self._is_outdated():
            self._planned = tuple(planned.values())
            self.write_plans()

    def _plan_ports(self, ports: Iterable[Port]) -> tuple[dict[str, PlannedPort], list[str]]:
        """The plan of each port that the ring has space for, by port name, and a sentence for each other port."""
        planned: dict[str, PlannedPort] = {}
        faults: list[str] = []
        self._replaced: set[str] = set()
        for port in ports:
            try:
                planned[str(port.id)] = self._plan_port(port)
            except RingError as error:
                # one port should not stop the sampling of the others
                faults.append(f"{error}; the port is not sampled")
        return planned, faults

    def _least_strides(self, ports: Iterable[Port]) -> dict[str, int]:
        """The minimum stride of each device, below which all its ports repeat values."""
        least: dict[str, int] = {}
        for port in ports:
            stride = self._stride_of_source(port)
            least[port.id.device] = min(stride, least.get(port.id.device, stride))
        return least

    def _stride_of_source(self, port: Port) -> int:
        assert port.source is not None
        return stride_of_source(port.source, self._ring.interval_ns)

    def _plan_port(self, port: Port) -> PlannedPort:
        assert port.source is not None
        name, source, device = str(port.id), port.source, port.device
        old = self._ring.slots().get(name)
        before = DeviceIdentity() if old is None else DeviceIdentity.parse(self._ring.slot_device(old))
        seen_ns = 0 if old is None else self._ring.slot_word(old, at.S_LAST_SEEN_WALL_NS)
        if another := device.is_another(before):
            self._adaptive.forget(port.id.device)
        else:
            device = device.complete(before)
        stride = max(self._stride_of_source(port), self._adaptive.stride(port.id.device))
        slot = self._ring.assign(name, source.scale, stride, str(device), anew=another)
        if another and port.id.device not in self._replaced:
            self._replaced.add(port.id.device)
            self._note_replaced(port, before, seen_ns)
        return PlannedPort(
            slot,
            port.id.device,
            source.transmit,
            source.receive,
            stride,
            port.device.folder,
            port.device.inode,
            port.id.port if source.netlink else 0,
            self._plan_signals(port, slot),
        )

    def _plan_signals(self, port: Port, slot: int) -> PlannedSignals | None:
        signals = port.signals
        if not self._ring.signal_capacity or signals is None:
            self._ring.forget_signals(slot)
            return None
        number = self._ring.assign_signals(slot, signals.signals, signals.asked)
        message = port.id.port if signals.netlink else 0
        return PlannedSignals(number, signals.files, signals.asked, message, signals.refresh)

    def _note_replaced(self, port: Port, before: DeviceIdentity, seen_ns: int) -> None:
        """Record that another device has the name; `before` was last seen under it at `seen_ns`."""
        name, device = port.id.device, port.device
        text = f"{name} is another device now: {device.explain(before)}"
        details = {"guid": device.guid, "guid_before": before.guid}
        log.warning("%s; its samples and totals begin anew", text)
        known = {key: value for key, value in details.items() if value}
        self._note("replaced", name, text, max(0, self._clock.time_ns() - seen_ns), known)

    def write_plans(self) -> None:
        """Write the plans: hung and slow devices go to separate lanes, all others to the main one.

        A lane keeps its plan if the new one cannot be written; that is retried at the next scan.
        """
        self._generation += 1
        present = {port.device for port in self._planned}
        self._quarantine.keep_slow(self._adaptive.own_process_devices & present, self._generation)
        options = self._options
        plan = Plan(self._generation, os.getpid(), options.scheduler, options.cpu, self._planned, options.signal_ticks)
        held = self._quarantine.devices
        with self._errors.boundary("plan", "main sampler"):
            self._main.write_plan(plan._replace(ports=tuple(port for port in self._planned if port.device not in held)))
        self._quarantine.write_plans(plan)

    def _is_outdated(self) -> bool:
        """Whether a lane does not have the newest plan."""
        with self._errors.boundary("plan", "main sampler reads"):
            self._main.check_plan_applied()
            return not self._main.has_plan(self._generation) or self._quarantine.is_outdated()
        return True

    async def _watch(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            "ended processes": self._ending.reap,
            "processes": self._check_main,
            "quarantine": self._poll_quarantine,
            "intervals": self._adapt,
            "status": lambda: self._header_log.log_changes(self.slots),
        }
        check_at = 0.0
        while True:
            self._looked_ns = self._looked_ns[1], self._clock.time_ns()
            self._stall, now = self._main.poll(), self._clock.monotonic()
            if now >= check_at or not self._main.moves or self._quarantine.devices:
                check_at = now + CHECK_SECONDS
                for subject, step in steps.items():
                    with self._errors.boundary("plan", subject):
                        step()
            with self._errors.boundary("fabric", "links"):
                self._poll_states()
            before, self._rescan_seen = self._rescan_seen, self._ring.words[at.H_RESCAN]
            if before != self._rescan_seen:
                # before the next scan, which forgets a port that disappeared
                self._header_log.log_changes(self.slots)
                self._rescan_wanted.set()
            await asyncio.sleep(seconds_until_beat(CALM_SECONDS, self._clock) if self._main.moves else POLL_SECONDS)

    def _poll_states(self) -> None:
        if self._followed.poll():
            self._note_states()
            with self._errors.boundary("events", "file"):
                self.events.retry()
        if self._followed.outdated:
            self._followed.outdated = False
            self._rescan_wanted.set()

    def _note_states(self) -> None:
        with self._errors.boundary("events"):
            if self._scanned:
                self._followed.note(self.slots, self._quarantine.silent_devices)

    def _check_main(self) -> None:
        if not self._main.is_started():
            self._restart(self._last_fault)
        elif (status := self._main.exit_status()) is not None:
            self._restart(f"the sampler ended with status {status}")
        elif self._stall.is_hung_read():
            if self._main.is_starved():
                self._note_starved()
            else:
                self._take_over(self._stall.device)
        elif self._main.is_silent(self._stall):
            self._ending.add(self._main.kill())
            self._restart(f"no heartbeat from the sampler for {self._stall.seconds:.0f} s")

    def _restart(self, fault: str) -> None:
        """Restart the main sampler: immediately, but with increasing delays if it keeps ending soon after its start."""
        now = self._clock.monotonic()
        if now < self._restart_after:
            self._last_fault = fault
            return
        young = now - self._main.started_monotonic < RESTART_SECONDS_MAX
        self._restart_seconds = min(RESTART_SECONDS_MAX, max(0.1, 2 * self._restart_seconds)) if young else 0.0
        self._restart_after = now + self._restart_seconds
        self._restarts += 1
        if self._logged.is_news(fault) or not (young or fault == NOT_STARTED):
            log.error("%s; restarting it", fault)
        self._start_main()

    def _start_main(self) -> None:
        """Start the main sampler with the newest plan, or with the last one written unless that would hang."""
        self.write_plans()
        plan, hung = self._main.plan, self._quarantine.hung_devices
        usable = plan is not None and not any(port.device in hung for port in plan.ports)
        if not usable or not start_or_log(self._main, self._errors):
            self._last_fault = NOT_STARTED
            self._restart_after = self._clock.monotonic() + RESTART_SECONDS_MAX

    def _take_over(self, device: str) -> None:
        """Kill the hung sampler, start a new one for the other devices, and sample the hung device in isolation."""
        self._takeovers += 1
        self._ending.add(self._main.kill())
        done = "quarantining the device: sampling it in a separate process until it responds steadily"
        log.error("device %s: a read has hung for over %.2f s; %s", device, HUNG_READ_SECONDS, done)
        if any(port.device == device for port in self._planned):
            self._quarantine.add(device)
            self._note("quarantined", device, f"{device}: a read hung; the device is sampled in a separate process")
        self._start_main()

    def _poll_quarantine(self) -> None:
        """Release devices that have been steady for long enough."""
        recovered = self._quarantine.poll()
        for device in recovered:
            self._quarantine.release(device)
            self._note("released", device, f"{device}: responds again; it is sampled together with the others")
            log.warning("device %s responds again; sampling it together with the others", device)
        if recovered:
            self.write_plans()

    def _adapt(self) -> None:
        """Adapt the intervals of devices to their read times."""
        ports = [port for port in self._planned if port.device not in self._quarantine.hung_devices]
        if self._adaptive.refresh(ports, self._clock.monotonic(), self._quarantine.lanes):
            self._replan(force=True)
        if self._adaptive.starved:
            self._note_starved()

    def _note_starved(self) -> None:
        """Record that the sampler waits for the processor, once per hour."""
        if self._logged.is_news(STARVED):
            self._note("starved", "", STARVED, round(REFRESH_SECONDS * SECOND_NS))
            log.warning("%s; %s", STARVED, STARVED_ADVICE)

    def _stop(self) -> None:
        self._followed.close()
        self._quarantine.stop()
        self._ending.add(self._main.terminate())
        self._ending.wait(STOP_SECONDS)
