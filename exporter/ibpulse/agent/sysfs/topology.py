"""The PCIe location of every RDMA device and its nearest GPUs: read rarely, assembled at every scan.

The PCIe files of each device have their own thread, separate from its status: a hanging configuration read delays
neither other devices nor the status of its own device. The files of GPUs cannot hang.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ibpulse.agent.sysfs import kinds
from ibpulse.agent.sysfs.device import DeviceView
from ibpulse.agent.sysfs.files import read_text
from ibpulse.agent.sysfs.gpus import GpuReader, find_nearest, measure, parse_node
from ibpulse.agent.sysfs.overrides import SETTING, Override
from ibpulse.agent.sysfs.pcie import LINK_FAULTS, find_chain, find_function_folder, judge, narrowest, read_links
from ibpulse.base.deadline import RepeatedRead, RepeatedReads
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.model import DevicePlace, Gpu, PcieLink, Port, Topology

# a minute at the default scan interval, and at least ten seconds
REFRESH_SCANS = 12
STALE = "its PCIe files did not answer in time; showing its last known location."
SEVERAL_FORMS = "the GPUs of this node have different form factors ({forms}): check whether this is intended."


@dataclass(frozen=True, slots=True)
class DevicePath:
    """The location of one device according to the kernel; `function` as in `DeviceView`, to match the two."""

    function: str
    kind: str
    chain: tuple[str, ...] = ()
    links: tuple[PcieLink, ...] = ()
    numa_node: int | None = None
    local_cpus: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """The topology of one scan, remarks on it, and the kind of every port by name."""

    topology: Topology
    remarks: tuple[tuple[str, str], ...]
    port_kinds: Mapping[str, str]

    def dress(self, port: Port) -> Port:
        """The port of one of the devices surveyed, with its kind and its nearest GPUs."""
        place = next(place for place in self.topology.devices if place.device == port.id.device)
        identity = replace(
            port.identity,
            kind=self.port_kinds[str(port.id)],
            gpu=",".join(place.gpus),
            gpu_distance=place.gpu_distance,
            numa_node=port.identity.numa_node if place.numa_node is None else str(place.numa_node),
        )
        return replace(port, identity=identity)


class TopologyReader:
    """Reads the locations of devices under a sysfs root; `overrides` take precedence over the kernel's values."""

    def __init__(self, sysfs: str, overrides: Mapping[str, Override], errors: InternalErrors | None = None) -> None:
        self._errors = errors or InternalErrors()
        self._class_folder = os.path.join(sysfs, "class", "infiniband")
        self._gpus = GpuReader(sysfs)
        self._overrides = overrides
        self._paths = RepeatedReads(self._make_read, REFRESH_SCANS)

    def start(self, names: Sequence[str], scan: int) -> list[threading.Thread]:
        """Start the reads that are due for these devices; returns their threads."""
        return self._paths.start(names, scan)

    def survey(self, views: Sequence[DeviceView], planes: Mapping[str, str]) -> Survey:
        """The current topology of the devices that have ports. Reads only the files of new GPUs."""
        views = [view for view in views if view.ports]
        gpus = self._gpus.read() if views else ()
        twins = kinds.find_twins([view for view in views if view.name not in planes])
        remarks = [(name, f"not a rail, because it shares the PCI function of {of}.") for name, of in twins.items()]
        places, rows = [], []
        port_kinds: dict[str, str] = {}
        for view in views:
            path, stale = self._find_path(view)
            kind = kinds.name_device_kind(view, path.kind, planes, twins)
            place, row = place_device(view, path, kind, gpus, self._overrides.get(view.name, Override()))
            places.append(place)
            rows.append(row)
            port_kinds |= {str(each.port.id): kinds.name_port_kind(view, each, kind) for each in view.ports}
            remarks += [(view.name, STALE)] if stale else []
            remarks += [(view.name, verdict.sentence) for verdict in place.verdicts if verdict.word in LINK_FAULTS]
        remarks += self._remark_on_overrides(views, gpus) + remark_on_forms(gpus)
        return Survey(Topology(tuple(places), gpus, tuple(rows)), tuple(remarks), port_kinds)

    def _make_read(self, name: str) -> RepeatedRead[DevicePath]:
        return _PathRead(name, PathReader(os.path.join(self._class_folder, name)), self._errors)

    def _find_path(self, view: DeviceView) -> tuple[DevicePath, bool]:
        """The known path of a device, and whether its files did not answer in time."""
        read = self._paths[view.name]
        path = read.answer
        if path is not None and path.function != view.function:
            # another card has taken the old name
            self._paths.read_again(view.name)
            path = None
        return path or DevicePath(view.function, ""), not read.answered

    def _remark_on_overrides(self, views: Sequence[DeviceView], gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
        there = {view.name for view in views}
        addresses = {gpu.address for gpu in gpus}
        remarks = []
        for name, override in self._overrides.items():
            if name not in there:
                remarks.append((SETTING, f"it describes {name}, but there is no such device: correct the name."))
            missing = [gpu for gpu in override.gpus if gpu not in addresses]
            if missing:
                remarks.append(
                    (SETTING, f"it lists GPU {', '.join(missing)} for {name}, but this node does not have it.")
                )
        return remarks


class PathReader:
    """Reads the location of the device at one folder of the class directory."""

    def __init__(self, device_folder: str) -> None:
        self._parent = os.path.join(device_folder, "device")

    def __call__(self, scan: int) -> DevicePath:
        """The current location; `scan` is not used."""
        real = os.path.realpath(self._parent) if os.path.exists(self._parent) else ""
        folder = find_function_folder(real)
        if not folder:
            return DevicePath(real, kinds.VIRTUAL)
        return DevicePath(
            function=real,
            kind=kinds.read_kind(real, folder),
            chain=find_chain(folder),
            links=read_links(folder),
            numa_node=parse_node(read_text(os.path.join(folder, "numa_node")).text),
            local_cpus=read_text(os.path.join(folder, "local_cpulist")).text,
        )


class _PathRead(RepeatedRead[DevicePath]):
    """The location of one device; after an exception, the last one."""

    def __init__(self, name: str, read: PathReader, errors: InternalErrors) -> None:
        super().__init__(name, f"sysfs-path-{name}", read)
        self._errors = errors

    def _run(self, scan: int) -> None:
        with self._errors.boundary("fabric", f"location of {self.name}"):
            self.answer = self._read(scan)
        self.answered = True


def place_device(
    view: DeviceView, path: DevicePath, kind: str, gpus: Sequence[Gpu], override: Override
) -> tuple[DevicePlace, tuple[str, ...]]:
    """The location of a device, and its distance to each GPU in the order of `gpus`."""
    numa_node = path.numa_node if override.numa_node is None else override.numa_node
    distances = {gpu.address: measure(path.chain, numa_node, gpu.chain, gpu.numa_node) for gpu in gpus}
    distances |= dict.fromkeys((gpu for gpu in override.gpus if gpu in distances), override.distance)
    nearest, distance = (override.gpus, override.distance) if override.gpus else find_nearest(distances)
    now, most = narrowest(path.links)
    if override.pcie_bytes_per_second is not None:
        now = most = override.pcie_bytes_per_second
    rates = [each.port.rate_bytes_per_second for each in view.ports if each.port.rate_bytes_per_second is not None]
    place = DevicePlace(
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


def remark_on_forms(gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
    """A remark if the GPUs have different form factors."""
    counted = {form: sum(gpu.form_factor == form for gpu in gpus) for form in {gpu.form_factor for gpu in gpus} - {""}}
    if len(counted) < 2:
        return []
    forms = ", ".join(f"{number} {form}" for form, number in sorted(counted.items()))
    return [("GPUs", SEVERAL_FORMS.format(forms=forms))]
