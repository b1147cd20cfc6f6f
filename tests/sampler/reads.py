"""Rings whose records tell of reads that took given times."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.ring.writing import put

MS = 1_000_000

# ms of the two reads at a tick
Reads = Callable[[int], tuple[float, float]]


def planned(ring: RingFile, name: str, stride: int = 1) -> PlannedPort:
    """A port of the plan and its slot."""
    return PlannedPort(ring.assign(name, 4, stride), name.partition(":")[0], ("/t",), ("/r",), stride)


def write_reads(
    ring: RingFile, port: PlannedPort, first: int, last: int, reads: Reads, missed: Collection[int] = ()
) -> None:
    """Records of a port from one tick to another; what it read was too long to be of use."""
    for tick in range(first, last + 1):
        if tick % port.stride == 0 and tick not in missed:
            transmit, receive = (round(read * MS) for read in reads(tick))
            before = tick * ring.interval_ns
            words = (before, before + transmit, before + transmit + receive, at.ABSENT, at.ABSENT)
            put(ring, port.slot, tick, words, port.stride)
