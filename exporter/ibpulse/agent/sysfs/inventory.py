"""Scans a node for its ports and their places in the PCIe tree, and collects notices for the operator.

Status and PCIe files of each device have a thread each: a hanging configuration read delays neither other devices nor
the status of its own device. The files of GPUs cannot hang.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.agent.sysfs import kinds
from ibpulse.agent.sysfs.byte_counters import spare_devices
from ibpulse.agent.sysfs.device import (
    Ask,
    Count,
    DeviceCounters,
    DeviceReader,
    DeviceView,
    Selection,
    find_name_fault,
    match_any,
)
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.files import GONE, list_names, read_value
from ibpulse.agent.sysfs.gpus import GpuReader, find_nearest, measure, parse_node
from ibpulse.agent.sysfs.overrides import SETTING, Override
from ibpulse.agent.sysfs.pcie import LINK_FAULTS, find_chain, find_function_folder, judge, narrowest, read_links
from ibpulse.agent.sysfs.roles import SLOW_TWIN, RailFunctions, RoleRule, find_slow_twins
from ibpulse.base.deadline import RepeatedRead, RepeatedReads, join_all
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import NAMED_SUBJECTS, count_text, first_names, group_remarks, natural_key
from ibpulse.core import model

FRESH_SCANS = 3
# scans between two reads of the PCIe files: a minute at the default scan interval, and at least ten seconds
PATH_SCANS = 12
SIMULATED_FILE = "ibpulse-simulated"
"""A file in the root of a tree that a simulator or a replay has written."""
# kinds of network that have no RDMA devices, by their directory in `class`
UNSUPPORTED = {"cxi": "Slingshot"}

HALF_TREE = "mount the whole /sys there, not a part of it."
# rdma-system(8), exclusive mode
EXCLUSIVE = (
    "ib_core: a device belongs to one network namespace here, so ibpulse loses a device that is moved into a pod;"
    " `rdma system set netns shared` keeps all devices in view."
)
NO_CLASS = (
    "{folder} does not exist: load an RDMA driver, or, in a container, mount the host's /sys and set path.sysfs to it."
)
NO_DEVICES = "No device in {folder}: load the driver of your RDMA devices."
ALL_EXCLUDED = "ports.include and ports.exclude exclude all {count} devices in {folder}: change these settings."
NOT_SUPPORTED = "{network}: ibpulse does not support it, so {adapters} of this node cannot be sampled."
OTHER_NAMESPACE = (
    "The devices under {root} have no counters, because this sysfs view belongs to another network namespace:"
    " mount the host's /sys and set path.sysfs to it."
)
STUCK = "it did not answer in time; showing its last known ports."
STALE = "its PCIe files did not answer in time; showing its last known location."
SEVERAL_FORMS = "the GPUs of this node have different form factors ({forms}): check whether this is intended."

Remarks = list[tuple[str, str]]
"""Pairs of device, port or setting, and text."""


def find_unsupported(sysfs: str) -> dict[str, int]:
    """The number of adapters of each network of the node that is not supported, by the network's name."""
    counts = {UNSUPPORTED[name]: len(list_names(os.path.join(sysfs, "class", name))) for name in UNSUPPORTED}
    return {network: count for network, count in counts.items() if count}


def remark_on_slow_twins(ports: Sequence[model.Port]) -> Remarks:
    """A remark for each port that looks like a rail but is slower than the rails."""
    return [(str(port.id), SLOW_TWIN) for port in find_slow_twins(ports)]


