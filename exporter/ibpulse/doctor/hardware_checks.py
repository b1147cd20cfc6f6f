"""Checks of the rails as hardware: whether they are alike, and their PCIe paths. Pure functions of the facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ibpulse.doctor.facts import Facts
from ibpulse.doctor.finding import Finding, Level, passed
from ibpulse.model import Port
from ibpulse.sysfs.pcie import FAULTS
from ibpulse.text import count_text, link_rate_text, rate_text


def check_likeness(facts: Facts) -> Iterator[Finding]:
    """Rails are alike in rate, firmware, board and PCIe."""
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


def check_pcie(facts: Facts) -> Iterator[Finding]:
    """The PCIe path of each rail carries what the port does."""
    rails = {port.id.device: port for port in facts.fabric.ports if port.rail}
    for place in facts.fabric.topology.devices:
        if place.device not in rails:
            continue
        faults = [verdict for verdict in place.verdicts if verdict.word in FAULTS]
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
