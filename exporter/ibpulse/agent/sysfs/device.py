"""Selects devices and ports by name, and reads one device with its ports.

A pattern is a shell pattern for a device (`mlx5_0`, `mlx5_*`) or for a port of one (`mlx5_0:1`, `*:2`). A port is read
when it matches an include pattern, or there are none, and no exclude pattern.

A device in switchdev mode has one port per virtual port, all with the `counters` of the same function. It is recognised
by mlx5's driver, several ports, and an `hw_counters` folder of the device itself (a dual-port device has one per port
instead). Only its first port is kept, because otherwise its traffic would count several times.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.files import is_utf8, list_names, read_link
from ibpulse.agent.sysfs.identity import DeviceFacts, identify, read_facts
from ibpulse.agent.sysfs.port import PortReader, PortView
from ibpulse.core.model import MAX_PORT_NUMBER, DeviceIdentity, PortId, PortReadings
from ibpulse.core.ring.layout import NAME_BYTES

NO_PORTS = "it shows no port, so it is not sampled: mount the whole /sys, and check the kernel log for errors."


def match_port(pattern: str, port: PortId) -> bool:
    """Whether a device pattern or a port pattern matches the port."""
    device, port_pattern = _split(pattern)
    return fnmatchcase(port.device, device) and fnmatchcase(str(port.port), port_pattern)


def find_name_fault(device: str) -> str:
    """Why no port of a device can be sampled under its name, as a sentence about it; empty if they can."""
    if not is_utf8(device):
        return "ignored, because its name is not UTF-8: rename it with `rdma dev set`."
    if len(str(PortId(device, MAX_PORT_NUMBER)).encode()) > NAME_BYTES:
        return f"ignored, because its name has {len(device.encode())} bytes, too many for the ring: rename it."
    return ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The include and exclude patterns of a node."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def admits_device(self, device: str) -> bool:
        """Whether any port of the device is read; otherwise none of its files may be opened."""
        if any(port == "*" and fnmatchcase(device, name) for name, port in map(_split, self.exclude)):
            return False
        return not self.include or any(fnmatchcase(device, name) for name, _ in map(_split, self.include))

    def admits_port(self, port: PortId) -> bool:
        """Whether the port is read."""
        if _match_any(self.exclude, port):
            return False
        return not self.include or _match_any(self.include, port)


def _match_any(patterns: Sequence[str], port: PortId) -> bool:
    return any(match_port(pattern, port) for pattern in patterns)


def _split(pattern: str) -> tuple[str, str]:
    device, _, port = pattern.partition(":")
    return device, port or "*"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device as of the last read; `function` is empty for a device without hardware.

    `switchdev` is true if further ports were dropped because they have the counters of the one that is kept.
    `identity` has the GUID although other devices may have it too.
    """

    name: str
    function: str = ""
    ports: tuple[PortView, ...] = ()
    remarks: tuple[str, ...] = ()
    switchdev: bool = False
    identity: DeviceIdentity = field(default_factory=DeviceIdentity)


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """The error counters of a device's ports, and remarks on them as pairs of port name and text."""

    ports: tuple[PortReadings, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()


class DeviceReader:
    """Reads one device repeatedly; caches everything that cannot change while its directory exists."""

    def __init__(self, sysfs: str, name: str, selection: Selection, counter_set: CounterSet = "none") -> None:
        self._name = name
        self._counter_set = counter_set
        self._selection = selection
        self._net_folder = os.path.join(sysfs, "class", "net")
        self._folder = os.path.join(sysfs, "class", "infiniband", name)
        self._path = Path(self._folder)
        self._incarnation: tuple[str, int] | None = None
        self._facts = DeviceFacts()
        self._ports: dict[int, PortReader] = {}

    def read(self, scan: int) -> DeviceView:
        """The device at this scan (numbered from 1). Raises OSError if it has disappeared."""
        incarnation = (read_link(self._path), self._path.stat().st_ino)
        if incarnation != self._incarnation:
            self._facts = read_facts(self._folder)
            self._ports = {}
            self._incarnation = incarnation
        listed = self._list_ports()
        copies = len(listed) > 1 and self._facts.shared_counters and self._facts.driver.startswith("mlx5")
        kept = [n for n in (listed[:1] if copies else listed) if self._selection.admits_port(PortId(self._name, n))]
        odd = [str(number) for number in kept if number > MAX_PORT_NUMBER]
        remarks = [f"port {', '.join(odd)} is ignored, because port numbers end at {MAX_PORT_NUMBER}."] if odd else []
        if not listed:
            remarks.append(NO_PORTS)
        if copies:
            text = f"only port {listed[0]} of {len(listed)} is read; in switchdev mode all have the same counters."
            remarks.append(text)
        numbers = [number for number in kept if number <= MAX_PORT_NUMBER]
        self._ports = {number: self._ports.get(number) or self._new_port(number) for number in numbers}
        views = (reader.read(scan) for reader in self._ports.values())
        ports = tuple(view for view in views if view)
        identity = identify(self._facts, self._folder, incarnation[1])
        return DeviceView(self._name, self._facts.function, ports, tuple(remarks), copies, identity)

    def read_counters(self) -> DeviceCounters:
        """The error counters of the ports that the last `read` found."""
        readers = [reader.counters for reader in self._ports.values() if reader.counters is not None]
        ports = tuple(reader.read() for reader in readers)
        remarks = tuple(
            (str(port.port), reader.remark) for port, reader in zip(ports, readers, strict=True) if reader.remark
        )
        return DeviceCounters(ports, remarks)

    def _list_ports(self) -> list[int]:
        names = list_names(os.path.join(self._folder, "ports"))
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def _new_port(self, number: int) -> PortReader:
        return PortReader(self._net_folder, self._folder, PortId(self._name, number), self._facts, self._counter_set)
