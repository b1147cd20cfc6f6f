"""The metrics of the web server, and the counts that it keeps for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ibpulse.metrics.row import CountAndSum, Labels, Subject, single


@dataclass(slots=True)
class WebCounts:
    """What the web server counts about itself. Its parts write here; the rows read whenever a page is asked for.

    Paths are the templates of our routes, `other` for none, and the codes are our own, so the number of series is
    bounded whatever clients send: each of the 14 routes and `other` has two series of its duration and one for every
    status that it answered with, 30 to 105 in all. A node that is scraped and watched has about 25.
    `config_reloaded` is None without a web configuration file.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    stream_viewers: int = 0
    stream_dropped_events: int = 0
    config_reloaded: bool | None = None

    def observe(self, path: str, code: int, seconds: float) -> None:
        """Count one finished request."""
        self.requests[path, code] += 1
        self.seconds[path] = self.seconds.get(path, 0.0) + seconds


def _requests(counts: WebCounts) -> list[tuple[Labels, int]]:
    return [((str(code), path), count) for (path, code), count in counts.requests.items()]


def _durations(counts: WebCounts) -> list[tuple[Labels, CountAndSum]]:
    finished: Counter[str] = Counter()
    for (path, _), count in counts.requests.items():
        finished[path] += count
    return [((path,), CountAndSum(float(count), counts.seconds[path])) for path, count in finished.items()]


SERVER: Subject[WebCounts, WebCounts] = single(lambda counts: counts)
REQUESTS = Subject(("code", "path"), _requests)
DURATION = Subject(("path",), _durations)

# counts are shown as floats (`3.0`), as they always were
ROWS = (
    SERVER.gauge(
        "ibpulse_web_config_last_reload_successful",
        "1 if the web configuration and its certificates are in force as the files have them, else 0.",
        lambda counts: None if counts.config_reloaded is None else float(counts.config_reloaded),
    ),
    SERVER.gauge(
        "ibpulse_http_stream_viewers",
        "Viewers of the live stream.",
        lambda counts: float(counts.stream_viewers),
    ),
    SERVER.counter(
        "ibpulse_http_stream_dropped_events_total",
        "Events that viewers of the live stream did not get because they took them too slowly.",
        lambda counts: float(counts.stream_dropped_events),
    ),
    REQUESTS.counter("ibpulse_http_requests_total", "HTTP requests finished, by route and status.", float),
    DURATION.summary(
        "ibpulse_http_request_duration_seconds",
        "Time from a request's head to its last byte, by route.",
        lambda duration: duration,
        "seconds",
    ),
)
