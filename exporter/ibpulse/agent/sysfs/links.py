"""Reads the links of all ports once a second, at low cost, in threads that a hung device cannot hold up.

One thread reads all devices in turn. If a device keeps it waiting for a quarter of a second, the thread is abandoned:
the devices that still waited get a thread each, because they may be slow too, and a new thread begins the next round.
A device that hangs is read again after it has answered.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.device import ACTIVE, find_bond, split_state
from ibpulse.agent.sysfs.files import GONE, KeptFile, ReadFault, parse_count
from ibpulse.agent.sysfs.speed import ETHERNET, find_data_rate
from ibpulse.base import deadline
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.model import Port, PortId

UNREADABLE = "unreadable"
THREAD_NAME = "link-states"
PERIOD_SECONDS = 1.0
# part of the period for which one device may keep the others waiting
PATIENCE = 0.25
# part of the period after which an overdue read is looked at again: the process itself may have been stopped
SECOND_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class LinkReading:
    """The state of a port's link, read at the wall time `taken_ns` (ns).

    A change since the reading before happened after `previous_ns`, when the last successful read began; 0 if there was
    none. `state` and `physical` are the kernel's words. `rate_bytes_per_second` is the data rate of one direction,
    None unless the port is `active` and its rate is known; `rate_text` is the kernel's text for it. `link_downed` is
    the kernel's counter, which stops at its maximum (255 on most devices); None without one. `problem` is empty, or
    `unreadable` with a sentence in `reason`; then the other values are those of the last successful read.
    """

    state: str = ""
    physical: str = ""
    active: bool = False
    rate_bytes_per_second: float | None = None
    rate_text: str = ""
    link_downed: int | None = None
    taken_ns: int = 0
    previous_ns: int = 0
    problem: str = ""
    reason: str = ""


class LinkReader:
    """Reads the link of one port in one thread; other threads may set `port` and use `reading` and `gone`.

    On mlx5 each of `state`, `phys_state` and `rate` takes about five firmware commands.
    """

    def __init__(self, class_folder: str, port: Port, clock: Clock = time) -> None:
        self._clock = clock
        self.port = port
        """The port of the last scan."""
        self.reading: LinkReading | None = None
        """The newest reading; None before the first, and if the port does not exist."""
        self.gone = False
        """Whether the port did not exist at the last read."""
        self._net_folder = os.path.join(class_folder, "net")
        self._folder = os.path.join(class_folder, "infiniband", port.id.device, "ports", str(port.id.port))
        self._path = Path(self._folder)
        self._inode: tuple[int, int] | None = None
        self._lines: tuple[str, ...] = ()
        self._incomplete = False
        self._succeeded_ns = 0
        self._start_anew()

    def read(self) -> None:
        """Read the link; `reading` and `gone` then hold the result."""
        begun_ns = self._clock.time_ns()
        fault = self._check_port()
        if fault is ReadFault.NONE:
            fault = self._state.read()
        if fault is ReadFault.MISSING:
            self._leave()
            return
        self.gone = False
        taken_ns = self._clock.time_ns()
        if self._state.reason:
            self._note_failure(fault, taken_ns)
            return
        self._incomplete = False
        lines = self._read_lines()
        last = self.reading
        if last is None or last.problem or lines != self._lines:
            # the rate of a port that has just gone down is not its own
            if self._state.read() is not ReadFault.NONE or self._state.line != lines[0]:
                return
            self._lines, last = lines, self._interpret(lines)
        self.reading = replace(last, taken_ns=taken_ns, previous_ns=self._succeeded_ns)
        self._succeeded_ns = begun_ns

    def _start_anew(self) -> None:
        """Forget the descriptors: they belong to a port that does not exist any more."""
        names = ("state", "phys_state", "rate")
        self._state, self._physical, self._rate = (KeptFile(os.path.join(self._folder, name)) for name in names)
        self._downed = KeptFile(*(os.path.join(self._folder, name, "link_downed") for name in (COUNTERS, HW_COUNTERS)))
        self._speed: KeptFile | None = None
        self._speed_device = ""
        self._placed: Port | None = None
        self._lines = ()

    def _check_port(self) -> ReadFault:
        """Whether the port exists; once not if another port has its name, so that the devices are scanned again."""
        try:
            status = self._path.stat()
        except OSError as error:
            return ReadFault.MISSING if error.errno in GONE else ReadFault.NONE
        before, self._inode = self._inode, (status.st_dev, status.st_ino)
        return ReadFault.NONE if before in (None, self._inode) else ReadFault.MISSING

    def _leave(self) -> None:
        self.gone, self.reading = True, None
        if self._inode is not None:
            self._inode = None
            self._start_anew()

    def _note_failure(self, fault: ReadFault, taken_ns: int) -> None:
        """Report a state that cannot be read. One incomplete text is ignored, because a writer may be at work."""
        first = fault is ReadFault.NONE and not self._incomplete
        self._incomplete = fault is ReadFault.NONE
        if first:
            return
        self.reading = replace(
            self.reading or LinkReading(),
            taken_ns=taken_ns,
            previous_ns=self._succeeded_ns,
            problem=UNREADABLE,
            reason=f"state {self._state.reason}.",
        )

    def _read_lines(self) -> tuple[str, ...]:
        """The lines of all files, the state first; of a file that fails now, the last one."""
        if self.port is not self._placed:
            self._find_speed(self.port)
        self._physical.read()
        self._rate.read()
        self._downed.read()
        speed = ""
        if self._speed is not None:
            self._speed.read()
            speed = self._speed.line
        return self._state.line, self._physical.line, self._rate.line, self._downed.line, speed

    def _find_speed(self, port: Port) -> None:
        """Choose the network device whose speed counts: the bond of the port's own, if it belongs to one."""
        self._placed = port
        netdev = port.identity.netdev if port.identity.link_layer == ETHERNET else ""
        device = netdev and (find_bond(self._net_folder, netdev) or netdev)
        if device != self._speed_device:
            self._speed_device = device
            self._speed = KeptFile(os.path.join(self._net_folder, device, "speed")) if device else None
        elif self._speed is not None:
            # another network device may have got the name
            self._speed.close()

    def _interpret(self, lines: tuple[str, ...]) -> LinkReading:
        state, physical, rate, downed, speed = lines
        number, word = split_state(state)
        active = number == ACTIVE
        identity = self.port.identity
        return LinkReading(
            state=word,
            physical=split_state(physical)[1],
            active=active,
            rate_bytes_per_second=find_data_rate(identity.link_layer, identity.driver, rate, speed) if active else None,
            rate_text=rate,
            link_downed=parse_count(downed),
        )


