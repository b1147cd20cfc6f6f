"""The metrics of the web server and of internal errors, which are read at each scrape, and the counts behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ibpulse.base.internal_errors import GATEWAY_PARTS, PARTS, InternalErrors
from ibpulse.core.metrics.row import CountAndSum, Subject, labelled, single


@dataclass(slots=True)
class WebCounts:
    """Counts kept by the web server about itself and read at each scrape.

    Paths are the templates of our routes (`other` for everything else) and the codes are our own, so clients cannot
    create series: each of the 15 routes and `other` has two series for its duration and one for each status that it
    returned, 32 to 112 in all. A node that is scraped and watched has about 25.
    `config_reloaded` is None without a web configuration file. `internal_errors` counts the exceptions of each part of
    the process: they are not in the snapshot, because the aggregation that makes it may be the part that fails.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    stream_viewers: int = 0
    stream_dropped_events: int = 0
    config_reloaded: bool | None = None
    internal_errors: InternalErrors | None = None

    def observe(self, path: str, code: int, seconds: float) -> None:
        """Count one finished request."""
        self.requests[path, code] += 1
        self.seconds[path] = self.seconds.get(path, 0.0) + seconds


def _durations(counts: WebCounts) -> list[tuple[str, CountAndSum]]:
    finished: Counter[str] = Counter()
    for (path, _), count in counts.requests.items():
        finished[path] += count
    return [(path, CountAndSum(float(count), counts.seconds[path])) for path, count in finished.items()]


SERVER: Subject[WebCounts, WebCounts] = single(lambda counts: counts)
REQUESTS: Subject[WebCounts, int] = Subject(
    ("code", "path"), lambda counts: [((str(code), path), count) for (path, code), count in counts.requests.items()]
)
DURATION = labelled("path", _durations)
PART: Subject[WebCounts, int] = labelled(
    "part", lambda counts: counts.internal_errors.counts().items() if counts.internal_errors else ()
)

# counts are exported as floats (`3.0`)
ROWS = (
    PART.counter(
        "ibpulse_internal_errors_total",
        "Failed attempts of a part of the exporter, which are repeated; the log and the page at / give the reason. "
        f"Parts: {', '.join(PARTS)}; of a gateway: {', '.join(GATEWAY_PARTS)}.",
        float,
    ),
    SERVER.gauge(
        "ibpulse_web_config_last_reload_successful",
        "1 if the current web configuration and certificate files are in effect, 0 if the last reload failed.",
        lambda counts: None if counts.config_reloaded is None else float(counts.config_reloaded),
    ),
    SERVER.gauge(
        "ibpulse_http_stream_viewers",
        "Viewers connected to the live stream.",
        lambda counts: float(counts.stream_viewers),
    ),
    SERVER.counter(
        "ibpulse_http_stream_dropped_events_total",
        "Events of the live stream dropped for viewers that read too slowly.",
        lambda counts: float(counts.stream_dropped_events),
    ),
    REQUESTS.counter("ibpulse_http_requests_total", "HTTP requests completed, by route and status.", float),
    DURATION.summary(
        "ibpulse_http_request_duration_seconds",
        "Time from the request header to the last byte of the response, by route.",
        lambda duration: duration,
    ),
)
