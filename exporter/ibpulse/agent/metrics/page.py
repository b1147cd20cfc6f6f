"""The `/metrics` page of a node: the families of its snapshot, of the process and of the web server."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from ibpulse.agent.aggregator.snapshot import Snapshot
from ibpulse.agent.metrics.metric_table import rows_of
from ibpulse.core.metrics.text import render_page
from ibpulse.core.metrics.web import WebCounts


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
