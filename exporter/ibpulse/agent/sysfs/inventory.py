"""Scans a node for its ports, and collects notices for the operator."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.sysfs.device import DeviceCounters, DeviceReader, DeviceView, Selection, find_name_fault
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.expected_rails import RailFunctions
from ibpulse.agent.sysfs.files import SHORTAGE, list_names, read_value
from ibpulse.agent.sysfs.kinds import find_planes, is_other_namespace
from ibpulse.agent.sysfs.overrides import Override
from ibpulse.agent.sysfs.roles import SLOW_TWIN, RoleRule, find_slow_twins
from ibpulse.agent.sysfs.topology import TopologyReader
from ibpulse.base.deadline import RepeatedRead, RepeatedReads, join_all
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import NAMED_SUBJECTS, count_text, first_names, group_remarks, natural_key
from ibpulse.core.model import COMPUTE, DeviceIdentity, Fabric, Port

FRESH_SCANS = 3
SIMULATED_FILE = "ibpulse-simulated"
"""A file in the root of a tree that a simulator or a replay has written."""
EXCLUSIVE = (
    "ib_core: a device belongs to one network namespace here, so ibpulse loses a device that is moved into a pod;"
    " `rdma system set netns shared` keeps all devices in view."
)
"""Notice that RDMA devices can leave this view (rdma-system(8), exclusive mode)."""


def say_no_class(class_folder: str) -> str:
    """Notice that the directory of RDMA devices does not exist."""
    return f"{class_folder} does not exist: load an RDMA driver, or set path.sysfs to the host's /sys."


def say_no_devices(class_folder: str, listed: int) -> str:
    """Notice that there are no devices, or that the patterns exclude all of them."""
    if listed:
        return f"ports.include and ports.exclude exclude all {listed} devices in {class_folder}: change these settings."
    return f"No device in {class_folder}: load the driver of your RDMA devices."


# kinds of network that have no RDMA devices, by their directory in `class`
UNSUPPORTED = {"cxi": "Slingshot"}
HALF_TREE = "mount the whole /sys there, not a part of it."


def say_half_tree(class_folder: str, names: Sequence[str]) -> str:
    """Notice that devices are listed, but are not in this tree."""
    shown = first_names(names, NAMED_SUBJECTS)
    return f"{class_folder} links to devices that are not here ({shown}): {HALF_TREE}"


def find_unsupported(sysfs: str) -> dict[str, int]:
    """The number of adapters of each network of the node that is not supported, by the network's name."""
    counts = {UNSUPPORTED[name]: len(list_names(os.path.join(sysfs, "class", name))) for name in UNSUPPORTED}
    return {network: count for network, count in counts.items() if count}


def say_unsupported(network: str, count: int) -> str:
    """Notice that the node has adapters of a network that is not supported."""
    return f"{network}: ibpulse does not support it, so {count_text(count, 'adapter')} of this node cannot be sampled."


def say_other_namespace(sysfs: str) -> str:
    """Notice that no device has counters."""
    return (
        f"The devices under {sysfs} have no counters, because this sysfs view belongs to another network namespace:"
        " mount the host's /sys and set path.sysfs to it."
    )


def collect_remarks(views: Sequence[DeviceView]) -> list[tuple[str, str]]:
    """Remarks as pairs of device or port name and text, in the order of the ports."""
    remarks = [(view.name, text) for view in views for text in view.remarks]
    for port_view in (port_view for view in views for port_view in view.ports):
        port = port_view.port
        note = port.source.note if port.source else ""
        texts = (port.problem, note, *port_view.remarks)
        remarks += [(str(port.id), text) for text in texts if text]
    return remarks


def remark_on_slow_twins(ports: Sequence[Port]) -> list[tuple[str, str]]:
    """A remark for each port that looks like a rail but is slower than the rails."""
    return [(str(port.id), SLOW_TWIN) for port in find_slow_twins(ports)]


def identify_devices(views: Sequence[DeviceView]) -> dict[str, DeviceIdentity]:
    """The identity of each device by name, without a GUID that several devices have."""
    guids = Counter(view.identity.guid for view in views)
    return {
        view.name: view.identity if guids[view.identity.guid] == 1 else replace(view.identity, guid="")
        for view in views
    }


