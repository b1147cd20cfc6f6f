"""The slow counters of every port, each file read once in the order that costs the device least. It judges nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.doctor.asking import ask_all
from ibpulse.doctor.facts import Counts
from ibpulse.model import Port, PortId
from ibpulse.sysfs.counters import COUNTERS, HW_COUNTERS
from ibpulse.sysfs.diagnostics import Wanted, choose_counters
from ibpulse.sysfs.files import list_names, parse_count, read_text

ANSWER_SECONDS = 1.5
# Requests that a port received: they go on counting when its counters of bytes do not.
REQUESTS = ("hw_counters/rx_write_requests", "hw_counters/rx_read_requests")
FLAPS = ("counters/link_downed", "counters/link_error_recovery")
TELLING = frozenset((*REQUESTS, *FLAPS))


@dataclass(frozen=True, slots=True)
class PortCounts:
    """Counts of one port by folder and file name, those that are full, and those without a count."""

    counts: Mapping[str, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)


def read_counts(sysfs: Path, ports: Sequence[Port], only: frozenset[str] = frozenset()) -> dict[PortId, PortCounts]:
    """The slow counters of ports that have a byte source; those of a device that does not answer are left out.

    `only` names the files to read, all without any.
    """
    devices: dict[str, list[Port]] = {}
    for port in ports:
        if port.source is not None:
            devices.setdefault(port.id.device, []).append(port)

    def question(chosen: Sequence[Port]) -> Callable[[], dict[PortId, PortCounts]]:
        return lambda: {port.id: _read_port(sysfs, port, only) for port in chosen}

    answers = ask_all({name: question(chosen) for name, chosen in devices.items()}, ANSWER_SECONDS)
    return {port: counts for found in answers.given.values() for port, counts in found.items()}


def join_counts(begin: Mapping[PortId, PortCounts], end: Mapping[PortId, PortCounts]) -> dict[PortId, Counts]:
    """Both readings of each port that answered at the end."""
    return {
        port: Counts(begin[port].counts if port in begin else {}, last.counts, last.full, last.unreadable)
        for port, last in end.items()
    }


def _read_port(sysfs: Path, port: Port, only: frozenset[str]) -> PortCounts:
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
    return PortCounts(counts, full, unreadable)


def _key(wanted: Wanted) -> str:
    return f"{wanted.folder}/{wanted.file}"
