"""Which figures each kind of network needs for its bisection bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

from ibpulse.workbench.models.bisection import Bisection, dragonfly, fat_tree, rail_only, torus

NETWORKS = ("fat-tree", "rail-optimised", "rail-only", "torus", "dragonfly")
NEEDS: Mapping[str, tuple[str, ...]] = {"torus": ("dimensions",), "dragonfly": ("groups", "global-links")}
TAKES: Mapping[str, tuple[str, ...]] = {
    **NEEDS,
    "fat-tree": ("oversubscription",),
    "rail-optimised": ("oversubscription",),
}


def network_bisection(kind: str, nodes: int, rails: int, link: float, figures: Mapping[str, object]) -> Bisection:
    """The bisection bandwidth of a network; links of a node count by its rails.

    Raises:
        ValueError: a figure is missing, is for another kind of network, or makes no sense.
    """
    for name in NEEDS.get(kind, ()):
        if name not in figures:
            raise ValueError(f"network: {kind} needs {name}")
    for name in figures:
        if name not in TAKES.get(kind, ()):
            raise ValueError(f"{name}: is not a figure of {kind}; remove it")
    if kind == "rail-only":
        return rail_only(nodes, rails, link)
    if kind == "torus":
        return torus(_whole_dimensions(figures["dimensions"]), link)
    if kind == "dragonfly":
        return dragonfly(_whole(figures["groups"]), _whole(figures["global-links"]), link)
    return fat_tree(nodes * rails, link, _number(figures.get("oversubscription", 1.0)))


def _whole_dimensions(given: object) -> tuple[int, ...]:
    values = given if isinstance(given, tuple) else ()
    if not values or len(values) > 8 or any(value != int(value) or value > 100_000 for value in values):
        raise ValueError("dimensions: give up to 8 whole numbers, such as 16,16,16")
    return tuple(map(int, values))


def _whole(given: object) -> int:
    return given if isinstance(given, int) else 0


def _number(given: object) -> float:
    return given if isinstance(given, float) else 1.0
