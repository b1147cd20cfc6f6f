"""Views of a ring that this process fills itself. It must not know the terminal, nor who samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ibpulse.aggregator.last_minute import Resolutions
from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.snapshot_ports import read_sampler
from ibpulse.aggregator.summary import Summary, summarize
from ibpulse.arrays import Singles
from ibpulse.model import Fabric
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import RingPort, place_ports, read_rates, settled_tick, widest_stride
from ibpulse.terminal.view import (
    SUMMARY_EVERY_SECONDS,
    SUMMARY_WINDOW_SECONDS,
    BinCache,
    RailView,
    SamplerView,
    View,
    bin_width,
    mean_of,
)
from ibpulse.units import SECOND_NS

Means = tuple[float | None, float | None]


class RingWatcher:
    """Looks at a ring. `fabric` and `restarts` say how the ports and the sampler are now.

    It asks for the same summary as a daemon, but keeps no totals: nobody scrapes it.
    """

    def __init__(
        self,
        reader: RingReader,
        fabric: Callable[[], Fabric],
        restarts: Callable[[], int],
        options: AggregatorOptions,
        place: str,
    ) -> None:
        self._reader = reader
        self._fabric = fabric
        self._restarts = restarts
        self._options = options
        self._place = place
        self._resolutions = Resolutions(reader, options.active_bytes_per_second)
        self._bins = BinCache()
        self._summed_second = 0
        self._summary: Summary | None = None

    def look(self, points: int, wanted_ns: int) -> View:
        """The view now, with so many bins of each rail, each about so wide."""
        fabric, interval_ns, newest = self._fabric(), self._reader.interval_ns, self._reader.newest_tick()
        placed = place_ports(self._reader, fabric.ports, self._reader.ring.slots())
        self._summarize(fabric, placed)
        width = bin_width(interval_ns, wanted_ns) // interval_ns
        # bins begin at multiples of their width, so that what was drawn once does not change
        end = (newest + 1) // width
        rails = [port for port in fabric.ports if port.source is not None and port.rail]
        means, peaks = self._rates(placed, width, end, points)
        nothing = np.full((2, points), np.nan, dtype=np.float32)
        return View(
            place=self._place,
            wall_ns=int(self._reader.wall_ns(np.array([end * width]))[0]),
            interval_ns=interval_ns,
            bin_ns=width * interval_ns,
            rails=tuple(
                RailView(
                    name=str(port.id),
                    active=port.active,
                    state=port.state,
                    rate_bytes_per_second=port.rate_bytes_per_second,
                    peaks=peaks.get(str(port.id), nothing),
                    means=means.get(str(port.id), (None, None)),
                )
                for port in rails
            ),
            others=len(fabric.ports) - len(rails),
            summary=self._summary,
            sampler=self._sampler(placed),
        )

    def _summarize(self, fabric: Fabric, placed: list[RingPort]) -> None:
        ticks = SECOND_NS // self._reader.interval_ns
        second = settled_tick(self._reader, widest_stride(port.stride for port in placed)) // ticks
        if second - self._summed_second < SUMMARY_EVERY_SECONDS:
            return
        self._resolutions.measure_next(placed, second * ticks)
        summary = summarize(
            self._reader, fabric, self._options, self._resolutions.ticks_of, SUMMARY_WINDOW_SECONDS, None
        )
        if self._summary or any(port.observed_seconds for port in summary.ports):
            self._summary, self._summed_second = summary, second

    def _rates(
        self, ports: list[RingPort], width: int, end: int, points: int
    ) -> tuple[dict[str, Means], Mapping[str, Singles]]:
        """By port: the means of its last second, and the peaks of its bins before bin `end`, each of `width` ticks."""
        second = SECOND_NS // self._reader.interval_ns
        slots, strides = [port.slot for port in ports], [port.stride for port in ports]
        unsure = -(-(second + widest_stride(strides)) // width)
        bins = self._bins.missing(width, [str(port.port.id) for port in ports], end, points, unsure)
        count = max(bins * width, second)
        means, peaks = {}, {}
        found = read_rates(self._reader, slots, strides, end * width - count, end * width - 1)
        for port, values in zip(ports, found.bytes_per_second, strict=True):
            name = str(port.port.id)
            means[name] = (mean_of(values[0, -second:]), mean_of(values[1, -second:]))
            binned = values[:, count - bins * width :].astype(np.float32).reshape(2, bins, width)
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
