"""Identity of a device and its network device, from files that never change while the device exists."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ibpulse.agent.sysfs.files import list_names, parse_count, read_link_name, read_value
from ibpulse.core.model import DeviceIdentity

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# the kernel module's name
SOFT_ROCE = "rdma_rxe"
# a node GUID has 19 characters; together with an inode, both fit into a slot of the ring
LONGEST_GUID, LONGEST_FUNCTION = 32, 40


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Identity of a device; unknown values are empty strings.

    `function` is the real path of its function, equal for devices that share one. `shared_counters` is true if the
    device has an `hw_counters` folder of its own, in addition to those of its ports.
    """

    guid: str = ""
    board: str = ""
    hca_type: str = ""
    firmware: str = ""
    driver: str = ""
    pci_address: str = ""
    numa_node: str = ""
    function: str = ""
    shared_counters: bool = False


def read_facts(device_folder: str) -> DeviceFacts:
    """Identity of the device at `device_folder`; a file that is missing or unreadable leaves its field empty."""
    parent = os.path.join(device_folder, "device")
    function = os.path.realpath(parent) if os.path.exists(parent) else ""
    pci = _find_pci_folder(function)
    return DeviceFacts(
        guid=read_value(device_folder, "node_guid"),
        board=read_value(device_folder, "board_id"),
        hca_type=read_value(device_folder, "hca_type"),
        firmware=read_value(device_folder, "fw_ver"),
        driver=read_link_name(parent, "driver") or _find_soft_driver(device_folder, function),
        pci_address=pci.name if pci else "",
        numa_node=read_value(str(pci), "numa_node").replace("-1", "") if pci else "",
        function=function,
        shared_counters=os.path.isdir(os.path.join(device_folder, "hw_counters")),
    )


def identify(facts: DeviceFacts, folder: str, inode: int) -> DeviceIdentity:
    """Identity of the device with these facts, whose directory has this inode."""
    guid = facts.guid if facts.guid.strip("0:") else ""
    return DeviceIdentity(guid[:LONGEST_GUID], Path(facts.function).name[:LONGEST_FUNCTION], inode, folder)


def _find_soft_driver(device_folder: str, function: str) -> str:
    """Soft-RoCE has no function, and is the only driver with a file `parent` (`sw/rxe/rxe_verbs.c`)."""
    return SOFT_ROCE if not function and os.path.exists(os.path.join(device_folder, "parent")) else ""


def find_netdev(device_folder: str, port: int) -> str:
    """Network device of the port: of its first GID, else of its function, else rxe's parent, else empty."""
    ndevs = os.path.join(device_folder, "ports", str(port), "gid_attrs", "ndevs")
    for name in list_names(ndevs):
        # an empty slot answers EINVAL by design
        netdev = read_value(ndevs, name)
        if netdev:
            return netdev
    own = _find_function_netdev(os.path.join(device_folder, "device", "net"), port)
    return own or read_value(device_folder, "parent")


def find_bond(net_folder: str, netdev: str) -> str:
    """Name of the bond that `netdev` is or belongs to, or an empty string; `net_folder` is `class/net`."""
    for bond in (netdev, read_link_name(os.path.join(net_folder, netdev), "master")):
        if bond and os.path.isdir(os.path.join(net_folder, bond, "bonding")):
            return bond
    return ""


def _find_function_netdev(folder: str, port: int) -> str:
    names = list_names(folder)
    for name in names:
        # a function with two ports has a network device for each; the kernel counts them from 0
        if parse_count(read_value(folder, os.path.join(name, "dev_port"))) == port - 1:
            return name
    # without a port number the answer is certain only for one network device and one port
    return names[0] if len(names) == 1 and port == 1 else ""


def _find_pci_folder(function: str) -> Path | None:
    """The lowest PCI function on a real path: sub-functions and auxiliary devices are below it."""
    path = Path(function)
    return next((part for part in (path, *path.parents) if _PCI_ADDRESS.fullmatch(part.name)), None)
