"""Facts of the sysfs tree: its mount, the counter folders, the cards, the slow counters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.agent.doctor.facts import Card, Counts, DoctorOptions, Folders, Mount, TreeFacts
from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.device import Selection
from ibpulse.agent.sysfs.error_counters import Wanted, choose_counters
from ibpulse.agent.sysfs.files import is_utf8, list_names, parse_count, read_link_name, read_text, read_value
from ibpulse.agent.sysfs.inventory import find_unsupported
from ibpulse.agent.sysfs.pcie import ADDRESS, HOST_BRIDGE, find_chain
from ibpulse.base.deadline import call_all
from ibpulse.base.text import natural_key, split_lines
from ibpulse.core.model import Fabric, Port, PortId

COUNTER_ANSWER_SECONDS = 1.5
# Requests that a port received: these count on when its byte counters are stuck.
REQUESTS = ("hw_counters/rx_write_requests", "hw_counters/rx_read_requests")
FLAPS = ("counters/link_downed", "counters/link_error_recovery")
READ_TWICE = frozenset((*REQUESTS, *FLAPS))
ANSWER_SECONDS = 1.0
_OCTAL = re.compile(r"\\([0-7]{3})")
ETHERNET_CLASS = "0x0200"
INFINIBAND_CLASS = "0x0207"


@dataclass(frozen=True, slots=True)
class PortCounts:
    """Slow counters of one port by folder and file name: values, those at their maximum, those without a value."""

    counts: Mapping[str, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def read_counts(sysfs: Path, ports: Sequence[Port], only: frozenset[str] = frozenset()) -> dict[PortId, PortCounts]:
    """The slow counters of ports that have a byte source, except those of a device that does not answer.

    `only` lists the files to read; all if empty.
    """
    devices: dict[str, list[Port]] = {}
    for port in ports:
        if port.source is not None:
            devices.setdefault(port.id.device, []).append(port)

    def reader(chosen: Sequence[Port]) -> Callable[[], dict[PortId, PortCounts]]:
        return lambda: {port.id: _read_port(sysfs, port, only) for port in chosen}

    results = call_all({name: reader(chosen) for name, chosen in devices.items()}, COUNTER_ANSWER_SECONDS)
    return {port: counts for found in results.values.values() for port, counts in found.items()}


def join_counts(begin: Mapping[PortId, PortCounts], end: Mapping[PortId, PortCounts]) -> dict[PortId, Counts]:
    """Both readings of each port that answered after sampling."""
    return {
        port: Counts(begin[port].counts if port in begin else {}, last.counts, last.full, last.unreadable)
        for port, last in end.items()
    }


def _read_port(sysfs: Path, port: Port, only: frozenset[str]) -> PortCounts:
    folder = os.path.join(sysfs, "class", "infiniband", port.id.device, "ports", str(port.id.port))
    listed = {name: list_names(os.path.join(folder, name)) for name in (COUNTERS, HW_COUNTERS)}
    wanted = choose_counters(listed, port.identity.link_layer, port.identity.driver, "all")
    chosen = [one for one in wanted if not only or _key(one) in only]
    counts: dict[str, int] = {}
    unreadable: dict[str, str] = {}
    for one in chosen:
        text = read_text(os.path.join(folder, one.folder, one.file))
        count = parse_count(text.text)
        if count is None:
            unreadable[_key(one)] = text.reason or f"holds '{text.text[:40]}', which is not a count"
        else:
            counts[_key(one)] = count
    full = tuple(_key(one) for one in chosen if one.full is not None and counts.get(_key(one)) == one.full)
    return PortCounts(counts, full, unreadable)


def _key(wanted: Wanted) -> str:
    return f"{wanted.folder}/{wanted.file}"


def read_tree(options: DoctorOptions, fabric: Fabric) -> TreeFacts:
    """Facts of the tree at `options.sysfs`; waits at most a second for each device."""
    sysfs = os.path.abspath(options.sysfs)
    listed = _list_devices(sysfs)
    selection = Selection(options.include, options.exclude)
    admitted = tuple(name for name in listed or () if selection.admits_device(name))
    stuck = set(fabric.stuck_devices)
    folders, shared, silent, absent = _ask_devices(sysfs, fabric, [name for name in admitted if name not in stuck])
    cards = call_all({"pci": lambda: tuple(find_cards(sysfs))}, ANSWER_SECONDS).values.get("pci")
    mount, unsupported = find_mount(options.root, sysfs), find_unsupported(sysfs)
    return TreeFacts(mount, listed, admitted, folders, shared, silent, absent, unsupported, cards)


def _list_devices(sysfs: str) -> tuple[str, ...] | None:
    try:
        with os.scandir(os.path.join(sysfs, "class", "infiniband")) as entries:
            names = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
        return tuple(sorted(filter(is_utf8, names), key=natural_key))
    except OSError:
        return None


def _ask_devices(
    sysfs: str, fabric: Fabric, names: Sequence[str]
) -> tuple[dict[PortId, Folders], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Counter folders of every port, devices with an `hw_counters` of their own, those that did not answer, and links
    to what is not there."""

    def reader(name: str) -> Callable[[], tuple[dict[PortId, Folders], bool, bool]]:
        folder = os.path.join(sysfs, "class", "infiniband", name)
        ports = [port.id for port in fabric.ports if port.id.device == name]
        return lambda: (
            {port: _read_folders(folder, port) for port in ports},
            os.path.isdir(os.path.join(folder, HW_COUNTERS)),
            Path(folder).is_symlink() and not os.path.exists(folder),
        )

    results = call_all({name: reader(name) for name in names}, ANSWER_SECONDS)
    folders = {port: found for ports, _, _ in results.values.values() for port, found in ports.items()}
    shared = tuple(name for name, (_, is_shared, _) in results.values.items() if is_shared)
    return folders, shared, results.late, tuple(name for name, (*_, absent) in results.values.items() if absent)


