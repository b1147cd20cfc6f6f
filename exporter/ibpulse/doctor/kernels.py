"""Traps of kernel versions: a table of facts, and which of them apply. It must not read anything.

Versions are those of the mainline kernel. Distributions carry fixes back, so a trap that ends with a version may be
closed in an older one; its sentence says what to look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ibpulse.doctor.facts import Facts
from ibpulse.doctor.finding import Level

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Trap:
    """One trap: from which version up to which (not included) it stands, when it matters, and what to do."""

    name: str
    since: Version
    until: Version | None
    matters: Callable[[Facts], bool]
    level: Level
    sentence: str
    meaning: str
    advice: str = ""


def _has_driver(prefix: str) -> Callable[[Facts], bool]:
    return lambda facts: any(port.identity.driver.startswith(prefix) for port in facts.fabric.ports)


TRAPS: tuple[Trap, ...] = (
    Trap(
        "counters_ext",
        (0, 0),
        (4, 5),
        lambda facts: bool(facts.fabric.ports),
        Level.WARN,
        "Before Linux 4.5 the 64-bit counters lie in counters_ext, which ibpulse does not read.",
        "Ports of cards whose other counters have 32 bits are not sampled.",
        "Use a newer kernel.",
    ),
    Trap(
        "hw_counters in pods",
        (0, 0),
        (6, 15),
        lambda facts: facts.tree.is_other_namespace and bool(facts.tree.shared),
        Level.WARN,
        "Before Linux 6.15 a pod's own sysfs shows hw_counters of the device, and reading them can crash the kernel.",
        "ibpulse never reads these; other tools in pods may. Stable kernels may hold the fix of March 2025.",
        "Update the kernel, and keep exporters on the host's /sys.",
    ),
    Trap(
        "hw_counters of mlx5",
        (5, 16),
        None,
        _has_driver("mlx5"),
        Level.OK,
        "Since Linux 5.16 each hw_counters file of mlx5 costs a refresh, unless rx_write_requests is read first.",
        "ibpulse reads that one first; a tool that does not costs the firmware 2 to 4 commands a file.",
    ),
    Trap(
        "hw_counters alias",
        (0, 0),
        None,
        lambda facts: any(port.source and port.source.refresh_seconds for port in facts.fabric.ports),
        Level.OK,
        "Some bytes are counted in hw_counters, which the kernel renews a tick of its clock after their lifespan.",
        "ibpulse samples these no faster than three times that, so that they do not alias, but once a second at least.",
    ),
)


def parse_version(release: str) -> Version | None:
    """Major and minor version of a kernel release such as `6.8.0-45-generic`, None for another text."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else None


def find_traps(facts: Facts) -> list[Trap]:
    """The traps that stand in this kernel and matter on this node, none for a release that cannot be read."""
    version = parse_version(facts.machine.kernel)
    if version is None:
        return []
    return [
        trap
        for trap in TRAPS
        if trap.since <= version and (trap.until is None or version < trap.until) and trap.matters(facts)
    ]
