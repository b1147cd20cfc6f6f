"""The client library as the oracle: a collector that gives it the same numbers, family by family."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.metrics.page import rows_of
from ibpulse.core.metrics.row import Histogram, read_families

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class SnapshotCollector(Collector):
    """The families of a snapshot as those of the client library."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for row, samples in read_families(rows_of(self._snapshot), self._snapshot):
            if row.type == "info":
                info = InfoMetricFamily(row.family, row.help)
                for labels, _ in samples:
                    values = zip(row.labels, labels, strict=True)
                    # an empty label is none
                    info.add_metric(
                        [], {name: text for name, text in values if text or name not in ("name", "namespace")}
                    )
                yield info
                continue
            family = FAMILIES[row.type](row.name, row.help, labels=row.labels, unit=row.unit)
            for labels, value in samples:
                if isinstance(value, Histogram):
                    limits = [*(repr(float(bound)) for bound in value.bounds), "+Inf"]
                    family.add_metric(labels, list(zip(limits, value.cumulative, strict=True)), value.total)
                else:
                    family.add_metric(labels, value)
            yield family
