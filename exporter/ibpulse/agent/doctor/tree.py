"""The sysfs tree of a node: its mount, its devices and its cards, and the checks of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ibpulse.agent.doctor.facts import (
    GONE_NS,
    Card,
    DoctorOptions,
    Facts,
    Finding,
    Folders,
    Level,
    Mount,
    TreeFacts,
    check,
    failed,
    passed,
    warned,
)
from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.device import Selection
from ibpulse.agent.sysfs.files import is_utf8, parse_count, read_link_name, read_text, read_value
from ibpulse.agent.sysfs.gpus import NEAR
from ibpulse.agent.sysfs.inventory import find_unsupported
from ibpulse.agent.sysfs.kinds import BOND
from ibpulse.agent.sysfs.pcie import ADDRESS, HOST_BRIDGE, find_chain
from ibpulse.agent.sysfs.roles import find_near_gpus, is_lost_rail
from ibpulse.base.deadline import call_all
from ibpulse.base.text import count_text, moment_text, names_text, natural_key, split_lines
from ibpulse.core.events import Event
from ibpulse.core.model import COMPUTE, Fabric, PortId

ANSWER_SECONDS = 1.0
_OCTAL = re.compile(r"\\([0-7]{3})")
ETHERNET_CLASS = "0x0200"
INFINIBAND_CLASS = "0x0207"
NOTHING = "There is nothing to sample."
NOT_SAMPLED = "It is not sampled and is missing from all metrics of the node."


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
    if read_link_name(function, "driver").startswith("vfio"):
        return None
    return Card(
        chain=find_chain(function),
        kind=(read_value(function, "vendor"), read_value(function, "device")),
        infiniband=kind == INFINIBAND_CLASS,
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
    mounts = filter(None, map(_parse_mount, lines))
    found = [mount for mount in mounts if f"{real}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(found), key=lambda mount: len(mount.point), default=None)


def _parse_mount(line: str) -> Mount | None:
    left, separator, right = line.partition(" - ")
    fields = left.split()
    if not separator or len(fields) < 6 or not right:
        return None
    point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
    return Mount(point, right.split()[0], "ro" in fields[5].split(","))


@check("tree")
def check_tree(facts: Facts) -> Iterator[Finding]:
    """The sysfs tree: whether it is the host's, how it is mounted, whether it has counters."""
    tree = facts.tree
    for network, count in tree.unsupported.items():
        yield Finding(
            Level.WARN if tree.listed else Level.FAIL,
            network,
            f"is not supported: it has no RDMA devices, and {count_text(count, 'adapter')} here cannot be sampled.",
            "The traffic of this network is missing from all metrics." if tree.listed else NOTHING,
            "Other adapters of this node are sampled as usual." if tree.listed else "Do not run ibpulse on such nodes.",
        )
    if tree.listed or not tree.unsupported:
        yield _find_tree_fault(tree) or _describe_mount(tree)


def _find_tree_fault(tree: TreeFacts) -> Finding | None:
    """The first reason for which the tree does not show the host's ports."""
    if not tree.listed:
        what = "has no class/infiniband" if tree.listed is None else "has no devices in class/infiniband"
        return failed(
            "path.sysfs",
            f"{what}.",
            NOTHING,
            "Load the driver of the RDMA devices, or set path.sysfs to the mount point of the host's /sys. "
            "Without any, `ibpulse demo` shows a simulated fabric.",
        )
    if not tree.admitted:
        devices = count_text(len(tree.listed), "device")
        sentence = f"and ports.include exclude all {devices} of this node."
        return failed("ports.exclude", sentence, NOTHING, "Change these settings.")
    if tree.is_other_namespace:
        return failed(
            "path.sysfs",
            "shows devices without counters, as the sysfs of another network namespace does.",
            "No port can be sampled. (Drivers without any counters look the same.)",
            "Mount the host's /sys read-only at /host/sys and set path.sysfs to it; hostNetwork is not needed.",
        )
    if tree.absent:
        return failed(
            "path.sysfs",
            f"class/infiniband links to devices that are not here: {names_text(tree.absent)}.",
            "They are not sampled and are missing from all metrics of the node.",
            "Mount the whole /sys of the host, not only /sys/class, and set path.sysfs to it.",
        )
    return None


