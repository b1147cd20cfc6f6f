"""The client library as the oracle: a collector that gives it the same numbers, family by family."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
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


class ServerCollector(Collector):
    """The families of `snapshots.SERVER`, spelled out independently: name, text, labels and values."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        failed = CounterMetricFamily(
            "ibpulse_internal_errors",
            "Failed attempts of a part of the exporter, which are repeated; the log and the page at / give the reason. "
            "Parts: aggregation, captures, counters, events, fabric, jobs, plan, web; "
            "of a gateway: discovery, nodes, push, stalls, web.",
            labels=["part"],
        )
        for number, part in enumerate(
            ("aggregation", "captures", "counters", "events", "fabric", "jobs", "plan", "web")
        ):
            failed.add_metric([part], number)
        yield failed
        reloaded = (
            "1 if the current web configuration and certificate files are in effect, 0 if the last reload failed."
        )
        yield GaugeMetricFamily("ibpulse_web_config_last_reload_successful", reloaded, 1)
        yield GaugeMetricFamily("ibpulse_http_stream_viewers", "Viewers connected to the live stream.", 2)
        slow = "Events of the live stream dropped for viewers that read too slowly."
        yield CounterMetricFamily("ibpulse_http_stream_dropped_events", slow, 17)
        requests = CounterMetricFamily(
            "ibpulse_http_requests", "HTTP requests completed, by route and status.", labels=["path", "code"]
        )
        for path, code, count in (("/metrics", "200", 2), ("/metrics", "405", 1), ("other", "404", 1)):
            requests.add_metric([path, code], count)
        yield requests
        duration = SummaryMetricFamily(
            "ibpulse_http_request_duration_seconds",
            "Time from the request header to the last byte of the response, by route.",
            labels=["path"],
            unit="seconds",
        )
        duration.add_metric(["/metrics"], 3, 0.0015 + 0.0025 + 0.0001)
        duration.add_metric(["other"], 1, 0.25)
        yield duration
