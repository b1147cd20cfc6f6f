"""Reads the links of all ports once a second in threads that a hung device cannot hold up.

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
from pathlib import Path

from ibpulse.agent.sysfs.files import SHORTAGE
from ibpulse.agent.sysfs.link_reader import LinkReader, LinkReading
from ibpulse.base import deadline
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.model import Port, PortId

__all__ = ["LinkReading", "StatePoller"]

THREAD_NAME = "link-states"
PERIOD_SECONDS = 1.0
# part of the period for which one device may keep the others waiting
PATIENCE = 0.25
# part of the period after which an overdue read is looked at again: the process itself may have been stopped
SECOND_LOOK = 0.1


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
            self._list_devices()
        idle = [device for device in self._devices.values() if not device.is_busy_since(math.inf)]
        if idle:
            self._worker = self._worker or _Worker()
            self._worker.begin(idle)

    def _list_devices(self) -> None:
        begun_ns = self._clock.time_ns()
        try:
            # the directory belongs to no device, so this cannot hang
            listing = frozenset(os.listdir(os.path.join(self._class_folder, "infiniband")))
        except OSError as error:
            if error.errno in SHORTAGE:
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