def _describe_mount(tree: TreeFacts) -> Finding:
    if not tree.is_kernel:
        sentence = (
            "holds plain files, not a kernel's sysfs: a simulated fabric or a fixture. Findings about this "
            "machine are shown but do not count."
        )
    elif tree.mount is None:
        sentence = "shows the host's counters; its mount is unknown."
    else:
        how = "read-only" if tree.mount.read_only else "writable"
        sentence = f"shows the host's counters: sysfs mounted at {tree.mount.point}, {how}."
    return passed("path.sysfs", sentence)


@check(
    "devices",
    detail="A card of the rails' model without an RDMA device has lost it, or the device was moved to another network "
    "namespace. Where the rails are near GPUs, a card that is not is only a warning, and so is a GPU near no rail if "
    "most GPUs of its model are near one.",
)
def check_devices(facts: Facts) -> Iterator[Finding]:
    """Every device answers, and every card of the rails' model has its RDMA device."""
    silent = silent_devices(facts)
    unreadable = facts.events.unreadable_ports() if facts.events else {}
    since = {event.device: f" since {moment_text(event.time_ns)}" for event in unreadable.values()}
    for device in silent:
        yield failed(
            device,
            f"{'has not answered' if device in since else 'does not answer'}{since.get(device, '')}: "
            "reading one of its files timed out.",
            "Its ports are not sampled. All others are, and do not wait for it.",
            "Check the kernel log for errors from its driver and reset the card. Until then, add it to ports.exclude.",
        )
    yield from _find_gone(facts)
    left_out = set(facts.tree.listed or ()) - set(facts.tree.admitted)
    for device in sorted(left_out):
        yield passed(device, "is excluded by ports.include and ports.exclude; none of its files is read.")
    answering = len(set(facts.tree.admitted) - {*silent, *facts.tree.absent})
    if answering > 0:
        verb = "answers" if answering == 1 else "answer"
        yield passed("", f"{count_text(answering, 'device')} {verb}.")


def silent_devices(facts: Facts) -> tuple[str, ...]:
    """The devices of which a read did not return in time."""
    ward = facts.sampling.health.quarantined_devices if facts.sampling else ()
    later = facts.sampling.fabrics[-1].stuck_devices if facts.sampling else ()
    return tuple(dict.fromkeys((*facts.fabric.stuck_devices, *facts.tree.silent, *later, *ward)))


def _find_gone(facts: Facts) -> Iterator[Finding]:
    """Devices that disappeared, and cards without an RDMA device."""
    advice = "Check the kernel log for a reset of the card, an unloaded driver or a move to another namespace."
    gone: tuple[str, ...] = ()
    if facts.sampling:
        last = {port.id.device for port in facts.sampling.fabrics[-1].ports}
        gone = tuple(dict.fromkeys(port.id.device for port in facts.fabric.ports if port.id.device not in last))
    for device in gone:
        yield failed(device, "disappeared while doctor was running.", NOT_SAMPLED, advice)
    missing = _missing_ports(facts)
    cards = [] if gone else _missing_cards(facts)
    for card in cards:
        known = f" The daemon sampled {', '.join(map(_until, missing, missing.values()))}." if missing else ""
        yield _judge_card(card, facts, known, advice)
    for name, event in {} if cards or gone else missing.items():
        when = f" at {moment_text(event.time_ns)} and has not come back" if event else ""
        yield failed(name, f"disappeared{when}; the daemon sampled it earlier.", NOT_SAMPLED, advice)
    yield from _find_gpus_without_rail(facts)


def _judge_card(card: Card, facts: Facts, known: str, advice: str) -> Finding:
    """The finding about a card without an RDMA device; `known` is a sentence about what it was, or empty."""
    gpus = names_text(find_near_gpus(card.chain, facts.fabric.topology))
    place = f" near GPU {gpus}" if gpus else ""
    kinds = {each.address: each.kind for each in facts.tree.cards or ()}
    alike = [port for port in facts.fabric.ports if kinds.get(port.identity.pci_address) == card.kind]
    if not any(port.rail for port in alike) or is_lost_rail(card.chain, alike, facts.fabric.topology):
        text = f"is a card of the rails' model{place}, but it has no RDMA device.{known}"
        return failed(card.address, text, NOT_SAMPLED, advice)
    return warned(
        card.address,
        f"is a card of the rails' model{place} without an RDMA device, but not in the position of a rail.{known}",
        "It is not sampled. The rails are nearer to the GPUs or on other functions of their cards, so none is missing.",
        advice,
    )


