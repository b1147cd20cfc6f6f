"""Checks of the counter files: which are read, which refuse, which are full. Pure functions of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ibpulse.doctor.facts import Facts, Folders
from ibpulse.doctor.finding import Finding, Level, passed
from ibpulse.doctor.wording import say_count, say_names, say_plain
from ibpulse.model import ByteSource, Port
from ibpulse.sysfs.counters import COUNTERS, HW_COUNTERS
from ibpulse.sysfs.kinds import VF


def check_files(facts: Facts) -> Iterator[Finding]:
    """Which files are read for the bytes of each port, which folders of counters it has, which files refuse."""
    for port in facts.fabric.ports:
        if port.source is None:
            continue
        folders = facts.tree.folders.get(port.id, Folders())
        there = [name for name, has in ((COUNTERS, folders.counters), (HW_COUNTERS, folders.hw_counters)) if has]
        yield passed(
            str(port.id),
            f"counts bytes in {_say_files(port.source)}, "
            f"{say_count(port.source.scale, 'byte')} a count; it has {say_plain(there) or 'no folder that answered'}.",
        )
        counts = facts.counts.get(port.id)
        if counts and counts.unreadable:
            yield _judge_unreadable(port, counts.unreadable)


def _judge_unreadable(port: Port, unreadable: Mapping[str, str]) -> Finding:
    first, reason = next(iter(unreadable.items()))
    sentence = f"has {say_count(len(unreadable), 'counter')} without a value, first {first}, which {reason}"
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
    return say_plain([_short(source.transmit), _short(source.receive)])


def _short(paths: Sequence[str]) -> str:
    """Files as folder and name, added up."""
    return " + ".join("/".join(Path(path).parts[-2:]) for path in paths)


def check_saturation(facts: Facts) -> Iterator[Finding]:
    """Counters that stand at the largest number that they can hold."""
    full = False
    for port, counts in facts.counts.items():
        if counts.full:
            full = True
            names = say_names([name.rpartition("/")[2] for name in counts.full])
            yield Finding(
                Level.WARN,
                str(port),
                f"has full counters: {names}.",
                "These stop when they are full: what happens now is not counted, and 'at least this' is all they say.",
                "Clear the port's error counters (perfquery -R) when no other tool needs them; ibpulse never does.",
            )
    read = sum(len(counts.end) for counts in facts.counts.values())
    if read and not full:
        yield passed("", f"None of {say_count(read, 'counter')} is full.")
