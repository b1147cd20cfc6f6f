"""Views for `ibpulse top`: of a ring that this process fills itself, and of a running daemon over its API."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ibpulse.aggregator import AggregatorOptions, read_sampler, summarize
from ibpulse.answers.ports import PortAnswer, PortsAnswer
from ibpulse.answers.summary import Summary, SummaryAnswer
from ibpulse.arrays import Singles
from ibpulse.client.connection import DaemonConnection, ask_events, ask_metrics, ask_ports
from ibpulse.client.windows import NodeArray
from ibpulse.errors import DaemonError
from ibpulse.events import Event, EventLog, PortHistory
from ibpulse.events.watch import KnownPort
from ibpulse.model import Port, PortState
from ibpulse.recordings.from_daemon import ask_jobs
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import RingPort, complete_tick, place_ports, read_rates, settled_tick, widest_stride
from ibpulse.terminal.view import (
    SUMMARY_EVERY_SECONDS,
    SUMMARY_WINDOW_SECONDS,
    TROUBLES,
    BinCache,
    RailView,
    SamplerView,
    View,
    bin_width,
    down_bins,
    mean_of,
)
from ibpulse.units import MILLISECOND_NS, SECOND_NS

PORTS_SECONDS = 2.0
# how far back events are shown, and how late they may come
EVENTS_NS, LATE_NS = 3600 * SECOND_NS, 60 * SECOND_NS
MAX_EVENTS = 1000
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
    """Fetches from a daemon: its windows every time, its ports and events every 2 s, its summary every 4 s."""

    def __init__(self, connection: DaemonConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._ports: PortsAnswer | None = None
        self._owners: Mapping[str, tuple[str, ...]] = {}
        self._ports_due = self._summary_due = 0.0
        self._summary: Summary | None = None
        self._sampler: SamplerView | None = None
        self._events = RecentEvents()

    def prepare(self) -> None:
        """Nothing changes but by `fetch`."""

    def fetch(self, points: int, wanted_ns: int) -> View:
        """The current view, with `points` bins per rail, each about `wanted_ns` wide.

        Raises:
            DaemonError: the daemon does not answer, or refuses.
        """
        try:
            return self._fetch(points, wanted_ns, self._clock())
        except DaemonError:
            # the next answer may come from another daemon, with other ports and another interval
            self._ports, self._summary_due, self._events = None, 0.0, RecentEvents()
            raise

    def _fetch(self, points: int, wanted_ns: int, now: float) -> View:
        if self._ports is None or now >= self._ports_due:
            self._ports, self._ports_due = ask_ports(self._connection), now + PORTS_SECONDS
            self._owners = ask_owners(self._connection)
            self._events.due = True
        if now >= self._summary_due:
            self._summary = self._ask_summary()
            self._sampler = _sampler(ask_metrics(self._connection, METRICS))
            self._summary_due = now + SUMMARY_EVERY_SECONDS
        return self._view(self._ports, points, wanted_ns)

    def _ask_summary(self) -> Summary:
        last = [("last", f"{SUMMARY_WINDOW_SECONDS}s")]
        return self._connection.ask(SummaryAnswer, "/api/v1/summary", last)

    def _view(self, ports: PortsAnswer, points: int, wanted_ns: int) -> View:
        bin_ms = bin_width(ports.interval_ns, wanted_ns) // MILLISECOND_NS
        mean_ms = bin_width(ports.interval_ns, MEAN_NS) // MILLISECOND_NS
        peaks = self._connection.ask_window(
            [("last", f"{points * bin_ms}ms"), ("resolution", f"{bin_ms}ms"), ("statistic", "max")]
        )
        means = self._connection.ask_window(
            [("last", MEAN_SPAN), ("resolution", f"{mean_ms}ms"), ("statistic", "mean")]
        )
        self._events.update(self._connection, peaks.newest_ns)
        shown = [port for port in ports.ports if port.rail and (port.source or port.state in TROUBLES)]
        history = self._events.history(shown)
        return View(
            place=self._connection.place,
            wall_ns=peaks.start_ns + peaks.values.shape[1] * peaks.step_ns,
            interval_ns=ports.interval_ns,
            bin_ns=bin_ms * MILLISECOND_NS,
            rails=tuple(_rail(port, peaks, means, history, self._owners.get(port.name, ())) for port in shown),
            others=len(ports.ports) - len(shown),
            summary=self._summary,
            sampler=self._sampler,
            events=_newest(self._events.events, peaks.newest_ns - EVENTS_NS),
            simulated=ports.simulated,
        )


def ask_owners(connection: DaemonConnection) -> Mapping[str, tuple[str, ...]]:
    """The ids of the running jobs on each port.

    Raises:
        DaemonError: the daemon does not answer, or refuses.
    """
    owners: dict[str, tuple[str, ...]] = {}
    for record in ask_jobs(connection):
        for port in record.job.ports if record.ended_ns is None else ():
            owners[str(port)] = (*owners.get(str(port), ()), record.job.claim.id)
    return owners


def _rail(
    port: PortAnswer, peaks: NodeArray, means: NodeArray, history: PortHistory, jobs: tuple[str, ...]
) -> RailView:
    transmit, receive = means.both(port.name)
    highest, state = peaks.both(port.name), history.now(port.name)
    end_ns = peaks.start_ns + highest.shape[1] * peaks.step_ns
    spans = history.spans(port.name, peaks.start_ns, end_ns)
    return RailView(
        name=port.name,
        active=port.active,
        state=port.state,
        rate_bytes_per_second=port.rate_bytes_per_second or (state.rate_bytes_per_second if state else None),
        peaks=highest,
        means=(mean_of(transmit), mean_of(receive)),
        down=down_bins(spans, peaks.start_ns, peaks.step_ns, highest),
        since_ns=port.since_ns,
        now_ns=end_ns,
        jobs=jobs,
    )


def _newest(events: Iterable[Event], from_ns: int) -> tuple[Event, ...]:
    recent = (event for event in events if event.time_ns >= from_ns and event.kind != "started")
    return tuple(sorted(recent, key=lambda event: event.time_ns)[-MAX_EVENTS:])


class RecentEvents:
    """The events of a daemon's last hour, asked for bit by bit."""

    def __init__(self) -> None:
        self.events: tuple[Event, ...] = ()
        self.due = True
        self._asked_ns = 0

    def update(self, connection: DaemonConnection, now_ns: int) -> None:
        """Ask for the events since the last time, if that is due.

        Raises:
            DaemonError: there is no answer, or it is not one of an ibpulse daemon.
        """
        if not self.due:
            return
        from_ns = max(now_ns - EVENTS_NS, self._asked_ns - LATE_NS, 0)
        found = ask_events(connection, from_ns).values
        self.due, self._asked_ns = False, now_ns
        older = [event for event in self.events if now_ns - EVENTS_NS <= event.time_ns < from_ns]
        self.events = (*older, *found)[-MAX_EVENTS:]

    def history(self, ports: Sequence[PortAnswer]) -> PortHistory:
        """The states of the ports; its ticks are wall times in ns."""
        history = PortHistory()
        for event in self.events:
            if (event.before, event.after) != (None, None):
                history.change(event.subject, event.time_ns, event.before, event.after)
        for port in ports:
            problem = port.state if port.state in TROUBLES else ""
            history.begin(port.name, PortState(port.state, active=port.active, problem=problem))
        return history


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


