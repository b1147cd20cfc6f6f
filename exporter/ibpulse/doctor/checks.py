"""The table of checks, and the run over it. It must not read anything: the facts are all there is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from ibpulse.doctor.facts import Facts
from ibpulse.doctor.finding import Finding, Level
from ibpulse.doctor.hardware_checks import check_likeness, check_pcie
from ibpulse.doctor.machine_checks import (
    check_affinity,
    check_clock,
    check_cpu,
    check_kernel,
    check_scheduler,
    check_space,
    check_web,
)
from ibpulse.doctor.port_checks import (
    check_devices,
    check_files,
    check_rails,
    check_remarks,
    check_saturation,
    check_tree,
)
from ibpulse.doctor.sample_checks import (
    check_balance,
    check_counting,
    check_links,
    check_reads,
    check_resolution,
    check_ticks,
)

NOT_JUDGED = "Not judged: the tree is no kernel's, so this machine is not the node."


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, what it looks at in a sentence, and the function.

    `of_machine` is one whose findings are about the machine that doctor runs on: over a simulated fabric, a fixture or
    a bundle they are told, but not judged.
    """

    name: str
    sentence: str
    find: Callable[[Facts], Iterator[Finding]]
    of_machine: bool = False


CHECKS: tuple[Check, ...] = (
    Check("tree", "Whose tree it is, how it is mounted, whether it shows counters.", check_tree),
    Check("devices", "Every device answers, and every card of the rails' make has its device.", check_devices),
    Check("rails", "Every port, and why it is or is not a rail; rails that are down.", check_rails),
    Check("remarks", "What the scan remarked that no other line says.", check_remarks),
    Check("likeness", "Rails are alike in rate, driver, board, firmware and PCIe.", check_likeness),
    Check("pcie", "The PCIe path of each rail carries what its port does.", check_pcie),
    Check("files", "Which files count the bytes, which folders there are, which counters refuse.", check_files),
    Check("saturation", "Error counters that are full, and count no more.", check_saturation),
    Check("counting", "Counters that fell, reads that failed.", check_counting),
    Check("resolution", "How often the counters really change; the kernel's cache.", check_resolution),
    Check("links", "Links that went down or recovered while doctor looked.", check_links),
    Check("balance", "Idle and slow rails, and counters that are stuck while traffic flows.", check_balance),
    Check("reads", "Cost of a read, and the shortest honest interval on this node.", check_reads, True),
    Check("ticks", "Ticks kept and lost, and how late they were.", check_ticks, True),
    Check("affinity", "The sampler's CPU, and the CPUs near the rails.", check_affinity, True),
    Check("scheduler", "Scheduling and timer slack of the sampler.", check_scheduler, True),
    Check("cpu", "CPU quota and throttling.", check_cpu, True),
    Check("clock", "Synchronisation of the wall clock.", check_clock, True),
    Check("kernel", "Traps of this kernel's version.", check_kernel, True),
    Check("space", "Memory and disk for the ring and for files that are kept.", check_space),
    Check("web", "The web server's address is free, or ibpulse has it.", check_web),
)


def examine(facts: Facts, names: Collection[str] = ()) -> tuple[Finding, ...]:
    """What the checks of these names find, all without any, in the order of the table."""
    chosen = [check for check in CHECKS if not names or check.name in names]
    return tuple(_file(finding, check, facts) for check in chosen for finding in check.find(facts))


def _file(finding: Finding, check: Check, facts: Facts) -> Finding:
    """The finding under the name of its check, excused where it says nothing of the node."""
    if check.of_machine and not facts.tree.is_kernel and finding.level is not Level.OK:
        finding = replace(finding, level=Level.OK, meaning=NOT_JUDGED, advice="")
    return replace(finding, topic=check.name)
