"""Bisection bandwidth of networks, and the least time of a uniform all-to-all over them.

All rates are bytes per second in one direction. `link` is the rate of one host link or one cable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bandwidth between two halves of a network in one direction, its formula, and warnings about the inputs."""

    bytes_per_second: float
    formula: str
    warnings: tuple[str, ...] = ()


def fat_tree(hosts: int, link: float, oversubscription: float = 1.0) -> Bisection:
    """A fat tree, and a rail-optimised network with a spine: n B / (2 o).

    Raises:
        ValueError: fewer than two hosts, or an oversubscription below 1.
    """
    _check(hosts >= 2, f"{hosts} hosts have no two halves; give 2 or more")
    _check(oversubscription >= 1, f"an oversubscription of {oversubscription:g} is below 1; give 7 for 1:7")
    return Bisection(hosts * link / (2 * oversubscription), "n B / (2 o)")


def rail_only(nodes: int, rails: int, link: float) -> Bisection:
    """A network per rail without a spine: N B/2 for each of R rails; traffic between rails goes over NVLink.

    Raises:
        ValueError: fewer than two nodes, or no rail.
    """
    _check(nodes >= 2 and rails >= 1, f"{nodes} nodes with {rails} rails have no two halves; give 2 nodes or more")
    return Bisection(rails * nodes * link / 2, "R N B / 2", ("no path between rails; it goes over NVLink first",))


def torus(dimensions: Sequence[int], link: float) -> Bisection:
    """A torus with wrap-around links, cut across its longest dimension: 2 n B / k_max.

    Raises:
        ValueError: no dimension, or one shorter than 2.
    """
    _check(bool(dimensions) and min(dimensions) >= 2, "a torus has dimensions of 2 or more, such as 16x16x16")
    longest = max(dimensions)
    # two nodes in a row have one cable, not two
    cables = 2 if longest > 2 else 1
    warnings = () if longest % 2 == 0 else (f"{longest} is odd: no cut has two equal halves",)
    return Bisection(cables * prod(dimensions) / longest * link, "2 n B / k_max", warnings)


def dragonfly(groups: int, global_links: int, link: float) -> Bisection:
    """A dragonfly whose groups are joined by `global_links` cable ends each, spread evenly: (g/2)^2 L/(g-1) B.

    Raises:
        ValueError: fewer than two groups, or no cable.
    """
    _check(groups >= 2 and global_links >= 1, f"{groups} groups with {global_links} cables; give 2 groups or more")
    warnings = []
    if groups % 2:
        warnings.append(f"{groups} groups have no two equal halves")
    if global_links < groups - 1:
        warnings.append(
            f"{global_links} global links per group do not reach the {groups - 1} other groups directly: minimal "
            "routes do not exist"
        )
    return Bisection((groups / 2) ** 2 * global_links / (groups - 1) * link, "(g/2)^2 L/(g-1) B", tuple(warnings))


def all_to_all_seconds(gpus: int, buffer_bytes: float, bisection: float, link: float) -> tuple[float, float]:
    """Least seconds of a uniform all-to-all of `buffer_bytes` per GPU: n S / (4 B_bis), and S (n-1)/(n B) of a link.

    Half of the GPUs send half of their buffers across the cut.
    """
    return gpus * buffer_bytes / (4 * bisection), buffer_bytes * (gpus - 1) / gpus / link


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)
