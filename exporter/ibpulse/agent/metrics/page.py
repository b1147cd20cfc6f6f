"""The `/metrics` page of a node: all its rows in order, then the families of the process and of the web server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.metrics import exporter, node, ports
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import Metric
from ibpulse.core.metrics.text import render_page
from ibpulse.core.metrics.web import WebCounts

_UP_TO_COUNTERS = (
    *ports.ROWS,
    *node.ROWS,
    *ports.TRAFFIC_ROWS,
    *node.TRAFFIC_ROWS,
    *node.JOB_ROWS,
    *exporter.CONCLUSION_ROWS,
    *ports.DIAGNOSTIC_COUNTERS,
)
_AFTER_COUNTERS = (
    *ports.STATE_ROWS,
    *exporter.DEVICE_ROWS,
    *exporter.SAMPLER_ROWS,
    *exporter.EXPORTER_ROWS,
    *exporter.CAPTURE_ROWS,
)
SNAPSHOT_ROWS = (*_UP_TO_COUNTERS, *_AFTER_COUNTERS)
TABLE: tuple[Metric, ...] = (*SNAPSHOT_ROWS, *web.ROWS)


def rows_of(snapshot: Snapshot) -> Iterator[Metric]:
    """The rows for a snapshot: those of the table, and those of counters that only its ports have."""
    yield from _UP_TO_COUNTERS
    yield from ports.other_rows(snapshot)
    yield from _AFTER_COUNTERS


def render(
    snapshot: Snapshot | None,
    registry: CollectorRegistry,
    accept: str | None = None,
    names: Sequence[str] = (),
    counts: WebCounts | None = None,
) -> tuple[bytes, str]:
    """Body and content type of `/metrics`; the parameters are those of `render_page`.

    Without a snapshot, all families that come from it are omitted.
    """
    rows = () if snapshot is None else rows_of(snapshot)
    return render_page(rows, snapshot, registry, counts, accept, names)
