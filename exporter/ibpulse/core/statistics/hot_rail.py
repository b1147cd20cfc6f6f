"""Which rail carries more than its share on most nodes of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from ibpulse.core.defaults import FEWEST_PEERS

HOT_FACTOR = 1.15


@dataclass(frozen=True, slots=True)
class HotRail:
    """A rail that carries more than its share on most nodes: the median of its share there, and what is usual."""

    port: str
    share_ratio: float
    usual_ratio: float
    nodes: int


def find_hot_rail(rails: Mapping[str, Mapping[str, float]]) -> HotRail | None:
    """The hot rail by the bytes of every rail on every node; None if there is none.

    It carries the most on more than half of the nodes with traffic, and clearly more than an equal share. Nodes with
    fewer than four rails are left out.
    """
    shares: dict[str, list[tuple[float, float]]] = {}
    nodes = 0
    for carried in rails.values():
        total = sum(carried.values())
        if total <= 0 or len(carried) <= FEWEST_PEERS:
            continue
        nodes += 1
        port = max(carried, key=carried.__getitem__)
        share, usual = carried[port] / total, 1 / len(carried)
        if share >= HOT_FACTOR * usual:
            shares.setdefault(port, []).append((share, usual))
    if not shares:
        return None
    port = max(shares, key=lambda name: len(shares[name]))
    found = shares[port]
    if 2 * len(found) <= nodes:
        return None
    return HotRail(port, median(share for share, _ in found), median(usual for _, usual in found), len(found))
