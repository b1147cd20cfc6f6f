"""Checks of the tree, its devices, its ports and rails."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.doctor.facts import Card, Facts
from ibpulse.doctor.finding import Finding, Level, check, passed
from ibpulse.model import Port
from ibpulse.sysfs import inventory
from ibpulse.sysfs.byte_counters import LEGACY, NO_BYTES, OCTETS_NOTE
from ibpulse.sysfs.files import NO_PMA
from ibpulse.sysfs.identity import SOFT_ROCE
from ibpulse.sysfs.rails import BOND, INFINIBAND, NEVER_RAILS, PLANE, TWIN, UNUSED, find_downtrained_ports, make_of
from ibpulse.sysfs.speed import ETHERNET
from ibpulse.text import count_text, names_text, rate_text

NOT_SAMPLED = "It is not sampled, and missing in every number of the node."

# why a port of this kind is never a rail by itself
NEVER = {
    PLANE: "it shows a plane of another device again",
    TWIN: "it is a second device on a function that another one stands for",
    UNUSED: "no data runs over this port of a multiplane card",
}


@check("tree")
def check_tree(facts: Facts) -> Iterator[Finding]:
    """Whose tree it is, how it is mounted, whether it shows counters."""
    listed = facts.tree.listed
    if not listed:
        what = "has no class/infiniband" if listed is None else "has no device in class/infiniband"
        yield Finding(
            Level.FAIL,
            "path.sysfs",
            f"{what}.",
            "There is nothing to sample.",
            "Load the driver of the RDMA devices, or set path.sysfs to where the host's /sys is mounted.",
        )
        return
    if not facts.tree.admitted:
        yield Finding(
            Level.FAIL,
            "ports.exclude",
            f"and ports.include leave out all {count_text(len(listed), 'device')} of this node.",
            "There is nothing to sample.",
            "Change these settings.",
        )
        return
    if facts.tree.is_other_namespace:
        yield Finding(
            Level.FAIL,
            "path.sysfs",
            "shows devices without counters: it is the view of another network namespace.",
            "No port can be sampled. (Drivers without any counters look the same.)",
            "Mount the host's /sys read-only, as /host/sys, and set path.sysfs to it; hostNetwork is not needed.",
        )
        return
    mount = facts.tree.mount
    if not facts.tree.is_kernel:
        yield passed(
            "path.sysfs",
            "holds plain files, not a kernel's sysfs: a simulated fabric, a fixture or a bundle. Lines about this "
            "machine are not judged.",
        )
    elif mount is None:
        yield passed("path.sysfs", "shows the host's counters; how it is mounted is not known.")
    else:
        how = "read-only" if mount.read_only else "writable"
        yield passed("path.sysfs", f"shows the host's counters: sysfs mounted at {mount.point}, {how}.")


@check(
    "devices",
    detail="A card of the rails' model without an RDMA device: it lost the device, or the device was moved into "
    "another network namespace.",
)
def check_devices(facts: Facts) -> Iterator[Finding]:
    """Every device answers, and every card of the rails' make has its device."""
    silent = _silent_devices(facts)
    for device in silent:
        yield Finding(
            Level.FAIL,
            device,
            "does not answer: a read of it did not come back in time.",
            "Its ports are not sampled; all others are, without waiting for it.",
            "Look in the kernel's log for errors of its driver, and reset the card; ports.exclude keeps ibpulse away "
            "from it until then.",
        )
    yield from _find_gone(facts)
    left_out = set(facts.tree.listed or ()) - set(facts.tree.admitted)
    for device in sorted(left_out):
        yield passed(device, "is left out by ports.include and ports.exclude; no file of it is read.")
    answering = len(facts.tree.admitted) - len(silent)
    if answering > 0:
        verb = "answers" if answering == 1 else "answer"
        yield passed("", f"{count_text(answering, 'device')} {verb}.")


def _silent_devices(facts: Facts) -> tuple[str, ...]:
    ward = facts.sampling.health.quarantined_devices if facts.sampling else ()
    later = facts.sampling.fabrics[-1].stuck_devices if facts.sampling else ()
    return tuple(dict.fromkeys((*facts.fabric.stuck_devices, *facts.tree.silent, *later, *ward)))


def _find_gone(facts: Facts) -> Iterator[Finding]:
    """Devices that went away, and cards without one."""
    advice = "Look in the kernel's log for the card: a reset, a driver that was unloaded, a move to another namespace."
    gone: tuple[str, ...] = ()
    if facts.sampling:
        last = {port.id.device for port in facts.sampling.fabrics[-1].ports}
        gone = tuple(dict.fromkeys(port.id.device for port in facts.fabric.ports if port.id.device not in last))
    for device in gone:
        yield Finding(Level.FAIL, device, "went away while it was looked at.", NOT_SAMPLED, advice)
    remembered = facts.sampling.remembered if facts.sampling else ()
    cards = [] if gone else _missing_cards(facts)
    for card in cards:
        known = f" The daemon sampled {names_text(remembered)} before." if remembered else ""
        yield Finding(
            Level.FAIL,
            card.address,
            f"is a card like the rails' whose RDMA device vanished.{known}",
            NOT_SAMPLED,
            advice,
        )
    if remembered and not cards and not gone:
        yield Finding(
            Level.FAIL,
            names_text(remembered),
            "is not there any more; the daemon sampled it before.",
            NOT_SAMPLED,
            advice,
        )


