"""The table of all exported metrics, in the order of `/metrics` and `docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.metrics import error_counters, exporter, job_rows, node, ports
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import Metric

_UP_TO_COUNTERS = (
    *ports.ROWS,
    *node.ROWS,
    *ports.TRAFFIC_ROWS,
    *node.TRAFFIC_ROWS,
    *job_rows.ROWS,
    *error_counters.DIAGNOSTIC_COUNTERS,
)
_AFTER_COUNTERS = (
    *error_counters.STATE_ROWS,
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
    yield from error_counters.other_rows(snapshot)
    yield from _AFTER_COUNTERS
