"""Stalls in a dataset: the nodes whose silences overlap, and those that moved bytes meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ibpulse.core.statistics.verdict import MIN_SILENCE_SECONDS

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class FleetStall:
    """Nodes that were silent at the same time, in the order in which they fell silent.

    `moving` were not, as their samples show. The last of them fell silent at `since`, and the first one moved bytes
    again at `until`, infinite if none did.
    """

    silent: tuple[str, ...]
    moving: tuple[str, ...]
    since: float
    until: float


def find_stalls(silences: Mapping[str, Sequence[Span]], observed: Mapping[str, Sequence[Span]]) -> list[FleetStall]:
    """The stalls in the silences of nodes, the longest first; `observed` are the spans for which each has samples.

    Silences that overlap belong to one stall. Where a node has several, the first one counts.
    """
    every = sorted((span, node) for node, spans in silences.items() for span in spans)
    found: list[FleetStall] = []
    group: list[tuple[Span, str]] = []
    until = -math.inf
    for (begin, end), node in every:
        if group and begin >= until:
            found.append(_describe(group, observed))
            group = []
        # the stall lasts until the first node moves bytes again
        until = min(until, end) if group else end
        group.append(((begin, end), node))
    if group:
        found.append(_describe(group, observed))
    return sorted(found, key=lambda stall: stall.since - stall.until)


def _describe(group: Sequence[tuple[Span, str]], observed: Mapping[str, Sequence[Span]]) -> FleetStall:
    own: dict[str, Span] = {}
    for span, node in group:
        own.setdefault(node, span)
    since, until = max(begin for begin, _ in own.values()), min(end for _, end in own.values())
    moving = tuple(
        node
        for node, spans in observed.items()
        if node not in own and any(begin <= since and end >= since + MIN_SILENCE_SECONDS for begin, end in spans)
    )
    return FleetStall(tuple(own), moving, since, until)
