"""The sysfs tree of a simulated node: devices, ports and PCI functions as text by path, and the files that hold it."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import shutil
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from ibpulse.agent.sysfs.inventory import SIMULATED_FILE
from ibpulse.base.errors import FabricError

BRIDGE_CLASS = "0x060400"
ROOT_PORT = ("0x8086", "0x352a")
SWITCH = ("0x1000", "0xc030")
GPU = ("0x10de", "0x2330")
GPU_CLASS = "0x030200"
GEN5_X16 = {
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
}
CPUS = ("0-47", "48-95")
COUNTERS = (
    "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "unicast_xmit_packets",
    "unicast_rcv_packets", "multicast_xmit_packets", "multicast_rcv_packets", "port_xmit_wait", "symbol_error",
    "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_discards",
    "VL15_dropped", "link_error_recovery", "link_downed", "port_xmit_constraint_errors",
    "port_rcv_constraint_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
HW_COUNTERS = (
    "rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rx_dct_connect", "out_of_buffer",
    "out_of_sequence", "duplicate_request", "packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err",
    "local_ack_timeout_err", "resp_local_length_error", "resp_cqe_error", "req_cqe_error",
    "req_remote_invalid_request", "req_remote_access_errors", "resp_remote_access_errors", "resp_cqe_flush_error",
    "req_cqe_flush_error", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps",
    "roce_slow_restart_trans", "rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent",
    "rx_icrc_encapsulated",
)  # fmt: skip
DRIVER = "mlx5_core"
DRIVER_PATH = f"bus/pci/drivers/{DRIVER}"
TOP = ("class", "devices", "bus", "jobs")
# from inotify.h
IN_ACCESS = 0x1
# number of the watch, mask, cookie, length of the name; a watched file has no name
EVENT = struct.Struct("iIII")
# a sampler reads all ports within this time
SETTLE_SECONDS = 0.0002
MAX_EVENTS = 4096
log = logging.getLogger(__name__)


def list_functions(nic_path: str, nic: tuple[str, str, str], numa_node: int, gpu: bool) -> dict[str, str]:
    """Texts by path of the NIC at `nic_path` (`devices/pci…/root port/upstream/downstream/NIC`) and its surroundings.

    `nic` is its vendor, device and class; `gpu` puts a GPU under the next port of the switch.
    """
    downstream = PurePosixPath(nic_path).parent
    upstream = downstream.parent
    functions = {
        str(upstream.parent): (*ROOT_PORT, BRIDGE_CLASS),
        str(upstream): (*SWITCH, BRIDGE_CLASS),
        str(downstream): (*SWITCH, BRIDGE_CLASS),
        nic_path: nic,
    }
    if gpu:
        # the next device on the same bus
        port, card = downstream.name.replace(":00.", ":01."), _next_bus(PurePosixPath(nic_path).name)
        functions[f"{upstream}/{port}"] = (*SWITCH, BRIDGE_CLASS)
        functions[f"{upstream}/{port}/{card}"] = (*GPU, GPU_CLASS)
    files: dict[str, str] = {}
    for path, ids in functions.items():
        facts = dict(zip(("vendor", "device", "class"), ids, strict=True)) | GEN5_X16
        files |= text_files(path, facts | {"numa_node": str(numa_node), "local_cpulist": CPUS[numa_node]})
    return files


def text_files(folder: str, facts: Mapping[str, object]) -> dict[str, str]:
    """Files of a folder by path, each of which holds one line."""
    return {f"{folder}/{name}": f"{fact}\n" for name, fact in facts.items()}


def list_bus(files: dict[str, str]) -> dict[str, str]:
    """The links of `bus/pci/devices` to the functions of these files."""
    folders = {PurePosixPath(path).parent for path in files}
    return {f"bus/pci/devices/{folder.name}": f"../../../{folder}" for folder in folders}


def _next_bus(address: str) -> str:
    """The same function on the next bus."""
    domain, bus, rest = address.split(":")
    return f"{domain}:{int(bus, 16) + 1:02x}:{rest}"


@dataclass(frozen=True, slots=True)
class Device:
    """A simulated NIC with one port. `rail` is its position in the schedule, None for the management NIC."""

    name: str
    index: int
    rail: int | None

    @property
    def pci_path(self) -> str:
        """The PCI function under `devices/`: host bridge, root port, two switch ports, endpoint."""
        domain, bus = self.index // 16, 0x10 + self.index % 16 * 0x0E
        chain = [f"{domain:04x}:{bus:02x}:01.0"] + [f"{domain:04x}:{bus + step:02x}:00.0" for step in (1, 2, 3)]
        return f"devices/pci{domain:04x}:{bus:02x}/" + "/".join(chain)

    @property
    def path(self) -> str:
        """The directory of the RDMA device."""
        return f"{self.pci_path}/infiniband/{self.name}"

    @property
    def port_path(self) -> str:
        """The directory of the only port."""
        return f"{self.path}/ports/1"

    @property
    def counters_path(self) -> str:
        """The directory of the counters for which every read is a request to the device."""
        return f"{self.port_path}/counters"

    @property
    def netdev(self) -> str:
        """The network interface on the same function."""
        return "eth0" if self.rail is None else f"ib{self.index}"

    @property
    def gpu(self) -> str:
        """The PCI address of the GPU below the same switch."""
        return _next_bus(self.pci_path.rpartition("/")[2])

    @property
    def guid(self) -> str:
        """The node GUID: 16 hexadecimal digits without a separator."""
        return f"b8cef60300{self.index:02x}bb00"


@dataclass(slots=True)
class Listing:
    """Text files and symbolic links by path from the root of the tree."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def make_devices(rails: int, management: bool = False) -> tuple[Device, ...]:
    """`mlx5_0`, `mlx5_1`, ... one per rail, and on request the Ethernet NIC `mlx5_an0`."""
    devices = [Device(f"mlx5_{rail}", rail, rail) for rail in range(rails)]
    return (*devices, Device("mlx5_an0", rails, None)) if management else tuple(devices)


