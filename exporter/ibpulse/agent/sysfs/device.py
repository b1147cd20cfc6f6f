"""Reads one device with its ports at every scan at low cost; which ones is said by patterns of names.

A pattern is a shell pattern for a device (`mlx5_0`, `mlx5_*`) or for a port of one (`mlx5_0:1`, `*:2`). A port is read
when it matches an include pattern, or there are none, and no exclude pattern.

Of a port, `state` is read at every scan. Expensive files (on mlx5 the `rate` file takes five firmware commands) are
read only when the state or the network device has changed, at every twelfth scan, and in the three scans after a
failure.

A device in switchdev mode has one port per virtual port, all with the `counters` of the same function. It is recognised
by mlx5's driver, several ports, and an `hw_counters` folder of the device itself (a dual-port device has one per port
instead). Only its first port is kept, because otherwise its traffic would count several times.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ibpulse.agent.sysfs import files
from ibpulse.agent.sysfs.byte_counters import (
    COUNTERS,
    HW_COUNTERS,
    SOFT_ROCE,
    ByteCounterRow,
    build_source,
    choose_row,
    may_ask,
)
from ibpulse.agent.sysfs.error_counters import CounterReader, CounterSet, choose_signals
from ibpulse.agent.sysfs.netlink import explain
from ibpulse.agent.sysfs.pcie import find_function_folder
from ibpulse.agent.sysfs.speed import ETHERNET, find_data_rate, remark_on_rate
from ibpulse.core.model import (
    MAX_PORT_NUMBER,
    CounterReading,
    DeviceIdentity,
    Port,
    PortId,
    PortIdentity,
    PortReadings,
)
from ibpulse.core.ring.layout import NAME_BYTES
from ibpulse.core.signals import SignalSource

NO_PORTS = "it shows no port, so it is not sampled: mount the whole /sys, and check the kernel log for errors."
BOND_OF_ALL = "it is the bond {bond}: its rate is the sum of its links, but its counters may cover only one of them."
BOND_OF_ONE = "it is the bond {bond}: its rate is that of one link, so its utilisation may exceed 1."
REFRESH_SCANS = 12
QUICK_RETRIES = 3
ACTIVE = "4"
# a node GUID has 19 characters; together with an inode, both fit into a slot of the ring
MAX_GUID, MAX_FUNCTION = 32, 40


Ask = Callable[[str, int], dict[str, int]]
"""All `hw_counters` of a port by name, by netlink, as `netlink.read_port`; raises OSError."""
Count = Callable[[str], int]
"""The queue pairs of a device, as `netlink.count_queue_pairs`; raises OSError."""


def ask_nothing(_: PortId) -> None:
    """The `Ask` of ports that netlink does not know."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The part of the identity of a device that all its ports have, and more that never changes.

    `function` is the real path of its function, equal for devices that share one. `shared_counters` is true if the
    device has an `hw_counters` folder of its own, in addition to those of its ports.
    """

    identity: PortIdentity = field(default_factory=PortIdentity)
    function: str = ""
    shared_counters: bool = False


def read_facts(device_folder: str) -> DeviceFacts:
    """Identity of the device at `device_folder`; a file that is missing or unreadable leaves its field empty."""
    parent = os.path.join(device_folder, "device")
    function = os.path.realpath(parent) if os.path.exists(parent) else ""
    pci = find_function_folder(function)
    # soft-RoCE is the only driver without a function that has a file `parent` (sw/rxe/rxe_verbs.c)
    soft = SOFT_ROCE if not function and os.path.exists(os.path.join(device_folder, "parent")) else ""
    identity = PortIdentity(
        guid=files.read_value(device_folder, "node_guid"),
        board=files.read_value(device_folder, "board_id"),
        hca_type=files.read_value(device_folder, "hca_type"),
        firmware=files.read_value(device_folder, "fw_ver"),
        driver=files.read_link_name(parent, "driver") or soft,
        pci_address=Path(pci).name,
        numa_node=files.read_value(pci, "numa_node").replace("-1", "") if pci else "",
    )
    return DeviceFacts(identity, function, os.path.isdir(os.path.join(device_folder, "hw_counters")))


def identify(facts: DeviceFacts, folder: str, inode: int) -> DeviceIdentity:
    """Identity of the device with these facts, whose directory has this inode."""
    guid = facts.identity.guid if facts.identity.guid.strip("0:") else ""
    return DeviceIdentity(guid[:MAX_GUID], Path(facts.function).name[:MAX_FUNCTION], inode, folder)


def find_netdev(device_folder: str, port: int) -> str:
    """Network device of the port: of its first GID, else of its function, else rxe's parent, else empty."""
    ndevs = os.path.join(device_folder, "ports", str(port), "gid_attrs", "ndevs")
    for name in files.list_names(ndevs):
        # an empty slot answers EINVAL by design
        netdev = files.read_value(ndevs, name)
        if netdev:
            return netdev
    own = _find_function_netdev(os.path.join(device_folder, "device", "net"), port)
    return own or files.read_value(device_folder, "parent")


