"""The numbers of a job and of its rows over a span, as in the event `summary`. Everything that is unknown is null."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.summary import PortSummary
from ibpulse.core.arrays import Singles
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.lateness import Lateness
from ibpulse.core.statistics.nodes import find_hot_rail
from ibpulse.gateway.jobs import JobNode, Row
from ibpulse.gateway.nodes.table import describe_clock

ACTIVE = "ACTIVE"


@dataclass(frozen=True, slots=True)
class SummarySpan:
    """The end of a summary in ms, and how far back its means and its peaks reach."""

    end_ms: int
    mean_ms: int = 1000
    peak_ms: int = 10_000


class JobNumbers:
    """The numbers of a job, which are the same whatever the rows are: `job` is that of the event, `whole` by node.

    `watched` has the verdict on its last stall, as `Verdicts.of` tells it; while a job is silent, it has no step.
    """

    def __init__(
        self,
        nodes: Mapping[str, JobNode],
        lateness: Mapping[str, Lateness],
        span: SummarySpan,
        watched: Mapping[str, Any] | None = None,
    ) -> None:
        self._nodes, self._lateness, self._span = nodes, lateness, span
        last = (watched or {}).get("verdict") or {}
        self._silent = bool(last) and last["ended_ms"] is None and last["since_ms"] < span.end_ms
        self.whole = {name: self._describe(Row(name, None, tuple(node.rails))) for name, node in nodes.items()}
        self.job: Mapping[str, Any] = {
            **_describe_job(nodes, lateness, list(self.whole.values()), span),
            **(watched or {}),
        }

    def document(self, rows: Iterable[Row]) -> dict[str, Any]:
        """The document of an event `summary` with some rows."""
        found = [
            self.whole[row.node] if row.port is None else self._describe(row) for row in rows if row.node in self._nodes
        ]
        return {"end_ms": self._span.end_ms, "job": self.job, "rows": found}

    def _describe(self, row: Row) -> dict[str, Any]:
        found = _describe_row(row, self._nodes[row.node], self._lateness.get(row.node), self._span)
        return found | {"step_period_seconds": None} if self._silent else found


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
    found: dict[str, float | None] = dict.fromkeys(DIRECTIONS)
    if rates is not None:
        for way, values in zip(DIRECTIONS, rates, strict=True):
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
    return None if found is None else asdict(found)


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
