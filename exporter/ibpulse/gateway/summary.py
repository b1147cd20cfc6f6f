"""The numbers of a job and of its rows over a span, as in the event `summary`. Everything that is unknown is null."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import JobTrafficAnswer
from ibpulse.core.answers.summary import PortSummary
from ibpulse.core.arrays import Singles
from ibpulse.core.statistics.lateness import Lateness, MeasuredOffset
from ibpulse.core.statistics.nodes import WHENEVER, FirstNodes, Moment, find_hot_rail, shortest_stall
from ibpulse.gateway.jobs import JobNode, Row
from ibpulse.gateway.nodes.table import describe_clock
from ibpulse.gateway.samples import WAYS

# without a known step: shorter pauses are common
UNKNOWN_STEP_SECONDS = 3.0
# within this time after a moment, a daemon may not have aggregated its samples yet
AGGREGATED_SECONDS = 3.0
TRANSMIT, RECEIVE = "transmit", "receive"
ACTIVE = "ACTIVE"


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
    """The current stall by the last answers of the nodes of a job; None if no stall is known."""
    known = {name: node.job.traffic for name, node in nodes.items() if node.job.running and node.job.traffic}
    shortest = _shortest(known)
    silent = {
        name: _instant(nodes[name], "last")
        for name, traffic in known.items()
        if nodes[name].answering and traffic.silent_seconds > shortest
    }
    if not silent:
        return None
    since = max(high for _, high in silent.values())
    others = {name: _instant(nodes[name], "last")[0] for name in known if name not in silent and nodes[name].answering}
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
        # a node that was followed before then, and had no traffic, did not stop
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
    """The moment at which a node stopped in a direction; without an end if it may go on, None without any traffic."""
    traffic = node.job.traffic
    if traffic is None or traffic.known_until_ms is None:
        return WHENEVER
    last_ms = getattr(traffic, f"last_{way}_ms")
    if last_ms is None:
        return None
    low, high = _instant(node, f"last_{way}")
    stopped = node.answering and traffic.known_until_ms - last_ms > 1000 * shortest
    return low, high if stopped else math.inf


def _was_followed(node: JobNode, moment: float) -> bool:
    traffic = node.job.traffic
    return traffic is not None and _bounds(node, traffic.since_ms, traffic.since_ms)[1] <= moment


def _order(node: JobNode) -> tuple[float, str]:
    traffic = node.job.traffic
    sent = traffic is not None and traffic.last_transmit_ms is not None
    return sum(_instant(node, f"last_{TRANSMIT}" if sent else "last")), node.state.name if node.state else ""


def _instant(node: JobNode, name: str) -> Moment:
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


@dataclass(frozen=True, slots=True)
class SummarySpan:
    """The end of a summary in ms, and how far back its means and its peaks reach."""

    end_ms: int
    mean_ms: int = 1000
    peak_ms: int = 10_000


class JobNumbers:
    """The numbers of a job, which are the same whatever the rows are: `job` is that of the event, `whole` by node."""

    def __init__(
        self,
        nodes: Mapping[str, JobNode],
        lateness: Mapping[str, Lateness],
        span: SummarySpan,
        stall: JobStall | None = None,
        watched: Mapping[str, Any] | None = None,
    ) -> None:
        self._nodes, self._lateness, self._span = nodes, lateness, span
        self.whole = {name: self._describe(Row(name, None, tuple(node.rails))) for name, node in nodes.items()}
        if stall and 1000 * stall.since < span.end_ms:
            # silence after the last step is not part of any
            for name in stall.nodes:
                traffic = nodes[name].job.traffic
                self.whole[name]["step_period_seconds"] = traffic.step_period_seconds if traffic else None
        job = _describe_job(nodes, lateness, list(self.whole.values()), span)
        self.job: Mapping[str, Any] = {**job, "stall": stall.describe() if stall else None, **(watched or {})}

    def document(self, rows: Iterable[Row]) -> dict[str, Any]:
        """The document of an event `summary` with some rows."""
        found = [
            self.whole[row.node] if row.port is None else self._describe(row) for row in rows if row.node in self._nodes
        ]
        return {"end_ms": self._span.end_ms, "job": self.job, "rows": found}

    def _describe(self, row: Row) -> dict[str, Any]:
        return _describe_row(row, self._nodes[row.node], self._lateness.get(row.node), self._span)


def _describe_row(row: Row, node: JobNode, late: Lateness | None, span: SummarySpan) -> dict[str, Any]:
    whole = node.summary.node if node.summary and node.answering and row.port is None else None
    traffic = node.traffic()
    return {
        "row": row.name,
        "node": row.node,
        "clock": describe_clock(node.state) if node.state else None,
        "mean_bytes_per_second": _each_way(np.mean, node.rates(row.rails, span.mean_ms)),
        "peak_bytes_per_second": _each_way(np.max, node.rates(row.rails, span.peak_ms)),
        "active_bytes_per_second": whole.bandwidth_active_mean_bytes_per_second if whole else None,
        "duty_cycle_ratio": whole.duty_cycle_ratio if whole else None,
        "step_period_seconds": whole.step_period_seconds if whole else None,
        "rail_fairness_ratio": whole.rail_fairness_ratio if whole else None,
        "lateness_ms": late.lateness_ms if late else None,
        "lateness_uncertainty_ms": late.uncertainty_ms if late else None,
        "late": late is not None and late.late,
        "rails_down": [name for name in row.rails if _is_down(name, node, traffic)],
        "rails_idle": [name for name in row.rails if name in traffic and traffic[name].rail_idle],
        "rails_slow": [name for name in row.rails if name in traffic and traffic[name].rail_slow],
    }


def _is_down(rail: str, node: JobNode, traffic: Mapping[str, PortSummary]) -> bool:
    """Whether a rail was down at the end of the span, or now if the node does not say so."""
    state = traffic[rail].state if rail in traffic else None
    port = node.rails.get(rail)
    return state != ACTIVE if state else port is not None and not port.active


def _each_way(statistic: Callable[[Singles], Any], rates: Singles | None) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(WAYS)
    if rates is not None:
        for way, values in zip(WAYS, rates, strict=True):
            known = values[~np.isnan(values)]
            found[way] = float(statistic(known)) if known.size else None
    return found


def _describe_job(
    nodes: Mapping[str, JobNode], lateness: Mapping[str, Lateness], rows: Sequence[dict[str, Any]], span: SummarySpan
) -> dict[str, Any]:
    answering = {name: node for name, node in nodes.items() if node.answering}
    summaries = [node.summary.node for node in answering.values() if node.summary]
    lines = [node.line_rate for node in nodes.values()]
    latest = max(
        (name for name in lateness if lateness[name].late), key=lambda name: lateness[name].lateness_ms, default=None
    )
    return {
        "nodes": len(nodes),
        "answering": len(answering),
        "missing": [{"node": name, "reason": node.problem[1]} for name, node in nodes.items() if not node.answering],
        "rails": sum(len(node.rails) for node in answering.values()),
        "active_rails": sum(each.active_rails for each in summaries) if len(summaries) == len(answering) else None,
        "line_rate_bytes_per_second": None if not lines or None in lines else sum(line or 0.0 for line in lines),
        "transmit_bytes_per_second": _sum(row["mean_bytes_per_second"]["transmit"] for row in rows),
        "receive_bytes_per_second": _sum(row["mean_bytes_per_second"]["receive"] for row in rows),
        "peak": _peak(answering, span.peak_ms),
        "active_bytes_per_second": _spread(each.bandwidth_active_mean_bytes_per_second for each in summaries),
        "duty_cycle_ratio": _spread(each.duty_cycle_ratio for each in summaries),
        "step_period_seconds": _spread(row["step_period_seconds"] for row in rows),
        "lateness_nodes": len(lateness),
        "late": None
        if latest is None
        else {
            "row": latest,
            "lateness_ms": lateness[latest].lateness_ms,
            "uncertainty_ms": lateness[latest].uncertainty_ms,
        },
        "hot_rail": _hot_rail(answering, span.peak_ms),
        "clock": _clocks(nodes.values()),
        "unsynchronised": [
            name
            for name, node in nodes.items()
            if node.state and node.state.clock and node.state.clock.synchronised is False
        ],
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"median": median(known), "least": min(known), "most": max(known)} if known else None


def _peak(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Any] | None:
    """The highest sample of a node, transmit and receive."""
    found: list[tuple[float, str]] = []
    for name, node in nodes.items():
        rates = node.rates(tuple(node.rails), length_ms)
        both = None if rates is None else rates.sum(axis=0)
        if both is not None and not np.isnan(both).all():
            found.append((float(np.nanmax(both)), name))
    highest = max(found, default=None)
    return None if highest is None else {"row": highest[1], "bytes_per_second": highest[0]}


def _hot_rail(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Any] | None:
    carried: dict[str, dict[str, float]] = {}
    for name, node in nodes.items():
        samples = node.samples
        # with an unknown rail, no sample is common
        if samples is None or not set(node.rails) <= set(samples.rails):
            continue
        begin = (samples.end_ms - length_ms) // samples.interval_ms * samples.interval_ms
        rates, _ = samples.read(tuple(node.rails), begin, samples.end_ms)
        # only samples that all rails have, or one with missing data would carry less
        common = ~np.isnan(rates).any(axis=(0, 1))
        totals = rates[..., common].sum(axis=(0, 2), dtype=np.float64).tolist()
        carried[name] = dict(zip(node.rails, totals, strict=True))
    found = find_hot_rail(carried)
    return (
        None
        if found is None
        else {
            "port": found.port,
            "share_ratio": found.share_ratio,
            "usual_ratio": found.usual_ratio,
            "nodes": found.nodes,
        }
    )


def _clocks(nodes: Iterable[JobNode]) -> dict[str, Any] | None:
    offsets = [node.state.offset for node in nodes if node.state and node.state.offset]
    if not offsets:
        return None
    first, last = min(offsets, key=lambda one: one.offset_ns), max(offsets, key=lambda one: one.offset_ns)
    unsure = first.uncertainty_ns + last.uncertainty_ns if len(offsets) > 1 else 0
    return {
        "nodes": len(offsets),
        "spread_ms": (last.offset_ns - first.offset_ns) / MILLISECOND_NS,
        "uncertainty_ms": unsure / MILLISECOND_NS,
    }
