"""Where every RDMA device is plugged in and which GPUs are near, read seldom and put together at every scan.

The PCIe files of a device are read in a thread of its own, beside the one that reads its status: a configuration read
that hangs holds up neither other devices nor the status of its own. GPUs are known by files that cannot hang.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ibpulse.deadline import RepeatedRead, RepeatedReads
from ibpulse.model import DevicePlace, Gpu, PcieLink, Port, Topology
from ibpulse.sysfs import rails
from ibpulse.sysfs.device import DeviceView
from ibpulse.sysfs.files import read_text
from ibpulse.sysfs.gpus import GpuReader, find_nearest, measure, parse_node
from ibpulse.sysfs.overrides import SETTING, Override
from ibpulse.sysfs.pcie import LINK_FAULTS, find_chain, find_function_folder, judge, narrowest, read_links

# a minute at the default interval of scans, never under ten seconds
REFRESH_SCANS = 12
STALE = "its PCIe files did not answer in time, so its place is what was last known of it."
SEVERAL_FORMS = "the GPUs of this node are of several forms ({forms}): see whether it is what was bought."


@dataclass(frozen=True, slots=True)
class DevicePath:
    """What the kernel says of the place of one device; `function` as in `DeviceView`, to know that both mean one."""

    function: str
    kind: str
    chain: tuple[str, ...] = ()
    links: tuple[PcieLink, ...] = ()
    numa_node: int | None = None
    local_cpus: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """The topology of one scan, what is to be said about it, and the kind of every port by its name."""

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
    """Reads the places of devices under a sysfs root; `overrides` stand before what the kernel says."""

    def __init__(self, sysfs: str, overrides: Mapping[str, Override]) -> None:
        self._class_folder = os.path.join(sysfs, "class", "infiniband")
        self._gpus = GpuReader(sysfs)
        self._overrides = overrides
        self._paths = RepeatedReads(self._make_read, REFRESH_SCANS)

    def start(self, names: Sequence[str], scan: int) -> list[threading.Thread]:
        """The threads of the reads that are due for the devices of these names."""
        return self._paths.start(names, scan)

    def survey(self, views: Sequence[DeviceView], planes: Mapping[str, str]) -> Survey:
        """The topology as it is known now, of the devices that have ports. Reads no file but those of new GPUs."""
        views = [view for view in views if view.ports]
        gpus = self._gpus.read() if views else ()
        twins = rails.find_twins([view for view in views if view.name not in planes])
        remarks = [(name, f"no rail, since it stands on the function of {of}.") for name, of in twins.items()]
        places, rows = [], []
        port_kinds: dict[str, str] = {}
        for view in views:
            path, stale = self._find_path(view)
            kind = rails.name_device_kind(view, path.kind, planes, twins)
            place, row = place_device(view, path, kind, gpus, self._overrides.get(view.name, Override()))
            places.append(place)
            rows.append(row)
            port_kinds |= {str(each.port.id): rails.name_port_kind(view, each, kind) for each in view.ports}
            remarks += [(view.name, STALE)] if stale else []
            remarks += [(view.name, verdict.sentence) for verdict in place.verdicts if verdict.word in LINK_FAULTS]
        remarks += self._remark_on_overrides(views, gpus) + remark_on_forms(gpus)
        return Survey(Topology(tuple(places), gpus, tuple(rows)), tuple(remarks), port_kinds)

    def _make_read(self, name: str) -> RepeatedRead[DevicePath]:
        return RepeatedRead(name, f"sysfs-path-{name}", PathReader(os.path.join(self._class_folder, name)))

    def _find_path(self, view: DeviceView) -> tuple[DevicePath, bool]:
        """What is known of the way of a device, and whether its files are late."""
        read = self._paths[view.name]
        path = read.answer
        if path is not None and path.function != view.function:
            # another card has come under the old name
            self._paths.read_again(view.name)
            path = None
        return path or DevicePath(view.function, ""), not read.answered

    def _remark_on_overrides(self, views: Sequence[DeviceView], gpus: Sequence[Gpu]) -> list[tuple[str, str]]:
        there = {view.name for view in views}
        addresses = {gpu.address for gpu in gpus}
        remarks = []
        for name, override in self._overrides.items():
            if name not in there:
                remarks.append((SETTING, f"it places {name}, which is not among the devices: correct the name."))
            missing = [gpu for gpu in override.gpus if gpu not in addresses]
            if missing:
                remarks.append((SETTING, f"it puts {', '.join(missing)} near {name}, which this node does not show."))
        return remarks


class PathReader:
    """Reads the place of the device at one folder of the class directory."""

    def __init__(self, device_folder: str) -> None:
        self._parent = os.path.join(device_folder, "device")

    def __call__(self, scan: int) -> DevicePath:
        """The place as the kernel tells it now; the number of the scan does not matter."""
        real = os.path.realpath(self._parent) if os.path.exists(self._parent) else ""
        folder = find_function_folder(real)
        if not folder:
            return DevicePath(real, rails.VIRTUAL)
        return DevicePath(
            function=real,
            kind=rails.read_kind(real, folder),
            chain=find_chain(folder),
            links=read_links(folder),
            numa_node=parse_node(read_text(os.path.join(folder, "numa_node")).text),
            local_cpus=read_text(os.path.join(folder, "local_cpulist")).text,
        )


def place_device(
    view: DeviceView, path: DevicePath, kind: str, gpus: Sequence[Gpu], override: Override
) -> tuple[DevicePlace, tuple[str, ...]]:
    """The place of a device, and its distance to each of the GPUs in their order."""
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
    """A remark when the GPUs are of several form factors."""
    counted = {form: sum(gpu.form_factor == form for gpu in gpus) for form in {gpu.form_factor for gpu in gpus} - {""}}
    if len(counted) < 2:
        return []
    forms = ", ".join(f"{number} {form}" for form, number in sorted(counted.items()))
    return [("GPUs", SEVERAL_FORMS.format(forms=forms))]