class Inventory:
    """Scans the sysfs tree at `root` for RDMA ports.

    `include` and `exclude` are patterns as in `device`; no file of an excluded device is ever opened. `roles` lists
    patterns too, by role; other ports get their roles automatically. `counters` selects the error counters. `overrides`
    replace the location of single devices. `errors` counts unexpected exceptions. Not thread-safe.
    """

    def __init__(
        self,
        root: Path,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        roles: Mapping[str, Sequence[str]] | None = None,
        timeout_seconds: float = 1.0,
        counters: CounterSet = "none",
        overrides: Mapping[str, Override] | None = None,
        errors: InternalErrors | None = None,
    ) -> None:
        self._errors = errors or InternalErrors()
        self._sysfs = os.path.abspath(root)
        self._class_folder = os.path.join(self._sysfs, "class", "infiniband")
        self._selection = Selection(tuple(include), tuple(exclude))
        self._roles = RoleRule(roles or {})
        self._rail_functions = RailFunctions(self._sysfs)
        self._counters = counters
        self._topology = TopologyReader(self._sysfs, overrides or {}, self._errors)
        self._timeout_seconds = timeout_seconds
        self._devices = RepeatedReads(self._make_read)
        self._scans = 0

    def scan(self) -> Fabric:
        """The current fabric. Waits at most `timeout_seconds`; never raises because of a device or a file.

        Raises OSError only for a `SHORTAGE`.
        """
        simulated = os.path.exists(os.path.join(self._sysfs, SIMULATED_FILE))
        fabric = replace(self._scan(), simulated=simulated)
        if unsupported := find_unsupported(self._sysfs):
            told = [say_unsupported(network, count) for network, count in unsupported.items()]
            wrong = (say_no_class(self._class_folder), say_no_devices(self._class_folder, 0))
            fabric = replace(fabric, notices=(*(one for one in fabric.notices if one not in wrong), *told))
        # Y: shared among network namespaces (parameter of ib_core, drivers/infiniband/core/device.c)
        if read_value(os.path.join(self._sysfs, "module", "ib_core", "parameters"), "netns_mode") != "N":
            return fabric
        return replace(fabric, notices=(*fabric.notices, EXCLUSIVE))

    def _scan(self) -> Fabric:
        self._scans += 1
        try:
            with os.scandir(self._class_folder) as entries:
                # a device is a link, in a tree that was written a directory
                listed = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
        except OSError as error:
            if error.errno in SHORTAGE:
                raise
            return Fabric(notices=(say_no_class(self._class_folder),))
        admitted = sorted(filter(self._selection.admits_device, listed), key=natural_key)
        faults = {name: fault for name in admitted if (fault := find_name_fault(name))}
        names = [name for name in admitted if name not in faults]
        refused = group_remarks((os.fsencode(name).decode(errors="backslashreplace"), faults[name]) for name in faults)
        if not names:
            return Fabric(notices=tuple(refused or [say_no_devices(self._class_folder, len(listed))]))
        join_all(
            [*self._devices.start(names, self._scans), *self._topology.start(names, self._scans)],
            self._timeout_seconds,
        )
        reads = [self._devices[name] for name in names]
        views = [read.answer for read in reads if read.answer is not None]
        fabric = self._assemble(views, tuple(read.name for read in reads if not read.answered))
        gone = [read.name for read in reads if read.answered and read.answer is None]
        # a device that was removed has no link any more
        absent = [name for name in gone if Path(self._class_folder, name).is_symlink()]
        if absent:
            refused.append(say_half_tree(self._class_folder, absent))
        pci = os.path.join(self._sysfs, "bus", "pci")
        if any(port.identity.pci_address for port in fabric.ports) and not os.path.isdir(pci):
            refused.append(f"{pci} is not here, so the GPUs of this node are not known: {HALF_TREE}")
        return replace(fabric, notices=(*refused, *fabric.notices)) if refused else fabric

    def _make_read(self, name: str) -> _DeviceRead:
        return _DeviceRead(name, DeviceReader(self._sysfs, name, self._selection, self._counters), self._errors)

    def _assemble(self, views: Sequence[DeviceView], stuck: tuple[str, ...]) -> Fabric:
        planes = find_planes(views)
        shown = [view for view in views if view.name not in planes]
        survey = self._topology.survey(views, planes)
        identities = identify_devices(views)
        dressed = [
            replace(survey.dress(port_view.port), device=identities[view.name])
            for view in shown
            for port_view in view.ports
        ]
        chosen = self._roles.assign(dressed, survey.topology)
        ports = chosen.ports
        remarks = [(name, "it did not answer in time; showing its last known ports.") for name in stuck]
        remarks += [(name, f"ignored, because it shows the single planes of {of}.") for name, of in planes.items()]
        if is_other_namespace(shown):
            told = (say_other_namespace(self._sysfs), *group_remarks(remarks))
            return Fabric(ports, told, stuck, survey.topology)
        remarks += [*collect_remarks(shown), *survey.remarks, *chosen.remarks]
        if not self._roles.patterns.get(COMPUTE):
            remarks += remark_on_slow_twins(ports)
        counters = self._find_fresh_counters([view.name for view in shown])
        remarks += [remark for device in counters for remark in device.remarks]
        readings = tuple(port for device in counters for port in device.ports)
        functions = self._rail_functions.count(ports, survey.topology)
        return Fabric(ports, tuple(group_remarks(remarks)), stuck, survey.topology, functions, readings)

    def _find_fresh_counters(self, devices: Sequence[str]) -> list[DeviceCounters]:
        oldest = self._scans - FRESH_SCANS
        reads = [self._devices[name] for name in devices]
        return [read.counters for read in reads if read.counters_scan > oldest]


class _DeviceRead(RepeatedRead[DeviceView]):
    """One device: its ports as `answer` (None if it disappeared), and its error counters."""

    def __init__(self, name: str, reader: DeviceReader, errors: InternalErrors) -> None:
        super().__init__(name, f"sysfs-{name}", reader.read)
        self.counters = DeviceCounters()
        self.counters_scan = 0
        self._reader, self._errors = reader, errors

    def _run(self, scan: int) -> None:
        # after an exception, the device has its last ports
        with self._errors.boundary("fabric", self.name):
            try:
                view = self._reader.read(scan)
            except OSError as error:
                if error.errno in SHORTAGE:
                    raise
                # the device disappeared between the listing and the read
                view = None
            if view is None or self.answer is None or view.identity != self.answer.identity:
                # they are those of another device
                self.counters = DeviceCounters()
            # publish the status before reading counters, which may hang
            self.answer = view
        if self.answer is not None:
            with self._errors.boundary("counters", self.name):
                self.counters, self.counters_scan = self._reader.read_counters(), scan
        self.answered = True
