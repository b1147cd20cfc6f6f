"""Checks of the rails as hardware: whether they are alike, their PCIe paths, their counter files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ibpulse.doctor.facts import Facts, Folders
from ibpulse.doctor.finding import Finding, Level, check, passed
from ibpulse.model import ByteSource, Port
from ibpulse.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.sysfs.pcie import LINK_FAULTS
from ibpulse.sysfs.rails import VF
from ibpulse.text import count_text, link_rate_text, names_text, rate_text, sentence_list


@check("likeness")
def check_likeness(facts: Facts) -> Iterator[Finding]:
    """Rails are alike in rate, driver, board, firmware and PCIe."""
    rails = [port for port in facts.fabric.ports if port.rail and port.active]
    paths = {place.device: place.pcie_bytes_per_second for place in facts.fabric.topology.devices}

    def pcie(port: Port) -> str:
        rate = paths.get(port.id.device)
        return "" if rate is None else link_rate_text(rate)

    same = True
    for what, advice, read in (
        ("rate", "Look at cable and switch port.", _say_rate),
        ("driver", "Use the same driver for all rails.", lambda port: port.identity.driver),
        ("board", "Mixed cards behave differently; the job waits for the slowest.", lambda port: port.identity.board),
        ("firmware", "Update all to the same version.", lambda port: port.identity.firmware),
        ("PCIe path", "Look at the slot, and at the line about PCIe.", pcie),
    ):
        for finding in _find_odd_ones(rails, what, advice, read):
            same = False
            yield finding
    if rails and same:
        yield passed("", f"{count_text(len(rails), 'active rail')}, alike in rate, driver, board, firmware and PCIe.")


def _say_rate(port: Port) -> str:
    """The data rate, since the same one has several labels: 400 Gb/s of Ethernet is 4X NDR or 8X HDR."""
    return "" if port.rate_bytes_per_second is None else rate_text(port.rate_bytes_per_second)


def _find_odd_ones(rails: list[Port], what: str, advice: str, read: Callable[[Port], str]) -> Iterator[Finding]:
    values = Counter(value for port in rails if (value := read(port)))
    usual = values.most_common(1)[0][0] if values else ""
    for port in rails:
        value = read(port)
        if value and value != usual:
            yield Finding(
                Level.WARN,
                str(port.id),
                f"has {what} {value}, where {values[usual]} of {len(rails)} active rails have {usual}.",
                "Rails that differ make a job uneven, and its slowest rail sets the pace.",
                advice,
            )


@check("pcie")
def check_pcie(facts: Facts) -> Iterator[Finding]:
    """The PCIe path of each rail carries what its port does."""
    rails = {port.id.device: port for port in facts.fabric.ports if port.rail}
    for place in facts.fabric.topology.devices:
        if place.device not in rails:
            continue
        faults = [verdict for verdict in place.verdicts if verdict.word in LINK_FAULTS]
        for verdict in faults:
            # the sentence of a verdict ends with what to do
            sentence, _, advice = verdict.sentence.partition(": ")
            yield Finding(
                Level.WARN,
                place.device,
                f"{sentence}.",
                "The port can be filled only as far as its PCIe path; its utilisation stays below 1.",
                advice[:1].upper() + advice[1:],
            )
        if not faults:
            rate = place.pcie_bytes_per_second
            yield passed(
                place.device,
                "has a PCIe path of which the kernel does not say the speed."
                if rate is None
                else f"has a PCIe path of {link_rate_text(rate)}, as good as its links can be.",
            )


@check("files")
def check_files(facts: Facts) -> Iterator[Finding]:
    """Which files count the bytes, which folders there are, which counters refuse."""
    for port in facts.fabric.ports:
        if port.source is None:
            continue
        folders = facts.tree.folders.get(port.id, Folders())
        there = [name for name, has in ((COUNTERS, folders.counters), (HW_COUNTERS, folders.hw_counters)) if has]
        yield passed(
            str(port.id),
            f"counts bytes in {_say_files(port.source)}, "
            f"{count_text(port.source.scale, 'byte')} a count; "
            f"it has {sentence_list(there) or 'no folder that answered'}.",
        )
        counts = facts.counts.get(port.id)
        if counts and counts.unreadable:
            yield _judge_unreadable(port, counts.unreadable)


def _judge_unreadable(port: Port, unreadable: Mapping[str, str]) -> Finding:
    first, reason = next(iter(unreadable.items()))
    sentence = f"has {count_text(len(unreadable), 'counter')} without a value, first {first}, which {reason}"
    # those of counters/ are the physical port's, which is not for every virtual function to see
    if port.identity.kind == VF and all(name.startswith(f"{COUNTERS}/") for name in unreadable):
        return passed(str(port.id), f"{sentence}: usual on a virtual function. The daemon leaves such files alone.")
    return Finding(
        Level.WARN,
        str(port.id),
        f"{sentence}.",
        "Errors that these count are not known; the bytes do not suffer.",
        "Look in the kernel's log for errors of its driver. The daemon leaves such files alone; slow.counters=none "
        "reads none.",
    )


def _say_files(source: ByteSource) -> str:
    return sentence_list([_short(source.transmit), _short(source.receive)])


def _short(paths: Sequence[str]) -> str:
    """Files as folder and name, added up."""
    return " + ".join("/".join(Path(path).parts[-2:]) for path in paths)


@check(
    "saturation",
    detail="Counters of 4, 8, 16 and 32 bits stop when they are full. From then on they are only a lower bound.",
)
def check_saturation(facts: Facts) -> Iterator[Finding]:
    """Error counters that are full, and count no more."""
    full = False
    for port, counts in facts.counts.items():
        if counts.full:
            full = True
            names = names_text([name.rpartition("/")[2] for name in counts.full])
            yield Finding(
                Level.WARN,
                str(port),
                f"has full counters: {names}.",
                "These stop when they are full: what happens now is not counted, and 'at least this' is all they say.",
                "Clear the port's error counters (perfquery -R) when no other tool needs them; ibpulse never does.",
            )
    read = sum(len(counts.end) for counts in facts.counts.values())
    if read and not full:
        yield passed("", f"None of {count_text(read, 'counter')} is full.")