def identify_devices(views: Sequence[DeviceView]) -> dict[str, model.DeviceIdentity]:
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
    replace the location of single devices. `errors` counts unexpected exceptions. `ask` asks the kernel for counters by
    netlink, and `count` for queue pairs, where the tree is the kernel's own; `sources` lists patterns by the way in
    which their counters are read.
    Readings of error counters are of the monotonic `clock`. Ports have `signals` unless that is false. Not thread-safe.
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
        ask: Ask | None = None,
        count: Count | None = None,
        sources: Mapping[str, Sequence[str]] | None = None,
        clock: Callable[[], int] | None = None,
        signals: bool = True,
    ) -> None:
        self._ask, self._count, self._sources, self._clock, self._signals = ask, count, sources or {}, clock, signals
        self._errors = errors or InternalErrors()
        self._sysfs = os.path.abspath(root)
        self._class_folder = os.path.join(self._sysfs, "class", "infiniband")
        self._selection = Selection(tuple(include), tuple(exclude))
        self._roles = RoleRule(roles or {})
        self._rail_functions = RailFunctions(self._sysfs)
        self._counters = counters
        self._overrides = overrides or {}
        self._gpus = GpuReader(self._sysfs)
        self._timeout_seconds = timeout_seconds
        # methods, because an inventory is handed to another process
        self._devices = RepeatedReads(self._make_device_read)
        self._paths = RepeatedReads(self._make_path_read, PATH_SCANS)
        self._scans = 0

    def scan(self) -> model.Fabric:
        """The current fabric. Waits at most `timeout_seconds`; never raises because of a device.

        Raises:
            OSError: the devices cannot be listed.
        """
        fabric = self._scan()
        notices = list(fabric.notices)
        if unsupported := find_unsupported(self._sysfs):
            wrong = [text.format(folder=self._class_folder) for text in (NO_CLASS, NO_DEVICES)]
            notices = [text for text in notices if text not in wrong]
            for network, count in unsupported.items():
                notices.append(NOT_SUPPORTED.format(network=network, adapters=count_text(count, "adapter")))
        # Y: shared among network namespaces (parameter of ib_core, drivers/infiniband/core/device.c)
        if read_value(os.path.join(self._sysfs, "module", "ib_core", "parameters"), "netns_mode") == "N":
            notices.append(EXCLUSIVE)
        simulated = os.path.exists(os.path.join(self._sysfs, SIMULATED_FILE))
        return replace(fabric, notices=tuple(notices), simulated=simulated)

    def _scan(self) -> model.Fabric:
        self._scans += 1
        try:
            with os.scandir(self._class_folder) as entries:
                # a device is a link, in a tree that was written a directory
                listed = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
        except OSError as error:
            # any other error says nothing about the devices
            if error.errno not in GONE:
                raise
            return model.Fabric(notices=(NO_CLASS.format(folder=self._class_folder),))
        admitted = sorted(filter(self._selection.admits_device, listed), key=natural_key)
        faults = {name: fault for name in admitted if (fault := find_name_fault(name))}
        names = [name for name in admitted if name not in faults]
        refused = group_remarks((os.fsencode(name).decode(errors="backslashreplace"), faults[name]) for name in faults)
        if not names:
            none = ALL_EXCLUDED if listed else NO_DEVICES
            return model.Fabric(notices=tuple(refused or [none.format(folder=self._class_folder, count=len(listed))]))
        threads = [thread for reads in (self._devices, self._paths) for thread in reads.start(names, self._scans)]
        join_all(threads, self._timeout_seconds)
        reads = [self._devices[name] for name in names]
        views = [read.answer for read in reads if read.answer is not None]
        fabric = self._assemble(views, tuple(read.name for read in reads if not read.answered))
        gone = [read.name for read in reads if read.answered and read.answer is None]
        # a device that was removed has no link any more
        absent = [name for name in gone if Path(self._class_folder, name).is_symlink()]
        if absent:
            shown = first_names(absent, NAMED_SUBJECTS)
            refused.append(f"{self._class_folder} links to devices that are not here ({shown}): {HALF_TREE}")
        pci = os.path.join(self._sysfs, "bus", "pci")
        if any(port.identity.pci_address for port in fabric.ports) and not os.path.isdir(pci):
            refused.append(f"{pci} is not here, so the GPUs of this node are not known: {HALF_TREE}")
        return replace(fabric, notices=(*refused, *fabric.notices)) if refused else fabric

    def _make_device_read(self, name: str) -> _DeviceRead:
        reader = DeviceReader(
            self._sysfs, name, self._selection, self._counters, self._ask_for, self._clock, self._count
        )
        return _DeviceRead(name, reader, self._errors)

    def _ask_for(self, port: model.PortId) -> Ask | None:
        return _refuse if self._ask and match_any(self._sources.get(model.SYSFS, ()), port) else self._ask

    def _make_path_read(self, name: str) -> _PathRead:
        return _PathRead(name, os.path.join(self._class_folder, name), self._errors)

    def _assemble(self, views: Sequence[DeviceView], stuck: tuple[str, ...]) -> model.Fabric:
        planes = kinds.find_planes(views)
        shown = [view for view in views if view.name not in planes]
        topology, placed, location_remarks = self._survey(views, planes)
        identities = identify_devices(views)
        port_views = [port_view for view in shown for port_view in view.ports]
        found = [placed[each.port.id] for each in port_views]
        patient = [port.id for port in found if match_any(self._sources.get(model.NETLINK, ()), port.id)]
        found = spare_devices(found, patient)
        ports, role_remarks = self._roles.assign(
            [replace(port, device=identities[port.id.device]) for port in found], topology
        )
        remarks = [(name, STUCK) for name in stuck]
        remarks += [(name, f"ignored, because it shows the single planes of {of}.") for name, of in planes.items()]
        if kinds.is_other_namespace(shown):
            notices = (OTHER_NAMESPACE.format(root=self._sysfs), *group_remarks(remarks))
            return model.Fabric(ports, notices, stuck, topology)
        remarks += [(view.name, text) for view in shown for text in view.remarks]
        for each in port_views:
            note = each.port.source.note if each.port.source else ""
            remarks += [(str(each.port.id), text) for text in (each.port.problem, note, *each.remarks) if text]
        remarks += [*location_remarks, *role_remarks]
        if not self._roles.patterns.get(model.COMPUTE):
            remarks += remark_on_slow_twins(ports)
        reads = [self._devices[view.name] for view in shown]
        counters = [read.counters for read in reads if read.counters_scan > self._scans - FRESH_SCANS]
        remarks += [remark for device in counters for remark in device.remarks]
        readings = tuple(port for device in counters for port in device.ports)
        functions = self._rail_functions.count(ports, topology)
        return model.Fabric(ports, tuple(group_remarks(remarks)), stuck, topology, functions, readings)

    def _survey(
        self, views: Sequence[DeviceView], planes: Mapping[str, str]
    ) -> tuple[model.Topology, dict[model.PortId, model.Port], Remarks]:
        """The topology of the devices that have ports, these ports with kind and nearest GPUs, and remarks.

        Reads only the files of new GPUs.
        """
        views = [view for view in views if view.ports]
        gpus = self._gpus.read() if views else ()
        twins = kinds.find_twins([view for view in views if view.name not in planes])
        remarks = [(name, f"not a rail, because it shares the PCI function of {of}.") for name, of in twins.items()]
        places, rows = [], []
        placed: dict[model.PortId, model.Port] = {}
        for view in views:
            path, stale = self._find_path(view)
            kind = kinds.name_device_kind(view, path.kind, planes, twins)
            place, row = _place_device(view, path, kind, gpus, self._overrides.get(view.name, Override()))
            places.append(place)
            rows.append(row)
            for each in view.ports:
                identity = replace(
                    each.port.identity,
                    kind=kinds.name_port_kind(view, each, kind),
                    gpu=",".join(place.gpus),
                    gpu_distance=place.gpu_distance,
                    numa_node=each.port.identity.numa_node if place.numa_node is None else str(place.numa_node),
                )
                signals = each.port.signals if self._signals else None
                placed[each.port.id] = replace(each.port, identity=identity, signals=signals)
            remarks += [(view.name, STALE)] if stale else []
            remarks += [(view.name, verdict.sentence) for verdict in place.verdicts if verdict.word in LINK_FAULTS]
        remarks += _remark_on_overrides(self._overrides, views, gpus) + _remark_on_forms(gpus)
        return model.Topology(tuple(places), gpus, tuple(rows)), placed, remarks

    def _find_path(self, view: DeviceView) -> tuple[DevicePath, bool]:
        """The known path of a device, and whether its files did not answer in time."""
        read = self._paths[view.name]
        path = read.answer
        if path is not None and path.function != view.function:
            # another card has taken the old name
            self._paths.read_again(view.name)
            path = None
        return path or DevicePath(view.function, ""), not read.answered