def list_function(device: Device) -> Listing:
    """The files that stay when the RDMA device disappears: PCI function, switch, neighbouring GPU, driver."""
    ethernet = device.rail is None
    ids = ("0x15b3", "0x101e", "0x020000") if ethernet else ("0x15b3", "0x1021", "0x020700")
    files = list_functions(device.pci_path, ids, device.index // 4 % 2, gpu=not ethernet)
    links = list_bus(files) | {f"{device.pci_path}/driver": climb(device.pci_path) + DRIVER_PATH}
    files[f"{DRIVER_PATH}/module_version"] = "6.8.0\n"
    return Listing(files, links)


def list_device(device: Device, counters: Mapping[str, int] = MappingProxyType({})) -> Listing:
    """The files that come and go with the RDMA device, with an active link. Counters without a value read 0."""
    facts = {
        "node_type": "1: CA",
        "node_guid": _colons(device.guid),
        "sys_image_guid": _colons(device.guid),
        "node_desc": f"gpu-node {device.name}",
        "fw_ver": "28.41.1000",
        "hca_type": "MT4126" if device.rail is None else "MT4129",
        "hw_rev": "0",
        "board_id": "MT_0000000838",
    }
    files = text_files(device.path, facts) | text_files(device.port_path, _port_facts(device))
    files |= {f"{device.port_path}/{name}": text for name, text in status_files(device, up=True).items()}
    files |= text_files(device.counters_path, {name: counters.get(name, 0) for name in COUNTERS})
    files |= text_files(f"{device.port_path}/hw_counters", {**dict.fromkeys(HW_COUNTERS, 0), "lifespan": 10})
    net = f"{device.pci_path}/net/{device.netdev}"
    files |= text_files(net, {"operstate": "up", "speed": 100_000 if device.rail is None else 400_000})
    links = {
        f"class/infiniband/{device.name}": f"../../{device.path}",
        f"class/net/{device.netdev}": f"../../{net}",
        f"{device.path}/device": f"../../../{device.pci_path.rpartition('/')[2]}",
    }
    return Listing(files, links)


def status_files(device: Device, up: bool, trained_down: bool = False) -> dict[str, str]:
    """The files of the port that follow the link: a port that is down shows a rate that is not its own.

    One that has trained down has half its lanes.

    They are in the order of writing them, so that whoever reads in between never sees that rate with an ACTIVE state.
    """
    ethernet = device.rail is None
    if up:
        full, half = (
            ("100 Gb/sec (4X EDR)", "50 Gb/sec (2X EDR)")
            if ethernet
            else ("400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)")
        )
        rate = half if trained_down else full
        return {"rate": f"{rate}\n", "phys_state": "5: LinkUp\n", "state": "4: ACTIVE\n"}
    phys, rate = ("3: Disabled", "40 Gb/sec (4X QDR)") if ethernet else ("2: Polling", "10 Gb/sec (4X SDR)")
    return {"state": "1: DOWN\n", "phys_state": f"{phys}\n", "rate": f"{rate}\n"}


def _port_facts(device: Device) -> dict[str, str]:
    ethernet = device.rail is None
    gid = "fe80:0000:0000:0000:" + _colons(device.guid)
    return {
        "link_layer": "Ethernet" if ethernet else "InfiniBand",
        "lid": "0x0" if ethernet else f"0x{0x1A + device.index:x}",
        "lid_mask_count": "0",
        "sm_lid": "0x0" if ethernet else "0x1",
        "sm_sl": "0",
        "cap_mask": "0xa751e848",
        "gids/0": gid,
        "gids/1": ":".join(["0000"] * 8),
        "pkeys/0": "0xffff",
        "gid_attrs/types/0": "RoCE v2" if ethernet else "IB/RoCE v1",
        "gid_attrs/ndevs/0": device.netdev,
    }


def _colons(guid: str) -> str:
    return ":".join(guid[place : place + 4] for place in range(0, 16, 4))


def climb(path: str) -> str:
    """The path from a link at `path` up to the root of the tree."""
    return "../" * len(path.split("/"))


class SimulatedCounterFile:
    """One file that is rewritten through a descriptor held open."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY)
        self._text = b""
        self._length = os.fstat(self._descriptor).st_size

    def write(self, text: str) -> None:
        """Write `text` and a newline at offset 0, unless it is already there.

        A shorter text is first padded with newlines to the length of the old one, so that a reader never sees the new
        digits followed by old ones.
        """
        wanted = text.encode() + b"\n"
        if wanted == self._text:
            return
        os.pwrite(self._descriptor, wanted.ljust(self._length, b"\n"), 0)
        if len(wanted) < self._length:
            os.ftruncate(self._descriptor, len(wanted))
        self._text, self._length = wanted, len(wanted)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def write_listing(root: Path, listing: Listing) -> None:
    """Write every file of the listing, then every link, so that a device appears in its class only when complete."""
    for name, text in listing.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in listing.links.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def replace_text(path: Path, text: str) -> None:
    """Replace the file's text atomically; a reader sees the old text or the new one."""
    if path.read_text() != text:
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text)
        fresh.rename(path)


