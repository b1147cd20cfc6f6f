"""Checks of the rails' hardware: differences between them, their PCIe paths, their counter files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ibpulse.agent.doctor.facts import Facts, Folders
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.kinds import VF
from ibpulse.agent.sysfs.pcie import LINK_FAULTS
from ibpulse.base.text import count_text, link_rate_text, names_text, rate_text, sentence_list
from ibpulse.core.model import ByteSource, Port


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
            yield Finding(
                Level.WARN,
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
            yield Finding(
                Level.WARN,
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
            f"counts bytes in {_say_files(port.source)}, "
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
    return Finding(
        Level.WARN,
        str(port.id),
        f"{sentence}.",
        "The errors that these count are unknown. Byte counts are not affected.",
        "Check the kernel log for errors from its driver. The daemon skips such files; slow.counters=none turns "
        "error counters off.",
    )


def _say_files(source: ByteSource) -> str:
    files = sentence_list([_short(source.transmit), _short(source.receive)])
    return f"{files}, read by netlink" if source.netlink else files


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
            names = names_text([name.rpartition("/")[2] for name in counts.full])
            yield Finding(
                Level.WARN,
                str(port),
                f"has counters at their maximum: {names}.",
                "They have stopped there: new errors are not counted, and their values are only lower bounds.",
                "Clear the port's error counters (perfquery -R) if no other tool needs them; ibpulse never does that.",
            )
    read = sum(len(counts.end) for counts in facts.counts.values())
    if read and not full:
        yield passed("", f"None of {count_text(read, 'counter')} is at its maximum.")
