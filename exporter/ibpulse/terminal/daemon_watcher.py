"""Views of a running daemon, over its API. It must not know the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from pydantic import TypeAdapter

from ibpulse.aggregator.summary import Summary
from ibpulse.client import DaemonConnection, RemotePorts, ask_metrics, ask_ports, ask_window, reading
from ibpulse.errors import DaemonError
from ibpulse.terminal.view import (
    SUMMARY_EVERY_SECONDS,
    SUMMARY_WINDOW_SECONDS,
    RailView,
    SamplerView,
    View,
    bin_width,
    mean_of,
)
from ibpulse.units import MILLISECOND_NS

PORTS_SECONDS = 5.0
MEAN_SPAN = "1s"
# one second of samples of 1 ms would be a long answer
MEAN_NS = 100_000_000

_TICKS = "ibpulse_sampler_ticks_total"
_MISSED = "ibpulse_sampler_missed_ticks_total"
_ERRORS = "ibpulse_sampler_read_errors_total"
_RESTARTS = "ibpulse_sampler_restarts_total"
_LATE_SUM = "ibpulse_sampler_lateness_seconds_sum"
_LATE_COUNT = "ibpulse_sampler_lateness_seconds_count"
_SUMMARY = TypeAdapter(Summary)
METRICS = (_TICKS, _MISSED, _ERRORS, _RESTARTS, _LATE_SUM, _LATE_COUNT)


class DaemonWatcher:
    """Looks at a daemon: its windows at every look, its summary every other second, its ports now and then."""

    def __init__(self, connection: DaemonConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._ports: RemotePorts | None = None
        self._ports_due = self._summary_due = 0.0
        self._summary: Summary | None = None
        self._sampler: SamplerView | None = None

    def look(self, points: int, wanted_ns: int) -> View:
        """The view now, with so many bins of each rail, each about so wide.

        Raises:
            DaemonError: the daemon does not answer, or refuses.
        """
        try:
            return self._look(points, wanted_ns, self._clock())
        except DaemonError:
            # whoever answers next may be another daemon, with other ports and another interval
            self._ports, self._summary_due = None, 0.0
            raise

    def _look(self, points: int, wanted_ns: int, now: float) -> View:
        if self._ports is None or now >= self._ports_due:
            self._ports, self._ports_due = ask_ports(self._connection), now + PORTS_SECONDS
        if now >= self._summary_due:
            self._summary = self._ask_summary()
            self._sampler = _sampler(ask_metrics(self._connection, METRICS))
            self._summary_due = now + SUMMARY_EVERY_SECONDS
        return self._view(self._ports, points, wanted_ns)

    def _ask_summary(self) -> Summary:
        answer = self._connection.get("/api/v1/summary", [("window", f"{SUMMARY_WINDOW_SECONDS}s")])
        with reading(self._connection):
            return _SUMMARY.validate_json(answer.body)

    def _view(self, ports: RemotePorts, points: int, wanted_ns: int) -> View:
        bin_ms = bin_width(ports.interval_ns, wanted_ns) // MILLISECOND_NS
        mean_ms = bin_width(ports.interval_ns, MEAN_NS) // MILLISECOND_NS
        peaks = ask_window(
            self._connection, [("last", f"{points * bin_ms}ms"), ("resolution", f"{bin_ms}ms"), ("statistic", "max")]
        )
        means = ask_window(
            self._connection, [("last", MEAN_SPAN), ("resolution", f"{mean_ms}ms"), ("statistic", "mean")]
        )
        counted = [port for port in ports.ports if port.source]
        rails = tuple(
            RailView(
                name=port.name,
                active=port.active,
                state=port.state,
                rate_bytes_per_second=port.rate_bytes_per_second,
                peaks=peaks.both(port.name),
                means=(mean_of(means.both(port.name)[0]), mean_of(means.both(port.name)[1])),
            )
            for port in counted
            if port.rail
        )
        return View(
            place=self._connection.place,
            wall_ns=peaks.start_ns + peaks.values.shape[1] * peaks.step_ns,
            interval_ns=ports.interval_ns,
            bin_ns=bin_ms * MILLISECOND_NS,
            rails=rails,
            others=len(ports.ports) - len(rails),
            summary=self._summary,
            sampler=self._sampler,
        )


def _sampler(found: Mapping[str, float]) -> SamplerView | None:
    if _TICKS not in found:
        return None
    count = found.get(_LATE_COUNT, 0.0)
    return SamplerView(
        ticks=found[_TICKS],
        missed=found.get(_MISSED, 0.0),
        read_errors=found.get(_ERRORS, 0.0),
        restarts=found.get(_RESTARTS, 0.0),
        lateness_seconds=found.get(_LATE_SUM, np.nan) / count if count else None,
    )
