"""Checks of the sysfs tree, its devices, its ports and rails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ibpulse.agent.doctor.facts import GONE_NS, Card, Facts
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.agent.sysfs import inventory
from ibpulse.agent.sysfs.byte_counters import EFA, LEGACY, NO_BYTES, OCTETS_NOTE, SOFT_ROCE, UNKNOWN_BYTES
from ibpulse.agent.sysfs.device import NO_PORTS, Selection
from ibpulse.agent.sysfs.expected_rails import find_near_gpus, is_lost_rail
from ibpulse.agent.sysfs.files import NO_PMA
from ibpulse.agent.sysfs.gpus import NEAR
from ibpulse.agent.sysfs.kinds import BOND, NEVER_RAILS, PLANE, TWIN, UNUSED, make_of
from ibpulse.agent.sysfs.roles import TRAINED_DOWN, find_slow_twins
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.base.text import count_text, moment_text, names_text, rate_text
from ibpulse.core.events import Event
from ibpulse.core.model import COMPUTE, UNKNOWN_ROLE, Port

NOT_SAMPLED = "It is not sampled and is missing from all metrics of the node."

# why a port of this kind is never chosen as a rail automatically
NEVER = {
    PLANE: "it is a single plane of another device",
    TWIN: "it shares its PCI function with another device, which is the rail",
    UNUSED: "this port of a multiplane card carries no data",
}


@check("tree")
def check_tree(facts: Facts) -> Iterator[Finding]:
    """The sysfs tree: whether it is the host's, how it is mounted, whether it has counters."""
    listed = facts.tree.listed
    for network, count in facts.tree.unsupported.items():
        yield Finding(
            Level.WARN if listed else Level.FAIL,
            network,
            f"is not supported: it has no RDMA devices, and {count_text(count, 'adapter')} here cannot be sampled.",
            "The traffic of this network is missing from all metrics." if listed else "There is nothing to sample.",
            "Other adapters of this node are sampled as usual." if listed else "Do not run ibpulse on such nodes.",
        )
    if not listed and facts.tree.unsupported:
        return
    if not listed:
        what = "has no class/infiniband" if listed is None else "has no devices in class/infiniband"
        yield Finding(
            Level.FAIL,
            "path.sysfs",
            f"{what}.",
            "There is nothing to sample.",
            "Load the driver of the RDMA devices, or set path.sysfs to the mount point of the host's /sys. "
            "Without any, `ibpulse demo` shows a simulated fabric.",
        )
        return
    if not facts.tree.admitted:
        yield Finding(
            Level.FAIL,
            "ports.exclude",
            f"and ports.include exclude all {count_text(len(listed), 'device')} of this node.",
            "There is nothing to sample.",
            "Change these settings.",
        )
        return
    if facts.tree.is_other_namespace:
        yield Finding(
            Level.FAIL,
            "path.sysfs",
            "shows devices without counters, as the sysfs of another network namespace does.",
            "No port can be sampled. (Drivers without any counters look the same.)",
            "Mount the host's /sys read-only at /host/sys and set path.sysfs to it; hostNetwork is not needed.",
        )
        return
    if facts.tree.absent:
        yield Finding(
            Level.FAIL,
            "path.sysfs",
            f"class/infiniband links to devices that are not here: {names_text(facts.tree.absent)}.",
            "They are not sampled and are missing from all metrics of the node.",
            "Mount the whole /sys of the host, not only /sys/class, and set path.sysfs to it.",
        )
        return
    mount = facts.tree.mount
    if not facts.tree.is_kernel:
        yield passed(
            "path.sysfs",
            "holds plain files, not a kernel's sysfs: a simulated fabric or a fixture. Findings about this "
            "machine are shown but do not count.",
        )
    elif mount is None:
        yield passed("path.sysfs", "shows the host's counters; its mount is unknown.")
    else:
        how = "read-only" if mount.read_only else "writable"
        yield passed("path.sysfs", f"shows the host's counters: sysfs mounted at {mount.point}, {how}.")


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
        yield Finding(
            Level.FAIL,
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
        yield Finding(Level.FAIL, device, "disappeared while doctor was running.", NOT_SAMPLED, advice)
    missing = _missing_ports(facts)
    cards = [] if gone else _missing_cards(facts)
    for card in cards:
        known = f" The daemon sampled {', '.join(map(_until, missing, missing.values()))}." if missing else ""
        yield _judge_card(card, facts, known, advice)
    for name, event in {} if cards or gone else missing.items():
        when = f" at {moment_text(event.time_ns)} and has not come back" if event else ""
        yield Finding(Level.FAIL, name, f"disappeared{when}; the daemon sampled it earlier.", NOT_SAMPLED, advice)
    yield from _find_gpus_without_rail(facts)


def _judge_card(card: Card, facts: Facts, known: str, advice: str) -> Finding:
    """The finding about a card without an RDMA device; `known` is a sentence about what it was, or empty."""
    gpus = names_text(find_near_gpus(card.chain, facts.fabric.topology))
    place = f" near GPU {gpus}" if gpus else ""
    kinds = {each.address: each.kind for each in facts.tree.cards or ()}
    alike = [port for port in facts.fabric.ports if kinds.get(port.identity.pci_address) == card.kind]
    if not any(port.rail for port in alike) or is_lost_rail(card.chain, alike, facts.fabric.topology):
        text = f"is a card of the rails' model{place}, but it has no RDMA device.{known}"
        return Finding(Level.FAIL, card.address, text, NOT_SAMPLED, advice)
    return Finding(
        Level.WARN,
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
            yield Finding(
                Level.WARN,
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


@check(
    "rails",
    detail="A rail whose link is down is a failure; a port that looks like a rail but runs slower is a warning.",
)
def check_rails(facts: Facts) -> Iterator[Finding]:
    """Every port: whether and why it is a rail, and rails whose link is down."""
    ports = facts.fabric.ports
    if facts.tree.is_other_namespace:
        # no port has counters there, which the check of the tree reports once
        return
    for port in ports:
        yield _judge_rail(port) if port.rail else _judge_other(port, facts)
    if ports and not any(port.rail for port in ports):
        yield Finding(
            Level.FAIL,
            "",
            "No port of this node is a rail.",
            "The node's metrics stay empty.",
            "See the findings above for each port, or name the rails in ports.roles.",
        )


def _judge_rail(port: Port) -> Finding:
    if not port.active:
        return Finding(
            Level.FAIL,
            str(port.id),
            f"is a rail, but its link is {port.state or 'in an unknown state'}.",
            "The job runs with one rail less, or not at all. Ports that are not ACTIVE have no traffic metrics.",
            "Check the cable, the transceiver and the switch port; if the state is INIT or ARMED, the subnet manager.",
        )
    if port.trained_down:
        return Finding(
            Level.WARN,
            str(port.id),
            f"is a rail that trained down: it runs at {rate_text(port.rate_bytes_per_second or 0)}, others of its make "
            "are faster.",
            "The job waits for it.",
            "Check the cable, the transceiver and the switch port.",
        )
    rate = "unknown data rate" if port.rate_bytes_per_second is None else rate_text(port.rate_bytes_per_second)
    if port.problem:
        return Finding(Level.WARN, str(port.id), f"is a rail: {port.problem}", "It is sampled, but only in part.")
    layer = f"{port.identity.link_layer} " if port.identity.link_layer in (INFINIBAND, ETHERNET) else ""
    return passed(str(port.id), f"is a rail: {layer}link {port.state}, {rate}.")


def _judge_other(port: Port, facts: Facts) -> Finding:
    rails = [rail for rail in facts.fabric.ports if rail.rail]
    subject = str(port.id)
    if port.source is None:
        alike = any(make_of(rail) == make_of(port) for rail in rails)
        known = " that ibpulse knows" if UNKNOWN_BYTES in port.problem else ""
        return Finding(
            Level.FAIL if alike or not rails else Level.WARN,
            subject,
            f"is not sampled: {port.problem}",
            "It is of the rails' model and is missing from all metrics of the node."
            if alike
            else f"It has no byte counters{known}. The other ports are not affected.",
            f"{_advise_on_bytes(port)} If it is not a rail, add it to ports.exclude.",
        )
    if COMPUTE not in facts.options.roles and port in find_slow_twins(facts.fabric.ports):
        return Finding(
            Level.WARN,
            subject,
            f"is not a rail: it is of the rails' model but runs at {rate_text(port.rate_bytes_per_second or 0)}.",
            "If it should be a rail, its link came up too slow, and the job waits for it.",
            "Check the cable and the switch port; if the rate is intended, name the rails in ports.roles.",
        )
    return passed(subject, f"is not a rail: {_say_why_not(port, facts)}.")


def _advise_on_bytes(port: Port) -> str:
    """How to get byte counters for a port that has none; the kernel log helps only if reads fail."""
    if NO_PMA in port.problem:
        return "Its driver has no counters; no setting can change this."
    if LEGACY in port.problem:
        return "It is sampled as soon as one of its counters exceeds 32 bits, which proves that they do not stop there."
    if UNKNOWN_BYTES in port.problem:
        return "Send a report as described in docs/testing.md, so that ibpulse can sample them."
    if NO_BYTES not in port.problem:
        return "Check the kernel log for errors from its driver."
    if port.identity.driver == SOFT_ROCE:
        return "Soft-RoCE counts bytes from Linux 7.2 on (rxe_process_mad): upgrade the kernel."
    return "Its driver shows no file that counts bytes; the driver of a newer kernel may."


def _say_why_not(port: Port, facts: Facts) -> str:
    if COMPUTE in facts.options.roles:
        return "no pattern in ports.roles matches it as compute"
    if port.role != UNKNOWN_ROLE:
        return f"it is for {port.role}"
    if port.identity.kind in NEVER_RAILS:
        return NEVER[port.identity.kind]
    if port.identity.driver != EFA and any(rail.rail and rail.identity.driver == EFA for rail in facts.fabric.ports):
        return "the rails of a node with EFA are its EFA devices"
    if any(rail.identity.gpu_distance in NEAR for rail in facts.fabric.ports if rail.rail):
        near = port.identity.gpu_distance in NEAR
        return "another port is nearer to each GPU" if near else "it is near no GPU, but the rails are"
    layers = {rail.identity.link_layer for rail in facts.fabric.ports if rail.rail}
    if INFINIBAND in layers and port.identity.link_layer != INFINIBAND:
        return f"its link layer is {port.identity.link_layer or 'unknown'}, but the rails are InfiniBand"
    if not port.active:
        return f"its link is {port.state or 'in an unknown state'}, and it is not of the rails' model"
    if port.rate_bytes_per_second is None:
        return "its data rate is unknown"
    return f"it runs at {rate_text(port.rate_bytes_per_second)}, but the rails are faster"


@check("remarks")
def check_remarks(facts: Facts) -> Iterator[Finding]:
    """Remarks of the device scan that no other check reports."""
    if facts.tree.is_other_namespace or not facts.tree.admitted:
        # the check of the tree already reports it
        return
    told = {port.problem for port in facts.fabric.ports} | {
        text for _, text in inventory.remark_on_slow_twins(facts.fabric.ports)
    }
    told.add(TRAINED_DOWN)
    told |= {verdict.sentence for place in facts.fabric.topology.devices for verdict in place.verdicts}
    for notice in facts.fabric.notices:
        subject, separator, text = notice.partition(": ")
        if (text == inventory.HALF_TREE and facts.tree.absent) or subject in facts.tree.unsupported:
            # the check of the tree has it
            continue
        harmless = text == OCTETS_NOTE or text.startswith(("ignored, because", "only port"))
        if not separator or text in told or text.startswith("it did not answer"):
            continue
        if harmless:
            yield passed(subject, text)
        else:
            level = Level.FAIL if text == NO_PORTS else Level.WARN
            yield Finding(level, subject, text, "Keep this in mind when you read this port's metrics.")
