"""The view of a running daemon, over its API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ibpulse.base.errors import DaemonError
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.answers.node import LimitsAnswer, PortAnswer, PortsAnswer
from ibpulse.core.answers.summary import Summary, SummaryAnswer
from ibpulse.core.client.connection import DaemonConnection, ask_events, ask_metrics, ask_ports
from ibpulse.core.client.transport import NodeArray
from ibpulse.core.events import Event, PortHistory
from ibpulse.core.model import PortState
from ibpulse.workbench.top import view

PORTS_SECONDS = 2.0
# events may come this late
LATE_NS = 60 * SECOND_NS
MEAN_SPAN = "1s"
# a second of 1 ms samples would make a long response
MEAN_NS = 100_000_000

_TICKS = "ibpulse_sampler_ticks_total"
_MISSED = "ibpulse_sampler_missed_ticks_total"
_ERRORS = "ibpulse_sampler_read_errors_total"
_RESTARTS = "ibpulse_sampler_restarts_total"
_LATE_SUM = "ibpulse_sampler_lateness_seconds_sum"
_LATE_COUNT = "ibpulse_sampler_lateness_seconds_count"
METRICS = (_TICKS, _MISSED, _ERRORS, _RESTARTS, _LATE_SUM, _LATE_COUNT)


class DaemonWatcher:
    """Fetches from a daemon: its windows every time, its ports, events and summary every 2 s."""

    def __init__(self, connection: DaemonConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._ports: PortsAnswer | None = None
        self._owners: Mapping[str, tuple[str, ...]] = {}
        self._ports_due = self._summary_due = 0.0
        self._summary: Summary | None = None
        self._limits: tuple[tuple[str, float], ...] = ()
        self._sampler: view.SamplerView | None = None
        self._events = RecentEvents()

    @classmethod
    def of(cls, url: str) -> DaemonWatcher:
        """A watcher of the daemon at a URL."""
        return cls(DaemonConnection(url))

    def prepare(self) -> None:
        """Nothing changes but by `fetch`."""

    def fetch(self, points: int, wanted_ns: int) -> view.View:
        """The current view, with `points` bins per rail, each about `wanted_ns` wide."""
        try:
            return self._fetch(points, wanted_ns, self._clock())
        except DaemonError:
            # the next answer may come from another daemon, with other ports and another interval
            self._ports, self._summary_due, self._events = None, 0.0, RecentEvents()
            raise

    def _fetch(self, points: int, wanted_ns: int, now: float) -> view.View:
        if self._ports is None or now >= self._ports_due:
            self._ports, self._ports_due = ask_ports(self._connection), now + PORTS_SECONDS
            self._owners = ask_owners(self._connection)
            self._events.due = True
        if now >= self._summary_due:
            last = [("last", f"{view.SUMMARY_WINDOW_SECONDS}s")]
            self._summary = self._connection.ask(SummaryAnswer, "/api/v1/summary", last)
            limits = self._connection.ask(LimitsAnswer, "/api/v1/limits", last).limits
            self._limits = tuple((limit.sign, limit.share) for limit in limits)
            self._sampler = _sampler(ask_metrics(self._connection, METRICS))
            self._summary_due = now + view.SUMMARY_EVERY_SECONDS
        return self._view(self._ports, points, wanted_ns)

    def _view(self, ports: PortsAnswer, points: int, wanted_ns: int) -> view.View:
        bin_ms = view.bin_width(ports.interval_ns, wanted_ns) // MILLISECOND_NS
        mean_ms = view.bin_width(ports.interval_ns, MEAN_NS) // MILLISECOND_NS
        peaks = self._connection.ask_window(
            [("last", f"{points * bin_ms}ms"), ("resolution", f"{bin_ms}ms"), ("statistic", "max")]
        )
        means = self._connection.ask_window(
            [("last", MEAN_SPAN), ("resolution", f"{mean_ms}ms"), ("statistic", "mean")]
        )
        self._events.update(self._connection, peaks.newest_ns)
        shown = [port for port in ports.ports if port.rail and (port.source or port.state in view.TROUBLES)]
        history = self._events.history(shown)
        return view.View(
            place=self._connection.place,
            wall_ns=peaks.start_ns + peaks.values.shape[1] * peaks.step_ns,
            interval_ns=ports.interval_ns,
            bin_ns=bin_ms * MILLISECOND_NS,
            rails=tuple(_rail(port, peaks, means, history, self._owners.get(port.name, ())) for port in shown),
            others=len(ports.ports) - len(shown),
            summary=self._summary,
            sampler=self._sampler,
            events=view.newest_events(self._events.events, peaks.newest_ns),
            limits=self._limits,
            simulated=ports.simulated,
        )


def ask_owners(connection: DaemonConnection) -> Mapping[str, tuple[str, ...]]:
    """The ids of the running jobs on each port."""
    owners: dict[str, tuple[str, ...]] = {}
    for job in connection.ask(JobsAnswer, "/api/v1/jobs").jobs:
        for port in job.ports if job.ended_ms is None else ():
            owners[port] = (*owners.get(port, ()), job.job_id)
    return owners


def _rail(
    port: PortAnswer, peaks: NodeArray, means: NodeArray, history: PortHistory, jobs: tuple[str, ...]
) -> view.RailView:
    transmit, receive = means.both(port.name)
    highest, state = peaks.both(port.name), history.now(port.name)
    end_ns = peaks.start_ns + highest.shape[1] * peaks.step_ns
    spans = history.spans(port.name, peaks.start_ns, end_ns)
    return view.RailView(
        name=port.name,
        active=port.active,
        state=port.state,
        rate_bytes_per_second=port.rate_bytes_per_second or (state.rate_bytes_per_second if state else None),
        peaks=highest,
        means=(view.mean_of(transmit), view.mean_of(receive)),
        down=view.down_bins(spans, peaks.start_ns, peaks.step_ns, highest),
        since_ns=port.since_ns,
        now_ns=end_ns,
        jobs=jobs,
    )


class RecentEvents:
    """The events of a daemon's last hour, asked for bit by bit."""

    def __init__(self) -> None:
        self.events: tuple[Event, ...] = ()
        self.due = True
        self._asked_ns = 0

    def update(self, connection: DaemonConnection, now_ns: int) -> None:
        """Ask for the events since the last time, if that is due."""
        if not self.due:
            return
        from_ns = max(now_ns - view.EVENTS_NS, self._asked_ns - LATE_NS, 0)
        found = ask_events(connection, from_ns).values
        self.due, self._asked_ns = False, now_ns
        older = [event for event in self.events if now_ns - view.EVENTS_NS <= event.time_ns < from_ns]
        self.events = (*older, *found)[-view.MAX_EVENTS :]

    def history(self, ports: Sequence[PortAnswer]) -> PortHistory:
        """The states of the ports; its ticks are wall times in ns."""
        history = PortHistory()
        for event in self.events:
            if (event.before, event.after) != (None, None):
                history.change(event.subject, event.time_ns, event.before, event.after)
        for port in ports:
            problem = port.state if port.state in view.TROUBLES else ""
            history.begin(port.name, PortState(port.state, active=port.active, problem=problem))
        return history


def _sampler(found: Mapping[str, float]) -> view.SamplerView | None:
    if _TICKS not in found:
        return None
    count = found.get(_LATE_COUNT, 0.0)
    return view.SamplerView(
        ticks=found[_TICKS],
        missed=found.get(_MISSED, 0.0),
        read_errors=found.get(_ERRORS, 0.0),
        restarts=found.get(_RESTARTS, 0.0),
        lateness_seconds=found.get(_LATE_SUM, np.nan) / count if count else None,
    )
