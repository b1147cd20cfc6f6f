"""The ports of a node: their slow counters, and the checks of rails, PCIe paths and counter files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.doctor.facts import Counts, Facts, Finding, Folders, Level, check, failed, passed, warned
from ibpulse.agent.sysfs import inventory
from ibpulse.agent.sysfs.byte_counters import (
    COUNTERS,
    EFA,
    HW_COUNTERS,
    LEGACY,
    NO_BYTES,
    OCTETS_NOTE,
    SOFT_ROCE,
    UNKNOWN_BYTES,
)
from ibpulse.agent.sysfs.device import NO_PORTS
from ibpulse.agent.sysfs.error_counters import Wanted, choose_counters
from ibpulse.agent.sysfs.files import NO_PMA, list_names, parse_count, read_text
from ibpulse.agent.sysfs.gpus import NEAR
from ibpulse.agent.sysfs.kinds import NEVER_RAILS, PLANE, TWIN, UNUSED, VF, make_of
from ibpulse.agent.sysfs.pcie import LINK_FAULTS
from ibpulse.agent.sysfs.roles import TRAINED_DOWN, find_slow_twins
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.base.deadline import call_all
from ibpulse.base.text import count_text, link_rate_text, names_text, rate_text, sentence_list
from ibpulse.core.model import COMPUTE, UNKNOWN_ROLE, Port, PortId

COUNTER_ANSWER_SECONDS = 1.5
# Requests that a port received: these count on when its byte counters are stuck.
REQUESTS = ("hw_counters/rx_write_requests", "hw_counters/rx_read_requests")
FLAPS = ("counters/link_downed", "counters/link_error_recovery")
READ_TWICE = frozenset((*REQUESTS, *FLAPS))
# why a port of this kind is never chosen as a rail automatically
NEVER = {
    PLANE: "it is a single plane of another device",
    TWIN: "it shares its PCI function with another device, which is the rail",
    UNUSED: "this port of a multiplane card carries no data",
}


def read_counts(sysfs: Path, ports: Sequence[Port], only: frozenset[str] = frozenset()) -> dict[PortId, Counts]:
    """The slow counters of ports that have a byte source, except those of a device that does not answer.

    `only` lists the files to read; all if empty.
    """
    devices: dict[str, list[Port]] = {}
    for port in ports:
        if port.source is not None:
            devices.setdefault(port.id.device, []).append(port)

    def reader(chosen: Sequence[Port]) -> Callable[[], dict[PortId, Counts]]:
        return lambda: {port.id: _read_port(sysfs, port, only) for port in chosen}

    results = call_all({name: reader(chosen) for name, chosen in devices.items()}, COUNTER_ANSWER_SECONDS)
    return {port: counts for found in results.values.values() for port, counts in found.items()}


def join_counts(begin: Mapping[PortId, Counts], end: Mapping[PortId, Counts]) -> dict[PortId, Counts]:
    """Both readings of each port that answered after sampling."""
    return {port: replace(last, begin=begin[port].end if port in begin else {}) for port, last in end.items()}


def _read_port(sysfs: Path, port: Port, only: frozenset[str]) -> Counts:
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
    return Counts({}, counts, full, unreadable)


def _key(wanted: Wanted) -> str:
    return f"{wanted.folder}/{wanted.file}"


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
        yield failed(
            "",
            "No port of this node is a rail.",
            "The node's metrics stay empty.",
            "See the findings above for each port, or name the rails in ports.roles.",
        )


def _judge_rail(port: Port) -> Finding:
    if not port.active:
        return failed(
            str(port.id),
            f"is a rail, but its link is {port.state or 'in an unknown state'}.",
            "The job runs with one rail less, or not at all. Ports that are not ACTIVE have no traffic metrics.",
            "Check the cable, the transceiver and the switch port; if the state is INIT or ARMED, the subnet manager.",
        )
    if port.trained_down:
        return warned(
            str(port.id),
            f"is a rail that trained down: it runs at {rate_text(port.rate_bytes_per_second or 0)}, others of its make "
            "are faster.",
            "The job waits for it.",
            "Check the cable, the transceiver and the switch port.",
        )
    rate = "unknown data rate" if port.rate_bytes_per_second is None else rate_text(port.rate_bytes_per_second)
    if port.problem:
        return warned(str(port.id), f"is a rail: {port.problem}", "It is sampled, but only in part.")
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
        return warned(
            subject,
            f"is not a rail: it is of the rails' model but runs at {rate_text(port.rate_bytes_per_second or 0)}.",
            "If it should be a rail, its link came up too slow, and the job waits for it.",
            "Check the cable and the switch port; if the rate is intended, name the rails in ports.roles.",
        )
    return passed(subject, f"is not a rail: {_say_why_not(port, facts)}.")


def _advise_on_bytes(port: Port) -> str:
    """Advice for a port without byte counters; the kernel log helps only if reads fail."""
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


@check("likeness")
def check_likeness(facts: Facts) -> Iterator[Finding]:
    """All rails have the same rate, driver, board, firmware and PCIe path."""
    rails = [port for port in facts.fabric.ports if port.rail and port.active]
    paths = {place.device: place.pcie_bytes_per_second for place in facts.fabric.topology.devices}

    def pcie(port: Port) -> str:
        rate = paths.get(port.id.device)
        return "" if rate is None else link_rate_text(rate)

    same = True
    for what, advice, read in (
        ("rate", "Check the cable and the switch port.", _say_rate),
        ("driver", "Use the same driver for all rails.", lambda port: port.identity.driver),
        ("board", "Use the same card for all rails if you can.", lambda port: port.identity.board),
        ("firmware", "Update all rails to the same version.", lambda port: port.identity.firmware),
        ("PCIe path", "Check the slot, and see the pcie finding.", pcie),
    ):
        for finding in _find_odd_ones(rails, what, advice, read):
            same = False
            yield finding
    if rails and same and not any(port.trained_down for port in rails):
        yield passed(
            "", f"{count_text(len(rails), 'link')} up with the same rate, driver, board, firmware and PCIe path."
        )


def _say_rate(port: Port) -> str:
    """The data rate as a number, because the same rate has several labels: 400 Gb/s is 4X NDR or 8X HDR.

    Empty for a rail that trained down, which the check of the rails names.
    """
    return "" if port.rate_bytes_per_second is None or port.trained_down else rate_text(port.rate_bytes_per_second)


def _find_odd_ones(rails: list[Port], what: str, advice: str, read: Callable[[Port], str]) -> Iterator[Finding]:
    values = Counter(value for port in rails if (value := read(port)))
    usual = values.most_common(1)[0][0] if values else ""
    for port in rails:
        value = read(port)
        if value and value != usual:
            yield warned(
                str(port.id),
                f"has {what} {value}, but {values[usual]} of {len(rails)} links up have {usual}.",
                "Rails that differ perform differently, and the job waits for the slowest.",
                advice,
            )


@check("pcie")
def check_pcie(facts: Facts) -> Iterator[Finding]:
    """The PCIe path of each rail is as fast as its port."""
    rails = {port.id.device: port for port in facts.fabric.ports if port.rail}
    for place in facts.fabric.topology.devices:
        if place.device not in rails:
            continue
        faults = [verdict for verdict in place.verdicts if verdict.word in LINK_FAULTS]
        for verdict in faults:
            # the sentence of a verdict ends with the advice
            sentence, _, advice = verdict.sentence.partition(": ")
            yield warned(
                place.device,
                f"{sentence}.",
                "The PCIe path limits the port; its utilisation cannot reach 1.",
                advice[:1].upper() + advice[1:],
            )
        if not faults:
            rate = place.pcie_bytes_per_second
            yield passed(
                place.device,
                "has a PCIe path whose speed the kernel does not report."
                if rate is None
                else f"has a PCIe path of {link_rate_text(rate)}, the maximum of its links.",
            )


@check("files")
def check_files(facts: Facts) -> Iterator[Finding]:
    """The files that count bytes, the counter folders, and counters that cannot be read."""
    for port in facts.fabric.ports:
        if port.source is None:
            continue
        folders = facts.tree.folders.get(port.id, Folders())
        there = [name for name, has in ((COUNTERS, folders.counters), (HW_COUNTERS, folders.hw_counters)) if has]
        yield passed(
            str(port.id),
            f"counts bytes in {_short(port.source.transmit)} and {_short(port.source.receive)}, "
            f"{'read by netlink, ' if port.source.netlink else ''}"
            f"in units of {count_text(port.source.scale, 'byte')}; "
            f"it has {sentence_list(there) or 'no readable counter folder'}.",
        )
        counts = facts.counts.get(port.id)
        if counts and counts.unreadable:
            yield _judge_unreadable(port, counts.unreadable)


def _judge_unreadable(port: Port, unreadable: Mapping[str, str]) -> Finding:
    first, reason = next(iter(unreadable.items()))
    sentence = f"has {count_text(len(unreadable), 'counter')} without a value, such as {first}, which {reason}"
    # counters/ belongs to the physical port, which not every virtual function may read
    if port.identity.kind == VF and all(name.startswith(f"{COUNTERS}/") for name in unreadable):
        return passed(str(port.id), f"{sentence}. This is normal on a virtual function; the daemon skips such files.")
    return warned(
        str(port.id),
        f"{sentence}.",
        "The errors that these count are unknown. Byte counts are not affected.",
        "Check the kernel log for errors from its driver. The daemon skips such files; slow.counters=none turns "
        "error counters off.",
    )


WAIT_FILE = "port_xmit_wait"


def _short(paths: Sequence[str]) -> str:
    """Files as folder and name, joined by plus signs."""
    return " + ".join("/".join(Path(path).parts[-2:]) for path in paths)


@check(
    "saturation",
    detail="Counters of 4, 8, 16 and 32 bits stop at their maximum; from then on their value is only a lower bound.",
)
def check_saturation(facts: Facts) -> Iterator[Finding]:
    """Error counters that have stopped at their maximum."""
    full = False
    for port, counts in facts.counts.items():
        if counts.full:
            full = True
            files = [name.rpartition("/")[2] for name in counts.full]
            unknown = " What limits traffic that is slower than usual is unknown." if WAIT_FILE in files else ""
            yield warned(
                str(port),
                f"has counters at their maximum: {names_text(files)}.",
                "They have stopped there: new errors are not counted, and their values are only lower bounds."
                + unknown,
                "Clear the port's error counters (perfquery -R) if no other tool needs them; ibpulse never does that.",
            )
    read = sum(len(counts.end) for counts in facts.counts.values())
    if read and not full:
        yield passed("", f"None of {count_text(read, 'counter')} is at its maximum.")