def _missing_cards(facts: Facts) -> list[Card]:
    """Cards of the same make as those of the rails, or without any rail all InfiniBand ones, that have no device.

    Of a bond only one function has a device, by design: the others in its slot are not missed.
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
    """Every port, and why it is or is not a rail; rails that are down."""
    ports = facts.fabric.ports
    if facts.tree.is_other_namespace:
        # no port counts anything there, which is said once
        return
    for port in ports:
        yield _judge_rail(port) if port.rail else _judge_other(port, facts)
    if ports and not any(port.rail for port in ports):
        yield Finding(
            Level.FAIL,
            "",
            "No port of this node is a rail.",
            "Every number of the node stays empty.",
            "See the lines above for each port, or name the rails by ports.rails.",
        )


def _judge_rail(port: Port) -> Finding:
    if not port.active:
        return Finding(
            Level.FAIL,
            str(port.id),
            f"is a rail, but its link is {port.state or 'in no known state'}.",
            "The job runs with a rail less, or not at all; nothing is computed from a port that is not ACTIVE.",
            "Look at cable, transceiver and switch port, and at the subnet manager if the state is INIT or ARMED.",
        )
    rate = (
        "a data rate that is not known" if port.rate_bytes_per_second is None else rate_text(port.rate_bytes_per_second)
    )
    if port.problem:
        return Finding(Level.WARN, str(port.id), f"is a rail: {port.problem}", "It is sampled without what is missing.")
    layer = f"{port.identity.link_layer} " if port.identity.link_layer in (INFINIBAND, ETHERNET) else ""
    return passed(str(port.id), f"is a rail: {layer}link {port.state}, {rate}.")


def _judge_other(port: Port, facts: Facts) -> Finding:
    rails = [rail for rail in facts.fabric.ports if rail.rail]
    subject = str(port.id)
    if port.source is None:
        alike = any(make_of(rail) == make_of(port) for rail in rails)
        return Finding(
            Level.FAIL if alike or not rails else Level.WARN,
            subject,
            f"is not sampled: {port.problem}",
            "It is of the rails' make, and missing in every number of the node."
            if alike
            else "It has no bytes to show; nothing else suffers from it.",
            f"{_advise_on_bytes(port)} If it is no rail, put it into ports.exclude.",
        )
    if not facts.options.rails and port in find_downtrained_ports(facts.fabric.ports):
        return Finding(
            Level.WARN,
            subject,
            f"is of the rails' make but runs at {rate_text(port.rate_bytes_per_second or 0)}, so it is no rail.",
            "If it should be a rail, its link came up too slow; the job waits for it.",
            "Look at cable and switch port; if it is meant so, name the rails by ports.rails.",
        )
    return passed(subject, f"is no rail: {_say_why_not(port, facts)}.")


def _advise_on_bytes(port: Port) -> str:
    """What may give a port bytes that has none: only files that fail have something to do with the kernel's log."""
    if NO_PMA in port.problem:
        return "Its driver has no counters; nothing can be set for that."
    if LEGACY in port.problem:
        return "It is sampled as soon as one of its counts is above 32 bits, which shows that they go on."
    if NO_BYTES not in port.problem:
        return "Look in the kernel's log for errors of its driver."
    if port.identity.driver == SOFT_ROCE:
        return "Soft-RoCE counts bytes since it has rxe_process_mad: use Linux 7.2 or later."
    return "Its driver counts no bytes; that of a newer kernel may."


def _say_why_not(port: Port, facts: Facts) -> str:
    if facts.options.rails:
        return "no pattern of ports.rails names it"
    if port.identity.kind in NEVER_RAILS:
        return NEVER[port.identity.kind]
    layers = {rail.identity.link_layer for rail in facts.fabric.ports if rail.rail}
    if INFINIBAND in layers and port.identity.link_layer != INFINIBAND:
        return f"its link is {port.identity.link_layer or 'of no known kind'}, the rails are InfiniBand"
    if not port.active:
        return f"its link is {port.state or 'in no known state'}, and it is of another make than the rails"
    if port.rate_bytes_per_second is None:
        return "its data rate is not known"
    return f"it runs at {rate_text(port.rate_bytes_per_second)}, the rails are faster"


@check("remarks")
def check_remarks(facts: Facts) -> Iterator[Finding]:
    """What the scan remarked that no other line says."""
    if facts.tree.is_other_namespace or not facts.tree.admitted:
        # the line about the tree says it all
        return
    told = {port.problem for port in facts.fabric.ports} | {
        text for _, text in inventory.remark_on_slow_twins(facts.fabric.ports)
    }
    told |= {verdict.sentence for place in facts.fabric.topology.devices for verdict in place.verdicts}
    for notice in facts.fabric.notices:
        subject, separator, text = notice.partition(": ")
        harmless = text == OCTETS_NOTE or text.startswith(("left out, since", "only port"))
        if not separator or text in told or text.startswith("it did not answer"):
            continue
        if harmless:
            yield passed(subject, text)
        else:
            yield Finding(Level.WARN, subject, text, "What is said of this port is true only with that in mind.")