def find_bond(net_folder: str, netdev: str) -> str:
    """Name of the bond that `netdev` is or belongs to, or an empty string; `net_folder` is `class/net`."""
    for bond in (netdev, files.read_link_name(os.path.join(net_folder, netdev), "master")):
        if bond and os.path.isdir(os.path.join(net_folder, bond, "bonding")):
            return bond
    return ""


def _find_function_netdev(folder: str, port: int) -> str:
    names = files.list_names(folder)
    for name in names:
        # a function with two ports has a network device for each; the kernel counts them from 0
        if files.parse_count(files.read_value(folder, os.path.join(name, "dev_port"))) == port - 1:
            return name
    # without a port number the answer is certain only for one network device and one port
    return names[0] if len(names) == 1 and port == 1 else ""


def split_state(text: str) -> tuple[str, str]:
    """The number and the word of a text such as `4: ACTIVE`; a text of another form is the word."""
    number, _, word = text.partition(": ")
    return number, word or text


@dataclass(frozen=True, slots=True)
class PortView:
    """A port with details for this package only: its counter folders, remarks for the operator, its bond."""

    port: Port
    has_counters: bool
    has_hw_counters: bool
    remarks: tuple[str, ...] = ()
    bond: str = ""


class PortReader:
    """Reads one port of one device, and caches everything that rarely changes.

    A changed inode of a counter folder means a new port with the same name. `counters` reads the port's error counters;
    None before the first read. With `ask`, counters of `hw_counters` are asked for by netlink where that works.
    """

    def __init__(
        self,
        net_folder: str,
        device_folder: str,
        port_id: PortId,
        facts: DeviceFacts,
        counter_set: CounterSet = "none",
        ask: Ask | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.counters: CounterReader | None = None
        self._ask, self._clock = ask, clock or time.monotonic_ns
        # what netlink said last and in the view: empty if it answered, None if it was not asked
        self._refusal: str | None = None
        self._shown: str | None = None
        self._counter_set = counter_set
        self._id = port_id
        self._facts = facts
        self._net_folder = net_folder
        self._device_folder = device_folder
        self._folder = os.path.join(device_folder, "ports", str(port_id.port))
        self._state = os.path.join(self._folder, "state")
        self._first_ndev = os.path.join(self._folder, "gid_attrs", "ndevs", "0")
        self._counters = Path(self._folder, COUNTERS)
        self._hw_counters = Path(self._folder, HW_COUNTERS)
        self._incarnation: tuple[int | None, int | None] | None = None
        self._view: PortView | None = None
        self._row: ByteCounterRow | None = None
        self._signals: SignalSource | None = None
        self._seen = ("", "")
        self._refreshed_at = 0
        self._failures = 0
        self._link_layer = ""
        self._netdev = ""
        self._rate_text = ""

    def read(self, scan: int) -> PortView | None:
        """The port at this scan (numbered from 1), or None if it has disappeared."""
        incarnation = (files.read_inode(self._counters), files.read_inode(self._hw_counters))
        if incarnation != self._incarnation:
            self._start_anew(incarnation)
        state = files.read_text(self._state)
        if state.fault is files.ReadFault.MISSING:
            return None
        seen = (state.text, files.read_text(self._first_ndev).text if self._link_layer == ETHERNET else "")
        retries = 0 < self._failures <= QUICK_RETRIES or self._refusal != self._shown
        if self._view is None or seen != self._seen or retries or scan - self._refreshed_at >= REFRESH_SCANS:
            self._view = self._refresh(state, incarnation)
            self._seen, self._refreshed_at = seen, scan
        return self._view

    def read_counters(self) -> PortReadings | None:
        """The error counters, None before the first `read`; a message that has the bytes has them too."""
        return self.counters.read(self._ask_counters()) if self.counters is not None else None

    def _ask_counters(self) -> Mapping[str, int]:
        """All `hw_counters` by netlink; none if they are not asked for, or `_refusal` says why."""
        if self._ask is None or self._row is None or not may_ask(self._row):
            return {}
        self._refusal = ""
        try:
            found = self._ask(self._id.device, self._id.port)
            if not found.keys() >= {*self._row.transmit, *self._row.receive}:
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        except OSError as error:
            self._refusal = explain(error)
            return {}
        return found

    def _choose_signals(self) -> SignalSource | None:
        """The signals of the port, by netlink if that has all of those in `hw_counters`."""
        driver = self._facts.identity.driver
        found = choose_signals(self._folder, self._link_layer, driver, netlink=True)
        if found is None or not found.netlink:
            return found
        try:
            asked = self._ask(self._id.device, self._id.port) if self._ask is not None else {}
        except OSError:
            asked = {}
        if asked.keys() >= {Path(file).name for file in found.files[: found.asked]}:
            return found
        return choose_signals(self._folder, self._link_layer, driver, netlink=False)

    def _start_anew(self, incarnation: tuple[int | None, int | None]) -> None:
        self._incarnation = incarnation
        self._view = None
        self._row = None
        self._signals = None
        self._refusal = None
        self._failures = 0
        self._link_layer = files.read_value(self._folder, "link_layer")
        self._rate_text = ""
        self._follow_netdev("")

    def _follow_netdev(self, netdev: str) -> None:
        """Read the error counters of the port and of this network device from now on."""
        self._netdev = netdev
        driver, folder = self._facts.identity.driver, os.path.join(self._net_folder, netdev) if netdev else ""
        self.counters = CounterReader(
            self._id, self._folder, self._link_layer, driver, self._counter_set, self._clock, folder
        )

    def _refresh(self, state: files.Text, folders: tuple[int | None, int | None]) -> PortView:
        number, word = split_state(state.text)
        active = number == ACTIVE
        netdev = find_netdev(self._device_folder, self._id.port)
        if netdev != self._netdev:
            self._follow_netdev(netdev)
        bond = find_bond(self._net_folder, netdev) if self._link_layer == ETHERNET and netdev else ""
        problems = [f"state {state.reason}."] if state.fault is not files.ReadFault.NONE else []
        if self._row is None:
            self._row, problem = choose_row(self._folder, self._facts.identity.driver)
            problems += filter(None, [problem])
        if self._refusal is None:
            self._ask_counters()
        self._shown = self._refusal
        rate: float | None = None
        remarks: tuple[str, ...] = ()
        if active:
            read = files.read_text(os.path.join(self._folder, "rate"))
            self._rate_text = read.text
            rate, remarks = self._find_rate(netdev, bond)
            # the speed of the network device replaces a failing rate file, which always fails on MANA
            if rate is None and read.fault is not files.ReadFault.NONE:
                problems.append(f"rate {read.reason}.")
        self._failures = self._failures + 1 if problems else 0
        if self._row is not None and self._signals is None:
            self._signals = self._choose_signals()
        port = Port(
            id=self._id,
            identity=replace(self._facts.identity, link_layer=self._link_layer, rate=self._rate_text, netdev=netdev),
            active=active,
            state=word,
            rate_bytes_per_second=rate,
            source=build_source(self._row, self._folder, self._refusal == "", self._refusal or "")
            if self._row
            else None,
            problem=" ".join(problems),
            signals=self._signals,
        )
        return PortView(port, folders[0] is not None, folders[1] is not None, remarks, bond)

    def _find_rate(self, netdev: str, bond: str) -> tuple[float | None, tuple[str, ...]]:
        """Data rate of the ACTIVE port, and remarks on its reliability."""
        layer, driver = self._link_layer, self._facts.identity.driver
        speed_device = bond or netdev
        speed = files.read_value(os.path.join(self._net_folder, speed_device), "speed") if speed_device else ""
        rate = find_data_rate(layer, driver, self._rate_text, speed)
        of_bond = BOND_OF_ALL if speed.isdigit() else BOND_OF_ONE
        remarks = (of_bond.format(bond=bond) if bond else "", remark_on_rate(layer, driver, self._rate_text, rate))
        return rate, tuple(filter(None, remarks))


def match_port(pattern: str, port: PortId) -> bool:
    """Whether a device pattern or a port pattern matches the port."""
    device, port_pattern = _split(pattern)
    return fnmatchcase(port.device, device) and fnmatchcase(str(port.port), port_pattern)


def find_name_fault(device: str) -> str:
    """Why no port of a device can be sampled under its name, as a sentence about it; empty if they can."""
    if not files.is_utf8(device):
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
        if match_any(self.exclude, port):
            return False
        return not self.include or match_any(self.include, port)


def match_any(patterns: Sequence[str], port: PortId) -> bool:
    """Whether one of the patterns matches the port."""
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
    """Reads one device repeatedly; caches everything that cannot change while its directory exists.

    `ask_for` is the `Ask` of each port, or None. Queue pairs are not counted without `count`.
    """

    def __init__(
        self,
        sysfs: str,
        name: str,
        selection: Selection,
        counter_set: CounterSet = "none",
        ask_for: Callable[[PortId], Ask | None] = ask_nothing,
        clock: Callable[[], int] | None = None,
        count: Count | None = None,
    ) -> None:
        self._name = name
        self._counter_set = counter_set
        self._ask_for, self._clock, self._count = ask_for, clock or time.monotonic_ns, count
        self._selection = selection
        self._net_folder = os.path.join(sysfs, "class", "net")
        self._folder = os.path.join(sysfs, "class", "infiniband", name)
        self._path = Path(self._folder)
        self._incarnation: tuple[str, int] | None = None
        self._facts = DeviceFacts()
        self._ports: dict[int, PortReader] = {}

    def read(self, scan: int) -> DeviceView:
        """The device at this scan (numbered from 1). Raises OSError if it has disappeared."""
        incarnation = (files.read_link(self._path), self._path.stat().st_ino)
        if incarnation != self._incarnation:
            self._facts = read_facts(self._folder)
            self._ports = {}
            self._incarnation = incarnation
        names = files.list_names(os.path.join(self._folder, "ports"))
        listed = [int(name) for name in names if name.isascii() and name.isdigit()]
        copies = len(listed) > 1 and self._facts.shared_counters and self._facts.identity.driver.startswith("mlx5")
        kept = [n for n in (listed[:1] if copies else listed) if self._selection.admits_port(PortId(self._name, n))]
        odd = [str(number) for number in kept if number > MAX_PORT_NUMBER]
        remarks = [f"port {', '.join(odd)} is ignored, because port numbers end at {MAX_PORT_NUMBER}."] if odd else []
        if not listed:
            remarks.append(NO_PORTS)
        if copies:
            remarks.append(
                f"only port {listed[0]} of {len(listed)} is read; in switchdev mode all have the same counters."
            )
        numbers = [number for number in kept if number <= MAX_PORT_NUMBER]
        self._ports = {
            number: self._ports.get(number) or self._make_port(PortId(self._name, number)) for number in numbers
        }
        views = (reader.read(scan) for reader in self._ports.values())
        ports = tuple(view for view in views if view)
        identity = identify(self._facts, self._folder, incarnation[1])
        return DeviceView(self._name, self._facts.function, ports, tuple(remarks), copies, identity)

    def read_counters(self) -> DeviceCounters:
        """The error counters of the ports that the last `read` found."""
        read = [(reader.read_counters(), reader.counters) for reader in self._ports.values()]
        known = [(port, counters) for port, counters in read if port is not None and counters is not None]
        remarks = tuple((str(port.port), counters.remark) for port, counters in known if counters.remark)
        queue_pairs = self._count_queue_pairs()
        return DeviceCounters(tuple(replace(port, queue_pairs=queue_pairs) for port, _ in known), remarks)

    def _count_queue_pairs(self) -> CounterReading | None:
        if self._count is None:
            return None
        try:
            return CounterReading("queue_pairs", "netlink", self._count(self._name), self._clock())
        except OSError:
            return None

    def _make_port(self, port: PortId) -> PortReader:
        facts, ask = self._facts, self._ask_for(port)
        return PortReader(self._net_folder, self._folder, port, facts, self._counter_set, ask, self._clock)