def _read_folders(device_folder: str, port: PortId) -> Folders:
    folder = os.path.join(device_folder, "ports", str(port.port))
    has_hw = os.path.isdir(os.path.join(folder, HW_COUNTERS))
    lifespan = parse_count(read_text(os.path.join(folder, HW_COUNTERS, "lifespan")).text) if has_hw else None
    return Folders(os.path.isdir(os.path.join(folder, COUNTERS)), has_hw, lifespan)


def find_cards(sysfs: str) -> Iterator[Card]:
    """Every network card in the PCI tree, except virtual functions and cards passed to a virtual machine."""
    devices = os.path.join(sysfs, "devices")
    for bridge in sorted(os.listdir(devices)):
        if HOST_BRIDGE.fullmatch(bridge):
            yield from _find_below(os.path.join(devices, bridge))


def _find_below(folder: str) -> Iterator[Card]:
    try:
        names = sorted(name for name in os.listdir(folder) if ADDRESS.fullmatch(name))
    except OSError:
        return
    for name in names:
        function = os.path.join(folder, name)
        card = _read_card(function)
        if card is not None:
            yield card
        yield from _find_below(function)


def _read_card(function: str) -> Card | None:
    kind = read_value(function, "class")[:6]
    if kind not in (ETHERNET_CLASS, INFINIBAND_CLASS) or os.path.exists(os.path.join(function, "physfn")):
        return None
    driver = read_link_name(function, "driver")
    if driver.startswith("vfio"):
        return None
    return Card(
        chain=find_chain(function),
        kind=(read_value(function, "vendor"), read_value(function, "device")),
        infiniband=kind == INFINIBAND_CLASS,
        driver=driver,
        rdma=_has_rdma(function),
    )


def _has_rdma(function: str) -> bool:
    """Whether there is an RDMA device below the function or below a child of it that is not a PCI function."""
    for folder, names, _ in os.walk(function):
        if "infiniband" in names and os.listdir(os.path.join(folder, "infiniband")):
            return True
        depth = os.path.relpath(folder, function).count(os.sep)
        names[:] = [name for name in names if depth < 1 and not ADDRESS.fullmatch(name) and "." in name]
    return False


def find_mount(root: Path, path: str) -> Mount | None:
    """The mount that contains `path` (proc(5), mountinfo); None if unknown."""
    try:
        lines = split_lines((root / "proc/self/mountinfo").read_bytes().decode(errors="surrogateescape"))
    except OSError:
        return None
    real = os.path.realpath(path)
    # of equal mount points the last one is on top
    found = [mount for line in lines if (mount := _parse_mount(line)) and _lies_under(real, mount.point)]
    return max(reversed(found), key=lambda mount: len(mount.point), default=None)


def _parse_mount(line: str) -> Mount | None:
    left, separator, right = line.partition(" - ")
    fields = left.split()
    if not separator or len(fields) < 6 or not right:
        return None
    point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
    return Mount(point, right.split()[0], "ro" in fields[5].split(","))


def _lies_under(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")
