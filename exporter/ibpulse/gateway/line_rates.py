"""The line rates that the rails of a node had, from its events: a view of the past uses those of the past."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.core.answers.events import EventsAnswer
from ibpulse.core.answers.node import PortAnswer
from ibpulse.gateway.nodes.nodes import Node, ask_node

# those after which a rail can have another rate
KINDS = ("link-down", "link-up", "link-change", "rate-change", "appeared", "disappeared")
MAX_EVENTS = 5000


@dataclass(frozen=True, slots=True)
class RailLineRates:
    """The line rates of a rail in bytes per second: `rates[n]` from `begins_ms[n]` on, NaN while it is unknown.

    The first one is that of all time before, too. Times are by the clock of the node.
    """

    begins_ms: Sequence[float]
    rates: Sequence[float]

    def at(self, times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The line rate at each time."""
        places = np.searchsorted(self.begins_ms, times_ms, side="right") - 1
        return np.asarray(self.rates)[np.maximum(places, 0)]


async def ask_line_rates(node: Node, rails: Mapping[str, PortAnswer | None], from_ms: int) -> dict[str, RailLineRates]:
    """The line rates of rails since a time; `rails` has their state of now.

    Raises:
        DaemonError: the node does not tell its events.
    """
    query = [("from", str(from_ms)), ("limit", str(MAX_EVENTS)), *(("kind", kind) for kind in KINDS)]
    found = await ask_node(node, EventsAnswer, "/api/v1/events", query)
    return {
        name: find_rates(name, None if port is None else port.rate_bytes_per_second, found)
        for name, port in rails.items()
    }


def find_rates(rail: str, rate_now: float | None, found: EventsAnswer) -> RailLineRates:
    """The line rates of a rail, from the states before and after its events and the rate that it has now."""
    begins, rates = [-math.inf], [math.nan if rate_now is None else rate_now]
    mine = [event for event in found.events if event.subject == rail and (event.before or event.after)]
    known = [event.before or event.after for event in mine]
    if known and known[0] is not None:
        rates = [_rate(known[0].rate_bytes_per_second)]
    for event in mine:
        # a port that disappeared has no samples
        if event.after is not None:
            begins.append(event.time_ms)
            rates.append(_rate(event.after.rate_bytes_per_second))
    if found.left_out and found.events:
        # of what was before the first event that was sent, nothing is known
        begins, rates = [-math.inf, max(begins[0], found.events[0].time_ms), *begins[1:]], [math.nan, *rates]
    return RailLineRates(begins, rates)


def sum_at(rails: Iterable[RailLineRates], times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The sum of the line rates of rails at each time; NaN where one is unknown, or 0."""
    total = np.sum([rail.at(times_ms) for rail in rails], axis=0, dtype=np.float64)
    return np.where(total > 0, total, np.nan)


def _rate(rate: float | None) -> float:
    return math.nan if rate is None else rate
