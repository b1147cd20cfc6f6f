"""The view of a ring that this process fills itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ibpulse.agent.aggregator import AggregatorOptions, read_sampler, summarize
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import Summary
from ibpulse.core.arrays import Singles
from ibpulse.core.events import EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.limits import LimitOptions, describe_signs, read_limits
from ibpulse.core.model import Port
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort, complete_tick, place_ports, read_rates, settled_tick, widest_stride
from ibpulse.workbench.top import view

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
        self._bins = view.BinCache()
        self._summed_second = 0
        self._summary: Summary | None = None
        self._limits: tuple[tuple[str, float], ...] = ()
        self.prepare()

    def prepare(self) -> None:
        """Copy the ports and the event log, which change in the thread of the event loop."""
        self._known = self._known_ports()
        if self._copied != self._log.added:
            self._copied = self._log.added
            self._events, self._history = self._log.events(), copy.deepcopy(self._log.history)

    def fetch(self, points: int, wanted_ns: int) -> view.View:
        """The current view, with `points` bins per rail, each about `wanted_ns` wide."""
        known, interval_ns = self._known, self._reader.interval_ns
        ports = [each.port for each in known]
        placed = place_ports(self._reader, ports, self._reader.ring.slots())
        newest = complete_tick(self._reader, widest_stride(port.stride for port in placed))
        self._summarize(ports, placed)
        width = view.bin_width(interval_ns, wanted_ns) // interval_ns
        # bins begin at multiples of their width, which keeps bins constant once drawn
        end = (newest + 1) // width
        rails = [each for each in known if each.port.rail and (each.port.source or each.word in view.TROUBLES)]
        means, peaks = self._rates(placed, width, end, points)
        wall_ns = self._reader.wall_of(end * width)
        nothing = np.full((2, points), np.nan, dtype=np.float32)
        return view.View(
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
            events=view.newest_events(self._events, wall_ns),
            limits=self._limits,
            simulated=self._simulated,
        )

    def _rail(self, known: KnownPort, peaks: Singles, means: Means, bins: range, now_ns: int) -> view.RailView:
        port, name = known.port, str(known.port.id)
        spans = self._history.spans(name, bins.start, bins.stop)
        last = known.state.rate_bytes_per_second if known.state else None
        return view.RailView(
            name=name,
            active=port.active,
            state=known.word,
            rate_bytes_per_second=port.rate_bytes_per_second or last,
            peaks=peaks,
            means=means,
            down=view.down_bins(spans, bins.start, bins.step, peaks),
            since_ns=known.since_ns,
            now_ns=now_ns,
        )

    def _summarize(self, ports: Sequence[Port], placed: list[RingPort]) -> None:
        ticks = SECOND_NS // self._reader.interval_ns
        second = settled_tick(self._reader, widest_stride(port.stride for port in placed)) // ticks
        if second - self._summed_second < view.SUMMARY_EVERY_SECONDS:
            return
        summary = summarize(self._reader, ports, self._history, self._options, view.SUMMARY_WINDOW_SECONDS, None)
        if self._summary or any(port.observed_seconds for port in summary.ports):
            self._summary, self._summed_second = summary, second
            self._limits = self._find_limits(
                placed, range((second - view.SUMMARY_WINDOW_SECONDS) * ticks + 1, second * ticks + 1)
            )

    def _find_limits(self, placed: Sequence[RingPort], ticks: range) -> tuple[tuple[str, float], ...]:
        rails = [port for port in placed if port.port.rail]
        if not rails or ticks.start < 1:
            return ()
        options = LimitOptions(self._options.active_bytes_per_second, self._options.xmit_wait_tick_bytes)
        found = describe_signs(read_limits(self._reader, rails, self._history, ticks, options))
        return tuple((limit.sign, limit.share) for limit in found)

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
            means[name] = (view.mean_of(values[0, -second:]), view.mean_of(values[1, -second:]))
            binned = highest[:, count - bins * width :].astype(np.float32).reshape(2, bins, width)
            peaks[name] = np.fmax.reduce(binned, axis=2)
        return means, self._bins.add(peaks, end, points)

    def _sampler(self, placed: Sequence[RingPort]) -> view.SamplerView:
        ring = self._reader.ring
        sampler = read_sampler(ring)
        count = sampler.lateness.cumulative[-1]
        return view.SamplerView(
            ticks=sampler.ticks,
            missed=sampler.missed_ticks,
            read_errors=sum(ring.slot_word(port.slot, at.S_ERRORS) for port in placed),
            restarts=self._restarts(),
            lateness_seconds=sampler.lateness.total / count if count else None,
        )
