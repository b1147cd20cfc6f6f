"""Rails that may explain a poor result: idle, slower than the others, or far from the GPUs.

A suspect is a guess with its evidence. Topology alone does not prove that a path is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ibpulse.base.text import link_rate_text, percent
from ibpulse.core.recordings import RecordedPort

IDLE_SHARE = 0.1
"""Of an equal share of the bytes; a rail below it is idle."""
# of nvidia-smi topo -m; PIX and PXB stay below one PCIe root port
_PATHS = {
    "SYS": ("NUMA crossing", "its nearest GPU is on another NUMA node (SYS)"),
    "NODE": ("PCIe path", "its nearest GPU is behind another PCIe host bridge (NODE)"),
    "PHB": ("PCIe path", "the path to its nearest GPU passes the CPU's host bridge (PHB)"),
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rail, the kind of fault, and the evidence.

    Kinds: idle rail, link down, wrong rate, NUMA crossing, PCIe path.
    """

    rail: str
    kind: str
    evidence: str


def find_suspects(rails: Sequence[RecordedPort], shares: Sequence[float | None]) -> list[Suspect]:
    """The suspects among the rails of a node; `shares` has each rail's share of the bytes, None if unknown.

    A rail below the fastest one has a wrong rate. Paths are suspects even if all rails have the same.
    """
    rates = [rail.rate_bytes_per_second for rail in rails if rail.rate_bytes_per_second]
    found = []
    for rail, share in zip(rails, shares, strict=True):
        name, rate = str(rail.id), rail.rate_bytes_per_second
        if not rail.active:
            found.append(Suspect(name, "link down", f"the link is {rail.state or 'not ACTIVE'}"))
        elif share is not None and share < IDLE_SHARE / len(rails):
            found.append(Suspect(name, "idle rail", f"it carried {percent(share)} of the bytes"))
        if rate and rate < max(rates):
            evidence = f"its rate is {link_rate_text(rate)}, that of the fastest rail {link_rate_text(max(rates))}"
            found.append(Suspect(name, "wrong rate", evidence))
        if rail.identity.gpu_distance in _PATHS:
            found.append(Suspect(name, *_PATHS[rail.identity.gpu_distance]))
    return found