def _find_gpus_without_rail(facts: Facts) -> Iterator[Finding]:
    """GPUs that are near no rail, unlike most of their model: perhaps the card of their rail has left the PCIe bus.

    A card of the rails' model near the GPU is there, whatever became of its device.
    """
    topology = facts.fabric.topology
    rails = {port.id.device: port.identity.pci_address for port in facts.fabric.ports if port.rail}
    covered = {
        gpu
        for place, row in zip(topology.devices, topology.distances, strict=True)
        for gpu, word in zip(topology.gpus, row, strict=True)
        if place.device in rails and word in NEAR
    }
    cards = facts.tree.cards or ()
    kinds = {card.kind for card in cards if card.address in rails.values()}
    served = {gpu for card in cards if card.kind in kinds for gpu in find_near_gpus(card.chain, topology)}
    models = Counter((gpu.vendor, gpu.device) for gpu in covered)
    lonely = [gpu for gpu in topology.gpus if gpu not in covered and gpu.address not in served]
    alike = Counter((gpu.vendor, gpu.device) for gpu in lonely)
    for gpu in () if COMPUTE in facts.options.roles else lonely:
        model = gpu.vendor, gpu.device
        if models[model] > alike[model]:
            yield warned(
                gpu.address,
                f"is a GPU near no rail, but {models[model]} GPUs of its model are near one.",
                "The card of its rail may have left the PCIe bus; otherwise the node was built that way.",
                "Compare with lspci and a healthy node of this type. If it is meant so, name the rails in ports.roles.",
            )


def _until(name: str, event: Event | None) -> str:
    return f"{name} until {moment_text(event.time_ns)}" if event else f"{name} earlier"


def _missing_ports(facts: Facts) -> dict[str, Event | None]:
    """Ports that disappeared before doctor ran, each with the event, None if the event log does not have it."""
    events = facts.events.gone_ports() if facts.events else {}
    names = dict.fromkeys(facts.sampling.remembered if facts.sampling else ())
    names |= dict.fromkeys(name for name in events if facts.events and facts.events.is_within(events[name], GONE_NS))
    here, renamed = {str(port.id) for port in facts.fabric.ports}, find_renamed(facts)
    selection = Selection(facts.options.include, facts.options.exclude)
    return {
        name: events.get(name)
        for name in names
        if name not in here and name not in renamed and selection.admits_device(name.partition(":")[0])
    }


def find_renamed(facts: Facts) -> dict[str, tuple[Event, str]]:
    """Ports that disappeared and whose GUID another port has now, with the event and the new name."""
    gone = facts.events.gone_ports() if facts.events else {}
    names = {(port.identity.guid, port.id.port): str(port.id) for port in facts.fabric.ports if port.identity.guid}
    found = {}
    for name, event in gone.items():
        new = names.get((str(event.details.get("guid")), int(name.rpartition(":")[2])))
        if new is not None and new != name:
            found[name] = (event, new)
    return found


def _missing_cards(facts: Facts) -> list[Card]:
    """Cards of the rails' model without an RDMA device; on a node without rails, InfiniBand cards without one.

    Only one function of a bond has a device, by design, so the others in its slot are not missing.
    """
    bonds = {_slot(port.identity.pci_address) for port in facts.fabric.ports if port.identity.kind == BOND}
    addresses = {port.identity.pci_address for port in facts.fabric.ports if port.rail}
    cards = [card for card in facts.tree.cards or () if _slot(card.address) not in bonds]
    kinds = {card.kind for card in cards if card.address in addresses}
    return [card for card in cards if not card.rdma and (card.kind in kinds if kinds else card.infiniband)]


def _slot(address: str) -> str:
    """A PCI address without its function."""
    return address.rpartition(".")[0]
