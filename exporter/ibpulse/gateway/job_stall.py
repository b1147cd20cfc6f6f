"""Finds which nodes of a job are silent now, since when, and which of them stopped first.

Each daemon keeps the last traffic of its jobs, so the answer is the same however long ago one asks. Transmit is judged
first: a node that stopped sending still receives what the others send.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.jobs import JobTrafficAnswer
from ibpulse.core.statistics.lateness import MeasuredOffset
from ibpulse.core.statistics.nodes import WHENEVER, FirstNodes, Moment, shortest_stall
from ibpulse.gateway.job_node import JobNode

# without a known step: shorter pauses are common
UNKNOWN_STEP_SECONDS = 3.0
# within this time after a moment, a daemon may not have aggregated its samples yet
AGGREGATED_SECONDS = 3.0
TRANSMIT, RECEIVE = "transmit", "receive"


@dataclass(frozen=True, slots=True)
class JobStall:
    """The silent nodes in the order in which they stopped, as far as it is known, and whether no node moves bytes.

    `first` are those that may have been the first to stop, in the `direction`; empty if their order is not known. If it
    is one, `before` is the next, which stopped at least `gap` seconds later. `since` is when the last node fell silent,
    in seconds by the clock of the gateway, and `seconds` for how long all of them have been seen to be silent.
    """

    nodes: tuple[str, ...]
    whole: bool
    first: tuple[str, ...]
    direction: str
    before: str
    gap: float | None
    since: float
    seconds: float

    def describe(self) -> dict[str, Any]:
        """The stall as plain values."""
        return {
            "rows": list(self.nodes),
            "whole": self.whole,
            "first": list(self.first),
            "direction": self.direction or None,
            "before": self.before or None,
            "gap_ms": None if self.gap is None else 1000 * self.gap,
            "since_ms": round(1000 * self.since),
            "silent_ms": round(1000 * self.seconds),
        }


def find_stall(nodes: Mapping[str, JobNode]) -> JobStall | None:
    """The stall that there is as of the last answers of the nodes of a job, None if none is known."""
    known = {name: node.job.traffic for name, node in nodes.items() if node.job.running and node.job.traffic}
    shortest = _shortest(known)
    silent = {
        name: _moment(nodes[name], "last")
        for name, traffic in known.items()
        if nodes[name].answering and traffic.silent_seconds > shortest
    }
    if not silent:
        return None
    since = max(high for _, high in silent.values())
    others = {name: _moment(nodes[name], "last")[0] for name in known if name not in silent and nodes[name].answering}
    if any(_is_early(nodes[name], since + shortest) for name, last in others.items() if last <= since + shortest):
        # these may have fallen silent as well
        return None
    first, direction = _find_first(nodes, shortest, TRANSMIT), TRANSMIT
    if first is None:
        first, direction = _find_first(nodes, shortest, RECEIVE), RECEIVE
    return JobStall(
        nodes=tuple(sorted(silent, key=lambda name: _order(nodes[name]))),
        whole=not any(last > since + shortest for last in others.values()),
        first=first[0].nodes if first else (),
        direction=direction if first else "",
        before=first[1] if first else "",
        gap=first[0].gap if first and first[1] else None,
        since=since,
        seconds=min(known[name].silent_seconds for name in silent),
    )


def _shortest(known: Mapping[str, JobTrafficAnswer]) -> float:
    """The shortest silence in seconds that is not one between steps."""
    periods = [traffic.step_period_seconds for traffic in known.values() if traffic.step_period_seconds is not None]
    return shortest_stall(median(periods)) if periods else UNKNOWN_STEP_SECONDS


def _is_early(node: JobNode, moment: float) -> bool:
    """Whether the last answer of a node is too old to tell whether it moved bytes at a moment."""
    seen_ns = node.state.seen_ns if node.state else None
    return seen_ns is not None and seen_ns / SECOND_NS < moment + AGGREGATED_SECONDS


def _find_first(nodes: Mapping[str, JobNode], shortest: float, way: str) -> tuple[FirstNodes, str] | None:
    """The nodes that may have been the first to stop in a direction, and the next; None if it may be any of them."""
    moments = {name: _stop_of(node, way, shortest) for name, node in nodes.items()}
    took_part = {name: moment for name, moment in moments.items() if moment is not None}
    earliest = min((low for low, _ in took_part.values() if math.isfinite(low)), default=math.inf)
    for name, node in nodes.items():
        # whoever was followed before then, and had no traffic, did not stop
        if moments[name] is None and not _was_followed(node, earliest):
            took_part[name] = WHENEVER
    if not took_part or not all(_clock_of(nodes[name]) for name in took_part):
        return None
    found = FirstNodes.of(took_part)
    if len(found.nodes) == len(took_part):
        return None
    later = {name: low for name, (low, _) in took_part.items() if name not in found.nodes}
    return found, min(later, key=later.__getitem__) if len(found.nodes) == 1 else ""


def _stop_of(node: JobNode, way: str, shortest: float) -> Moment | None:
    """When a node stopped in a direction; without an end if it may still go on, None if it had no traffic."""
    traffic = node.job.traffic
    if traffic is None or traffic.known_until_ms is None:
        return WHENEVER
    last_ms = getattr(traffic, f"last_{way}_ms")
    if last_ms is None:
        return None
    low, high = _moment(node, f"last_{way}")
    stopped = node.answering and traffic.known_until_ms - last_ms > 1000 * shortest
    return low, high if stopped else math.inf


def _was_followed(node: JobNode, moment: float) -> bool:
    traffic = node.job.traffic
    return traffic is not None and _bounds(node, traffic.since_ms, traffic.since_ms)[1] <= moment


def _order(node: JobNode) -> tuple[float, str]:
    traffic = node.job.traffic
    sent = traffic is not None and traffic.last_transmit_ms is not None
    return sum(_moment(node, f"last_{TRANSMIT}" if sent else "last")), node.state.name if node.state else ""


def _moment(node: JobNode, name: str) -> Moment:
    """An instant of a node's traffic on the clock of the gateway."""
    traffic = node.job.traffic
    high_ms = getattr(traffic, f"{name}_ms") if traffic else None
    if high_ms is None:
        return WHENEVER
    return _bounds(node, high_ms - getattr(traffic, f"{name}_uncertainty_ms"), high_ms)


def _bounds(node: JobNode, low_ms: int, high_ms: int) -> Moment:
    """A time between two of a node's clock; a clock that is not known is taken for that of the gateway."""
    clock = _clock_of(node)
    return clock.bounds(low_ms, high_ms) if clock else (low_ms / 1000, high_ms / 1000)


def _clock_of(node: JobNode) -> MeasuredOffset | None:
    """The clock of a node when its last traffic became known."""
    return node.state.clocks_then.get((node.job.scheduler, node.job.job_id)) if node.state else None