def _refuse(_device: str, _port: int) -> dict[str, int]:
    raise OSError(errno.ECANCELED, "ports.sources chooses sysfs")


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
            except OSError:
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


@dataclass(frozen=True, slots=True)
class DevicePath:
    """The location of one device according to the kernel; `function` as in `DeviceView`, to match the two."""

    function: str
    kind: str
    chain: tuple[str, ...] = ()
    links: tuple[model.PcieLink, ...] = ()
    numa_node: int | None = None
    local_cpus: str = ""


class _PathRead(RepeatedRead[DevicePath]):
    """The location of one device; after an exception, the last one."""

    def __init__(self, name: str, device_folder: str, errors: InternalErrors) -> None:
        super().__init__(name, f"sysfs-path-{name}", lambda _: _read_path(device_folder))
        self._errors = errors

    def _run(self, scan: int) -> None:
        with self._errors.boundary("fabric", f"location of {self.name}"):
            self.answer = self._read(scan)
        self.answered = True


def _read_path(device_folder: str) -> DevicePath:
    parent = os.path.join(device_folder, "device")
    real = os.path.realpath(parent) if os.path.exists(parent) else ""
    folder = find_function_folder(real)
    if not folder:
        return DevicePath(real, kinds.VIRTUAL)
    return DevicePath(
        function=real,
        kind=kinds.read_kind(real, folder),
        chain=find_chain(folder),
        links=read_links(folder),
        numa_node=parse_node(read_value(folder, "numa_node")),
        local_cpus=read_value(folder, "local_cpulist"),
    )