Means = tuple[float | None, float | None]


class RingWatcher:
    """Reads a ring. `known_ports` and `restarts` return the current ports and the sampler's restarts.

    It computes the same summary as a daemon, but keeps no totals, since it is never scraped.
    """

    def __init__(
        self,
        reader: RingReader,
        known_ports: Callable[[], Sequence[KnownPort]],
        restarts: Callable[[], int],
        options: AggregatorOptions,
        place: str,
        events: EventLog,
        simulated: bool = False,
    ) -> None:
        self._reader = reader
        self._known_ports = known_ports
        self._restarts = restarts
        self._options = options
        self._place = place
        self._log = events
        self._simulated = simulated
        self._copied = -1
        self._bins = BinCache()
        self._summed_second = 0
        self._summary: Summary | None = None
        self.prepare()

    def prepare(self) -> None:
        """Copy the ports and the event log, which change in the thread of the event loop.

        Raises:
            IbpulseError: there are no more samples.
        """
        self._known = self._known_ports()
        if self._copied != self._log.added:
            self._copied = self._log.added
            self._events, self._history = self._log.events(), copy.deepcopy(self._log.history)

    def fetch(self, points: int, wanted_ns: int) -> View:
        """The current view, with `points` bins per rail, each about `wanted_ns` wide."""
        known, interval_ns = self._known, self._reader.interval_ns
        ports = [each.port for each in known]
        placed = place_ports(self._reader, ports, self._reader.ring.slots())
        newest = complete_tick(self._reader, widest_stride(port.stride for port in placed))
        self._summarize(ports, placed)
        width = bin_width(interval_ns, wanted_ns) // interval_ns
        # bins begin at multiples of their width, which keeps bins constant once drawn
        end = (newest + 1) // width
        rails = [each for each in known if each.port.rail and (each.port.source or each.word in TROUBLES)]
        means, peaks = self._rates(placed, width, end, points)
        wall_ns = int(self._reader.wall_ns(np.array([end * width]))[0])
        nothing = np.full((2, points), np.nan, dtype=np.float32)
        return View(
            place=self._place,
            wall_ns=wall_ns,
            interval_ns=interval_ns,
            bin_ns=width * interval_ns,
            rails=tuple(
                self._rail(
                    each,
                    peaks.get(str(each.port.id), nothing),
                    means.get(str(each.port.id), (None, None)),
                    range(end * width - points * width, end * width, width),
                    wall_ns,
                )
                for each in rails
            ),
            others=len(known) - len(rails),
            summary=self._summary,
            sampler=self._sampler(placed),
            events=_newest(self._events, wall_ns - EVENTS_NS),
            simulated=self._simulated,
        )

    def _rail(self, known: KnownPort, peaks: Singles, means: Means, bins: range, now_ns: int) -> RailView:
        port, name = known.port, str(known.port.id)
        spans = self._history.spans(name, bins.start, bins.stop)
        last = known.state.rate_bytes_per_second if known.state else None
        return RailView(
            name=name,
            active=port.active,
            state=known.word,
            rate_bytes_per_second=port.rate_bytes_per_second or last,
            peaks=peaks,
            means=means,
            down=down_bins(spans, bins.start, bins.step, peaks),
            since_ns=known.since_ns,
            now_ns=now_ns,
        )

    def _summarize(self, ports: Sequence[Port], placed: list[RingPort]) -> None:
        ticks = SECOND_NS // self._reader.interval_ns
        second = settled_tick(self._reader, widest_stride(port.stride for port in placed)) // ticks
        if second - self._summed_second < SUMMARY_EVERY_SECONDS:
            return
        summary = summarize(self._reader, ports, self._history, self._options, SUMMARY_WINDOW_SECONDS, None)
        if self._summary or any(port.observed_seconds for port in summary.ports):
            self._summary, self._summed_second = summary, second

    def _rates(
        self, ports: list[RingPort], width: int, end: int, points: int
    ) -> tuple[dict[str, Means], Mapping[str, Singles]]:
        """By port: the means of its last second, and the peaks of its bins before `end`, each of `width` samples."""
        second = SECOND_NS // self._reader.interval_ns
        slots, strides = [port.slot for port in ports], [port.stride for port in ports]
        unsure = -(-(second + widest_stride(strides)) // width)
        bins = self._bins.missing(width, [str(port.port.id) for port in ports], end, points, unsure)
        count = max(bins * width, second)
        means, peaks = {}, {}
        lines = [self._history.line_rate(str(port.port.id), port.port.rate_bytes_per_second) for port in ports]
        found = read_rates(self._reader, slots, strides, end * width - count, end * width - 1, lines)
        for port, values, highest in zip(ports, found.bytes_per_second, found.peaks, strict=True):
            name = str(port.port.id)
            means[name] = (mean_of(values[0, -second:]), mean_of(values[1, -second:]))
            binned = highest[:, count - bins * width :].astype(np.float32).reshape(2, bins, width)
            peaks[name] = np.fmax.reduce(binned, axis=2)
        return means, self._bins.add(peaks, end, points)

    def _sampler(self, placed: Sequence[RingPort]) -> SamplerView:
        ring = self._reader.ring
        sampler = read_sampler(ring)
        count = sampler.lateness.cumulative[-1]
        return SamplerView(
            ticks=sampler.ticks,
            missed=sampler.missed_ticks,
            read_errors=sum(ring.slot_word(port.slot, at.S_ERRORS) for port in placed),
            restarts=self._restarts(),
            lateness_seconds=sampler.lateness.total / count if count else None,
        )