def remove_listing(root: Path, listing: Listing) -> None:
    """Remove the listing's links, then its files and the directories that this empties."""
    for name in (*reversed(listing.links), *listing.files):
        (root / name).unlink(missing_ok=True)
    parents = {parent for name in listing.files for parent in Path(name).parents[:-1]}
    for parent in sorted(parents, key=lambda path: -len(path.parts)):
        if (root / parent).is_dir() and not any((root / parent).iterdir()):
            (root / parent).rmdir()


def clear_tree(directory: Path) -> None:
    """Create the directory, or empty it of an earlier fabric, and mark it as one.

    Raises FabricError if it holds anything else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not (directory / SIMULATED_FILE).exists():
        raise FabricError(f"{directory} is not empty and holds no simulated fabric: use a new or an empty directory")
    for top in TOP:
        if (directory / top).is_dir():
            shutil.rmtree(directory / top)
    (directory / SIMULATED_FILE).write_text("The tree in this directory is simulated; no device is behind it.\n")


class CounterReads:
    """Notices reads of files by any process with inotify; without inotify it only sleeps."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)
        else:
            log.warning("inotify: %s: reads that are late may show rates above the line rate", self._why())

    def watch(self, path: Path) -> int:
        """Notice reads of this file too; returns its number, negative if that is impossible."""
        if self._descriptor < 0:
            return -1
        number: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_ACCESS)
        if number < 0:
            log.warning("inotify: %s: %s", path, self._why())
        return number

    def pause(self, seconds: float) -> set[int]:
        """Sleep, or return early when a file was read; the numbers of those that were since the last call."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return set()
        if self._poll.poll(1000 * seconds):
            time.sleep(min(seconds, SETTLE_SECONDS))
        try:
            events = os.read(self._descriptor, MAX_EVENTS * EVENT.size)
        except BlockingIOError:
            return set()
        return {number for number, mask, *_ in EVENT.iter_unpack(events) if mask & IN_ACCESS}

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _why(self) -> str:
        return os.strerror(ctypes.get_errno())
