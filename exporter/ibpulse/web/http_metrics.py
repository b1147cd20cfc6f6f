"""The server's own metrics: requests and their duration by route. Fewer than 150 series, whatever clients send.

There are 14 routes and `other`. Each has two series of its duration and one for every status that it has answered with:
30 and at most 105. A node that is scraped and looked at has about 25; asking every route rightly and wrongly made 62.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

REQUESTS = "ibpulse_http_requests"
DURATION = "ibpulse_http_request_duration_seconds"
OTHER = "other"


class HttpMetrics(Collector):
    """Counts finished requests. Routes are templates and codes our own, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, float] = {}
        if registry is not None:
            registry.register(self)

    def observe(self, path: str, code: int, seconds: float) -> None:
        """Count one request of a route template (`other` for none) that ended with `code` after `seconds`."""
        self._requests[path, code] = self._requests.get((path, code), 0) + 1
        self._seconds[path] = self._seconds.get(path, 0.0) + seconds

    def describe(self) -> Iterator[CounterMetricFamily | SummaryMetricFamily]:
        """The families without samples, for the registry's index of names."""
        yield from (_requests_family(), _duration_family())

    def collect(self) -> Iterator[CounterMetricFamily | SummaryMetricFamily]:
        """Both families."""
        requests, duration = _requests_family(), _duration_family()
        counts: dict[str, int] = {}
        for (path, code), count in list(self._requests.items()):
            requests.add_metric([path, str(code)], count)
            counts[path] = counts.get(path, 0) + count
        for path, count in counts.items():
            duration.add_metric([path], count, self._seconds[path])
        yield requests
        yield duration


def _requests_family() -> CounterMetricFamily:
    return CounterMetricFamily(REQUESTS, "HTTP requests finished, by route and status.", labels=["path", "code"])


def _duration_family() -> SummaryMetricFamily:
    return SummaryMetricFamily(DURATION, "Time from a request's head to its last byte, by route.", labels=["path"])