def _place_device(
    view: DeviceView, path: DevicePath, kind: str, gpus: Sequence[model.Gpu], override: Override
) -> tuple[model.DevicePlace, tuple[str, ...]]:
    """The location of a device, and its distance to each GPU in the order of `gpus`."""
    numa_node = path.numa_node if override.numa_node is None else override.numa_node
    distances = {gpu.address: measure(path.chain, numa_node, gpu.chain, gpu.numa_node) for gpu in gpus}
    distances |= dict.fromkeys((gpu for gpu in override.gpus if gpu in distances), override.distance)
    nearest, distance = (override.gpus, override.distance) if override.gpus else find_nearest(distances)
    now, most = narrowest(path.links)
    if override.pcie_bytes_per_second is not None:
        now = most = override.pcie_bytes_per_second
    rates = [each.port.rate_bytes_per_second for each in view.ports if each.port.rate_bytes_per_second is not None]
    place = model.DevicePlace(
        device=view.name,
        kind=kind,
        pci_address=path.chain[-1] if path.chain else "",
        numa_node=numa_node,
        local_cpus=path.local_cpus,
        chain=path.chain,
        links=path.links,
        pcie_bytes_per_second=now,
        pcie_max_bytes_per_second=most,
        gpus=nearest,
        gpu_distance=distance,
        verdicts=judge(path.links, now, most, max(rates, default=None)),
        source=SETTING if override != Override() else "sysfs",
    )
    return place, tuple(distances[gpu.address] for gpu in gpus)


def _remark_on_overrides(
    overrides: Mapping[str, Override], views: Sequence[DeviceView], gpus: Sequence[model.Gpu]
) -> Remarks:
    there = {view.name for view in views}
    addresses = {gpu.address for gpu in gpus}
    remarks = []
    for name, override in overrides.items():
        if name not in there:
            remarks.append((SETTING, f"it describes {name}, but there is no such device: correct the name."))
        missing = [gpu for gpu in override.gpus if gpu not in addresses]
        if missing:
            remarks.append((SETTING, f"it lists GPU {', '.join(missing)} for {name}, but this node does not have it."))
    return remarks


def _remark_on_forms(gpus: Sequence[model.Gpu]) -> Remarks:
    """A remark if the GPUs have different form factors."""
    counted = {form: sum(gpu.form_factor == form for gpu in gpus) for form in {gpu.form_factor for gpu in gpus} - {""}}
    if len(counted) < 2:
        return []
    forms = ", ".join(f"{number} {form}" for form, number in sorted(counted.items()))
    return [("GPUs", SEVERAL_FORMS.format(forms=forms))]