class StatePoller:
    """The newest readings of the ports that it follows; all methods belong to one thread.

    `seconds` lie between two rounds of reads, and a read that takes longer hangs. `errors` counts exceptions.
    """

    def __init__(
        self,
        sysfs: Path,
        seconds: float = PERIOD_SECONDS,
        errors: InternalErrors | None = None,
        clock: Clock = time,
    ) -> None:
        self._clock = clock
        self._errors = errors or InternalErrors()
        self.hung_devices: tuple[str, ...] = ()
        """Devices with a read that began over `seconds` ago and has not returned, also at a second look."""
        self.gone: frozenset[PortId] = frozenset()
        """Ports that did not exist when they were last read; the caller should scan again."""
        self.listing: frozenset[str] = frozenset()
        """Names of all devices at the beginning of the last round; the caller should scan again when it changes."""
        self.listed_ns = 0
        """Wall time of that listing."""
        self._class_folder = os.path.join(os.path.abspath(sysfs), "class")
        self._seconds = seconds
        self._devices: dict[str, _DeviceLinks] = {}
        self._readings: Mapping[PortId, LinkReading] = {}
        self._overdue: dict[str, float] = {}
        self._due = 0.0
        self._worker: _Worker | None = None

    def follow(self, ports: Sequence[Port]) -> None:
        """Read these ports from now on, and no others. Call it after every scan."""
        names = dict.fromkeys(port.id.device for port in ports)
        self._devices = {
            name: self._devices.get(name) or _DeviceLinks(name, self._errors, self._clock) for name in names
        }
        for name, device in self._devices.items():
            if device.follow(self._class_folder, [port for port in ports if port.id.device == name]):
                self._due = 0.0
        self._collect()

    def poll(self) -> Mapping[PortId, LinkReading]:
        """The newest reading of each port; begins the next round if it is due. Never waits for a device.

        A round begins every `seconds` however often this is called; frequent calls get its results, and notice a hung
        device, earlier. A port that does not exist or has not been read has no reading; a hung device keeps its last.
        """
        now = self._clock.monotonic()
        overdue = [name for name, device in self._devices.items() if device.is_busy_since(now - self._seconds)]
        self._overdue = {name: self._overdue.get(name, now) for name in overdue}
        noticed = now - SECOND_LOOK * self._seconds
        self.hung_devices = tuple(name for name, since in self._overdue.items() if since <= noticed)
        if self._worker is not None and self._worker.is_stuck(now - PATIENCE * self._seconds):
            for device in self._worker.abandon():
                deadline.start_thread(device.read, THREAD_NAME)
            self._worker = None
        if now >= self._due and not (self._worker and self._worker.working):
            self._begin_round()
            self._due = max(self._due + self._seconds, now + self._seconds / 2)
        if any(device.changed for device in self._devices.values()):
            self._collect()
        return self._readings

    def close(self) -> None:
        """Stop; a thread whose device hangs ends when the device answers."""
        self.follow(())
        if self._worker is not None:
            self._worker.abandon()
            deadline.join_all(self._worker.threads, self._seconds)
            self._worker = None

    def _begin_round(self) -> None:
        with self._errors.boundary("fabric", "listing"):
            self.list_devices()
        idle = [device for device in self._devices.values() if not device.is_busy_since(math.inf)]
        if idle:
            self._worker = self._worker or _Worker()
            self._worker.begin(idle)

    def list_devices(self) -> None:
        """List all devices now, and not only at the beginning of the next round."""
        begun_ns = self._clock.time_ns()
        try:
            # the directory belongs to no device, so this cannot hang
            listing = frozenset(os.listdir(os.path.join(self._class_folder, "infiniband")))
        except OSError as error:
            # any other error says nothing about the devices
            if error.errno not in GONE:
                raise
            listing = frozenset()
        self.listing, self.listed_ns = listing, begun_ns

    def _collect(self) -> None:
        for device in self._devices.values():
            device.changed = False
        readers = [reader for device in self._devices.values() for reader in device.readers]
        self._readings = {reader.port.id: reader.reading for reader in readers if reader.reading is not None}
        self.gone = frozenset(reader.port.id for reader in readers if reader.gone)


