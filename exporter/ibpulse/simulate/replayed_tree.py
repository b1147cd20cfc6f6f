"""What stands in the sysfs tree of recorded ports, as text by path. It must not touch a disk or know of time.

The formats are the kernel's, as in `tree`. A name out of a recording becomes part of a path only when it is one that
the kernel could have given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ibpulse.errors import FabricError
from ibpulse.recordings import RecordedPort
from ibpulse.simulate.tree import COUNTERS, HW_COUNTERS, Listing, climb

STATES = {"NOP": 0, "DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4, "ACTIVE_DEFER": 5}
VIRTUAL_FUNCTION = "vf"
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}):[0-9a-f]{2}\.[0-7]")


def list_ports(ports: Sequence[RecordedPort]) -> Listing:
    """The tree of these ports: their devices with the identity that was recorded. Counters read 0.

    Raises:
        FabricError: a device has a name that no directory of the kernel has.
    """
    listing = Listing()
    for port in ports:
        if not _NAME.fullmatch(port.device):
            raise FabricError(
                f"port {str(port.id)!r} cannot be replayed: its device's name is no file name; "
                "record it, or import it, under a name of letters, digits, '_', '-' and '.'"
            )
        _add_function(listing, port)
        _add_device(listing, port)
        _add_port(listing, port)
    return listing


def counters_path(port: RecordedPort) -> str:
    """The directory of a port's counters, from the root of the tree."""
    return f"{_device_path(port)}/ports/{port.port}/counters"


def rate_text(port: RecordedPort) -> str:
    """The port's `rate` file: as recorded, else one that gives the recorded data rate."""
    if port.identity.rate or port.rate_bytes_per_second is None:
        return port.identity.rate
    gigabits = round(port.rate_bytes_per_second * 8 / 1e9 * 2) / 2
    return f"{gigabits:g} Gb/sec (4X NDR)"


def _add_function(listing: Listing, port: RecordedPort) -> None:
    """The PCI function and the network device, where the recording names them."""
    pci, identity = _pci_path(port), port.identity
    if pci:
        listing.files[f"{pci}/numa_node"] = f"{identity.numa_node or -1}\n"
        if _NAME.fullmatch(identity.driver):
            driver = f"bus/pci/drivers/{identity.driver}"
            listing.files[f"{driver}/uevent"] = "\n"
            listing.links[f"{pci}/driver"] = climb(pci) + driver
        if identity.kind == VIRTUAL_FUNCTION:
            # a link is all that tells one; what it is part of is not in the recording
            listing.links[f"{pci}/physfn"] = "."
    if _NAME.fullmatch(identity.netdev):
        net = f"{pci or 'devices/virtual'}/net/{identity.netdev}"
        speed = -1 if port.rate_bytes_per_second is None else round(port.rate_bytes_per_second * 8 / 1e6)
        listing.files |= {f"{net}/operstate": "up\n" if port.active else "down\n", f"{net}/speed": f"{speed}\n"}
        listing.links[f"class/net/{identity.netdev}"] = f"../../{net}"


def _add_device(listing: Listing, port: RecordedPort) -> None:
    path, identity = _device_path(port), port.identity
    facts = {
        "node_type": "1: CA",
        "node_guid": identity.guid,
        "sys_image_guid": identity.guid,
        "node_desc": f"replay {port.device}",
        "fw_ver": identity.firmware,
        "hca_type": identity.hca_type,
        "hw_rev": "0",
        "board_id": identity.board,
    }
    listing.files |= _lines(path, facts)
    if _pci_path(port):
        listing.links[f"{path}/device"] = "../.."
    listing.links[f"class/infiniband/{port.device}"] = f"../../{path}"


def _add_port(listing: Listing, port: RecordedPort) -> None:
    path = f"{_device_path(port)}/ports/{port.port}"
    state = "ACTIVE" if port.active else port.state if port.state in STATES and port.state != "ACTIVE" else "DOWN"
    facts = {
        "state": f"{STATES[state]}: {state}",
        "phys_state": "5: LinkUp" if port.active else "3: Disabled",
        "rate": rate_text(port),
        "link_layer": port.identity.link_layer or INFINIBAND,
        "lid": "0x0" if port.identity.link_layer == ETHERNET else "0x1",
        "gid_attrs/ndevs/0": port.identity.netdev,
        "hw_counters/lifespan": "10",
    }
    listing.files |= _lines(path, facts)
    listing.files |= _lines(path, {f"counters/{name}": "0" for name in COUNTERS})
    listing.files |= _lines(path, {f"hw_counters/{name}": "0" for name in HW_COUNTERS})


def _pci_path(port: RecordedPort) -> str:
    """The directory of the PCI function; empty for a device without one."""
    found = _PCI_ADDRESS.fullmatch(port.identity.pci_address)
    return f"devices/pci{found[1]}/{found[0]}" if found else ""


def _device_path(port: RecordedPort) -> str:
    return f"{_pci_path(port) or 'devices/virtual'}/infiniband/{port.device}"


def _lines(folder: str, facts: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": f"{text}\n" for name, text in facts.items()}
