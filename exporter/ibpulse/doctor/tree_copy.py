"""Copies the part of a sysfs tree that ibpulse reads: files, links and folders.

The copy is a fixture: `ibpulse serve` sees the same fabric in it, with counters that never change. A file that could
not be read contains `N/A (no PMA)`, as in old kernels and simulated fabrics; `unreadable` gives the reason.

Of a device's own `hw_counters` only the folder is copied: its existence matters, but reading its files through a pod's
own sysfs can crash some kernels. GIDs and keys are not copied because nothing here needs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ibpulse.deadline import call_all
from ibpulse.model import Fabric
from ibpulse.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.sysfs.error_counters import REFRESHING_FILE
from ibpulse.sysfs.files import NO_PMA, ReadFault, list_names, read_text
from ibpulse.sysfs.gpus import GpuReader
from ibpulse.sysfs.identity import find_bond
from ibpulse.sysfs.pcie import ADDRESS

ANSWER_SECONDS = 1.5
DEVICE_FILES = (
    "node_type",
    "node_guid",
    "sys_image_guid",
    "node_desc",
    "fw_ver",
    "hca_type",
    "hw_rev",
    "board_id",
    "parent",
)
PORT_FILES = ("state", "phys_state", "rate", "link_layer")
GID_FOLDERS = ("gid_attrs/ndevs", "gid_attrs/types")
PCI_FILES = (
    "vendor",
    "device",
    "class",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "local_cpulist",
    "current_link_speed",
    "max_link_speed",
    "current_link_width",
    "max_link_width",
)
NETDEV_FILES = ("speed", "operstate", "dev_port")


@dataclass(slots=True)
class TreeCopy:
    """Files with their text, links with their relative target, and folders, by path from the root of the tree.

    `unreadable` gives the reason why a file has no text of its own.
    """

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)

    def add(self, other: TreeCopy) -> None:
        """Add another part of the same tree."""
        self.files |= other.files
        self.links |= other.links
        self.folders |= other.folders
        self.unreadable |= other.unreadable


def copy_tree(sysfs: Path, fabric: Fabric, devices: Sequence[str]) -> TreeCopy:
    """A copy of these devices and of the GPUs; a device that does not answer is only listed in `unreadable`."""
    root = os.path.realpath(sysfs)
    calls: dict[str, Callable[[], TreeCopy]] = {
        name: partial(_copy_device, root, fabric, name) for name in devices if name not in fabric.stuck_devices
    }
    calls["gpus"] = partial(_copy_gpus, root)
    results = call_all(calls, ANSWER_SECONDS)
    whole = TreeCopy(folders={"class/infiniband", "class/net", "devices"})
    for part in results.values.values():
        whole.add(part)
    silent = (*fabric.stuck_devices, *(name for name in results.late if name != "gpus"))
    whole.unreadable |= {f"class/infiniband/{name}": "did not answer" for name in silent}
    return whole


def _copy_device(root: str, fabric: Fabric, name: str) -> TreeCopy:
    copy = _Copier(root)
    folder = os.path.join(root, "class", "infiniband", name)
    copy.link(folder)
    copy.files(folder, DEVICE_FILES)
    copy.link(os.path.join(folder, "device"))
    if os.path.isdir(os.path.join(folder, HW_COUNTERS)):
        copy.folder(os.path.join(folder, HW_COUNTERS))
    copy.folder(os.path.join(folder, "ports"))
    for port in list_names(os.path.join(folder, "ports")):
        _copy_port(copy, os.path.join(folder, "ports", port))
    parent = os.path.realpath(os.path.join(folder, "device"))
    if os.path.isdir(parent):
        _copy_function(copy, parent)
    netdevs = {port.identity.netdev for port in fabric.ports if port.id.device == name}
    netdevs |= set(list_names(os.path.join(parent, "net")))
    for netdev in filter(None, netdevs):
        _copy_netdev(copy, netdev)
    return copy.tree


def _copy_port(copy: _Copier, folder: str) -> None:
    copy.files(folder, PORT_FILES)
    for name in (*GID_FOLDERS, COUNTERS, HW_COUNTERS):
        inner = os.path.join(folder, name)
        if os.path.isdir(inner):
            copy.folder(inner)
            # the first read refreshes the kernel's cache for all others
            copy.files(inner, sorted(list_names(inner), key=lambda file: file != REFRESHING_FILE))


def _copy_function(copy: _Copier, folder: str) -> None:
    """The folder of a function, every PCI function above it, and their links."""
    for part in (Path(folder), *Path(folder).parents):
        if ADDRESS.fullmatch(part.name):
            copy.files(str(part), PCI_FILES)
            copy.link(os.path.join(copy.root, "bus", "pci", "devices", part.name))
        if ADDRESS.fullmatch(part.name) or part == Path(folder):
            copy.folder(str(part))
            for name in ("driver", "physfn"):
                copy.link(os.path.join(part, name))
    physical = os.path.join(folder, "physfn")
    if os.path.isdir(physical):
        copy.files(physical, PCI_FILES)


def _copy_netdev(copy: _Copier, name: str) -> None:
    folders = [os.path.join(copy.root, "class", "net", name)]
    bond = find_bond(os.path.join(copy.root, "class", "net"), name)
    if bond and bond != name:
        folders.append(os.path.join(copy.root, "class", "net", bond))
    for folder in filter(os.path.isdir, folders):
        copy.link(folder)
        copy.folder(folder)
        copy.files(folder, NETDEV_FILES)
        copy.link(os.path.join(folder, "master"))
        if os.path.isdir(os.path.join(folder, "bonding")):
            copy.folder(os.path.join(folder, "bonding"))


def _copy_gpus(root: str) -> TreeCopy:
    copy = _Copier(root)
    for gpu in GpuReader(root).read():
        _copy_function(copy, os.path.realpath(os.path.join(root, "bus", "pci", "devices", gpu.address)))
    return copy.tree


class _Copier:
    """Copies files, folders and links under their real paths; ignores those outside the tree."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.tree = TreeCopy()

    def files(self, folder: str, names: Iterable[str]) -> None:
        """Copy the files of these names, if they exist."""
        place = self._place(folder)
        if place is None:
            return
        for name in names:
            path = f"{place}/{name}"
            if path in self.tree.files or os.path.isdir(os.path.join(folder, name)):
                continue
            read = read_text(os.path.join(folder, name))
            if read.fault is ReadFault.MISSING:
                continue
            if read.fault is not ReadFault.NONE:
                self.tree.unreadable[path] = read.reason
            self.tree.files[path] = f"{NO_PMA if read.fault is not ReadFault.NONE else read.text}\n"

    def folder(self, path: str) -> None:
        """Copy the folder without its content."""
        place = self._place(path)
        if place is not None:
            self.tree.folders.add(place)

    def link(self, path: str) -> None:
        """Copy a symbolic link with a relative target, and the folder that it points to."""
        folder, name = os.path.split(path)
        place, target = self._place(folder), self._place(path)
        if place is not None and target is not None and Path(path).is_symlink():
            self.tree.links[f"{place}/{name}"] = os.path.relpath(target, place)
            self.tree.folders.add(target)

    def _place(self, path: str) -> str | None:
        """The real path relative to the root; None if it is outside."""
        place = os.path.relpath(os.path.realpath(path), self.root)
        return None if place.startswith(os.pardir) else place