class _DeviceLinks:
    """The links of a device's ports, which one thread at a time reads."""

    def __init__(self, name: str, errors: InternalErrors, clock: Clock) -> None:
        self._name, self._errors, self._clock = name, errors, clock
        self.readers: tuple[LinkReader, ...] = ()
        self.changed = False
        """Whether there are results that nobody has collected."""
        self._lock = threading.Lock()
        self._began: float | None = None

    def follow(self, class_folder: str, ports: Iterable[Port]) -> bool:
        """Read these ports from now on; whether any of them is new."""
        known = {reader.port.id: reader for reader in self.readers}
        for port in ports:
            if port.id in known:
                known[port.id].port = port
        self.readers = tuple(known.get(port.id) or LinkReader(class_folder, port, self._clock) for port in ports)
        return any(reader.port.id not in known for reader in self.readers)

    def is_busy_since(self, instant: float) -> bool:
        """Whether a thread reads the device and began before this instant of the monotonic clock."""
        began = self._began
        return began is not None and began < instant

    def read(self) -> None:
        """Read all ports, unless another thread does."""
        if not self._lock.acquire(blocking=False):
            return
        self._began = self._clock.monotonic()
        try:
            for reader in self.readers:
                with self._errors.boundary("fabric", f"links of {self._name}"):
                    reader.read()
        finally:
            self._began = None
            self.changed = True
            self._lock.release()


class _Worker:
    """Reads devices in turn, in a thread for each round."""

    def __init__(self) -> None:
        self.working = False
        """Whether a round is under way."""
        self._waiting: deque[_DeviceLinks] = deque()
        self._device: _DeviceLinks | None = None
        self.threads: list[threading.Thread] = []
        """That of the last round."""

    def begin(self, devices: Iterable[_DeviceLinks]) -> None:
        """Read these devices; the round before has ended."""
        self.working = True
        self._waiting.extend(devices)
        self.threads = [deadline.start_thread(self._run, THREAD_NAME)]

    def is_stuck(self, instant: float) -> bool:
        """Whether the device that it reads has not answered since this instant, or the thread has failed."""
        device = self._device
        failed = self.working and not any(thread.is_alive() for thread in self.threads)
        return failed or (device is not None and device.is_busy_since(instant))

    def abandon(self) -> list[_DeviceLinks]:
        """End the thread after the device that it reads; returns those that it has not read."""
        return list(iter(self._next, None))

    def _run(self) -> None:
        for device in iter(self._next, None):
            self._device = device
            device.read()
        # what is not followed any more is closed with the last reference to it
        self._device = None
        self.working = False

    def _next(self) -> _DeviceLinks | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None
