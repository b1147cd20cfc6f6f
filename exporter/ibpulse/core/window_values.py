"""Reads a window of the ring on a regular grid of wall time: the plan of its ports and bins, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.arrays import Counts, Singles, Words
from ibpulse.core.events import PortHistory
from ibpulse.core.jobs import ChosenJob
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader, read_signals
from ibpulse.core.ring.spans import TickRun, read_series, runs_of_wall_time, ticks_to_complete
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import Gains
from ibpulse.core.statistics.plausible import STEPS, Merges
from ibpulse.core.statistics.series import Detail, RateSeries

Statistic = Literal["max", "mean", "min"]

_FOLDS = {"max": np.fmax, "min": np.fmin}


class BinGrid:
    """Bins `first + k * width <= tick < first + (k + 1) * width` for rows of two directions, filled run by run.

    Law: the value of a bin depends only on its good samples, not on how they were split into runs. A bin without a good
    sample is NaN.
    """

    def __init__(self, rows: int, first: int, points: int, width: int, statistic: Statistic) -> None:
        shape = (rows, 2, points)
        self._first, self._points, self._width, self._statistic = first, points, width, statistic
        self._out = np.full(shape, np.nan, dtype=np.float32)
        summed = statistic == "mean" and width > 1
        self._sums = np.zeros(shape if summed else 0, dtype=np.float64)
        self._counts = np.zeros(shape if summed else 0, dtype=np.int64)

    def add(self, row: int, tick: int, values: Singles) -> None:
        """Add a run to one row: `values` is float32 (2, samples), NaN where data is missing, starting at `tick`."""
        begin, count = tick - self._first, values.shape[-1]
        if count == 0:
            return
        if begin < 0 or begin + count > self._points * self._width:
            raise ValueError(f"samples {begin}..{begin + count} lie outside the grid of {self._points * self._width}")
        if self._width == 1:
            self._out[row, :, begin : begin + count] = values
            return
        # the offset of each bin within the run
        edges = np.concatenate(([0], np.arange(self._width - begin % self._width, count, self._width))).astype(np.intp)
        first_bin = begin // self._width
        target = np.s_[row, :, first_bin : first_bin + len(edges)]
        if self._statistic == "mean":
            good = ~np.isnan(values)
            self._sums[target] += np.add.reduceat(np.where(good, values, 0), edges, axis=-1, dtype=np.float64)
            self._counts[target] += np.add.reduceat(good, edges, axis=-1, dtype=np.int64)
        else:
            fold = _FOLDS[self._statistic]
            self._out[target] = fold(self._out[target], fold.reduceat(values, edges, axis=-1))

    def values(self) -> Singles:
        """Value of every bin: float32 (rows, 2, points), NaN where data is missing."""
        if self._sums.size:
            np.divide(self._sums, self._counts, out=self._out, where=self._counts > 0, casting="same_kind")
        return self._out


UNCERTAINTY = "uncertainty"
# of merged samples; they are in the header of an NPY answer
MAX_PLACES = 200
Unit = Literal["bytes_per_second", "ratio"]


@dataclass(frozen=True, slots=True)
class Bins:
    """`points` bins of `width` ticks each from `first` on, a wall time in intervals since the epoch.

    Bins begin at multiples of their width, so that consecutive windows have the same bins.
    """

    first: int
    points: int
    width: int

    @property
    def end(self) -> int:
        """The wall tick after the last bin."""
        return self.first + self.points * self.width


def newest_bins(
    span_ns: int, now_ns: int, interval_ns: int, base: int, max_points: int | None = None, widest: int = 1
) -> Bins:
    """The newest complete bins that cover a span: at most `max_points`, each `base` ticks wide or a multiple of it.

    `widest` is the widest stride of the ports.
    """
    width = _width(base, interval_ns, span_ns, max_points)
    points = -(-span_ns // (width * interval_ns))
    end = _complete(now_ns, interval_ns, widest) // width * width
    return Bins(end - points * width, points, width)


def bins_between(
    from_ns: int, to_ns: int, now_ns: int, interval_ns: int, base: int, max_points: int | None = None, widest: int = 1
) -> Bins:
    """The complete bins that overlap `from_ns` up to `to_ns`, exclusive; widths as for the newest bins."""
    # an unaligned span overlaps one more bin
    width = _width(base, interval_ns, to_ns - from_ns, max_points and max_points - 1)
    first = from_ns // (width * interval_ns) * width
    end = min(-(-to_ns // (width * interval_ns)), _complete(now_ns, interval_ns, widest) // width) * width
    return Bins(first, max(0, end - first) // width, width)


def _complete(now_ns: int, interval_ns: int, widest: int) -> int:
    """The wall tick after the newest one that is complete, see `ring.spans.complete_tick`."""
    return now_ns // interval_ns - GUARD_TICKS + 1 - ticks_to_complete(widest)


def _width(base: int, interval_ns: int, span_ns: int, max_bins: int | None) -> int:
    """The smallest multiple of `base` with which `max_bins` cover the span; depends only on the span's length."""
    if max_bins is None:
        return base
    return base * max(1, -(-span_ns // (max_bins * base * interval_ns)))


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The ports to read with their slots and line rates (bytes/s), directions (0 transmit, 1 receive), and bins.

    `rates` are those of now; `history` has those of the past. With `uncertainty`, each rate gets its uncertainty. Of a
    `job`, the samples of a port at other times than the job had it are missing; `partly` are the ports that it had for
    a part of the time. With `signals`, the ports have those, too.
    """

    ports: tuple[str, ...]
    slots: tuple[int, ...]
    rates: tuple[float | None, ...]
    directions: tuple[int, ...]
    interval_ns: int
    bins: Bins
    statistic: Statistic
    unit: Unit
    history: PortHistory = field(default_factory=PortHistory)
    uncertainty: bool = False
    job: ChosenJob | None = None
    partly: tuple[str, ...] = ()
    signals: bool = False

    @property
    def detail(self) -> Detail:
        """The details of rates that the window shows."""
        if self.uncertainty:
            return "uncertainty"
        return "peaks" if self.statistic == "max" else "rates"

    @property
    def series(self) -> int:
        """Number of series of rates in the response."""
        return len(self.ports) * len(self.directions)


@dataclass(slots=True)
class SampleMarks:
    """Samples above the line rate: how many were merged, and how many nothing explains.

    `places` are the bins with merged samples: series, first bin, number of bins; at most `MAX_PLACES`.
    """

    merged: int = 0
    unexplained: int = 0
    places: list[list[int]] = field(default_factory=list)

    def add(self, plan: WindowPlan, row: int, run: TickRun, merges: Merges) -> None:
        """Add those of one port in a run."""
        bins, series = plan.bins, {way: row * len(plan.directions) + n for n, way in enumerate(plan.directions)}
        for (_, way, first, last), count in zip(merges.places.tolist(), merges.counts.tolist(), strict=True):
            if way in series:
                begin, end = (
                    max(0, run.wall_tick - bins.first + tick) // bins.width
                    for tick in (first, min(last, run.count - 1))
                )
                self.merged += count
                if len(self.places) < MAX_PLACES:
                    self.places.append([series[way], begin, end - begin + 1])
        self.unexplained += int(np.isin(merges.unexplained[:, 1], plan.directions).sum())


@dataclass(frozen=True, slots=True)
class WindowSignals:
    """The signals of a port at its readings, as in `SignalReadings`, and what they gained.

    `ticks` (readings,) are those after which they were read.
    """

    port: str
    signals: tuple[Signal, ...]
    ticks: Counts
    wall_ns: Counts
    counters: Words
    gains: Gains


@dataclass(frozen=True, slots=True)
class WindowValues:
    """A plan and its values: float32 (series, points), grouped by port, NaN for missing samples.

    `oldest_ms` and `newest_ms` are the bounds of the ring. `marks` are the samples above the line rate. `uncertainty`
    (series, points) is the largest part of a rate in each bin by which it may be wrong; None if it was not asked for.
    `signals` are those of the ports that have any, if they were asked for.
    """

    plan: WindowPlan
    values: Singles
    oldest_ms: int
    newest_ms: int
    marks: SampleMarks
    uncertainty: Singles | None = None
    signals: tuple[WindowSignals, ...] = ()

    def names(self) -> list[tuple[str, str]]:
        """Port and direction of each series."""
        return [(port, DIRECTIONS[direction]) for port in self.plan.ports for direction in self.plan.directions]

    def columns(self, *unit: str) -> list[str]:
        """The name of each row of `table`; those of rates end with the unit."""
        more = [] if self.uncertainty is None else [" ".join((*name, UNCERTAINTY)) for name in self.names()]
        return [*(" ".join((*name, *unit)) for name in self.names()), *more]

    def table(self) -> Singles:
        """The values, followed by the uncertainties if there are any."""
        return self.values if self.uncertainty is None else np.concatenate([self.values, self.uncertainty])

    def times_ms(self) -> Counts:
        """Wall time at which each bin begins, in ms since the epoch."""
        step = self.plan.bins.width * self.plan.interval_ns // MILLISECOND_NS
        return self.start_ms + step * np.arange(self.plan.bins.points, dtype=np.int64)

    @property
    def start_ms(self) -> int:
        """Wall time at which the first bin begins."""
        return self.plan.bins.first * self.plan.interval_ns // MILLISECOND_NS

    def holes(self) -> int:
        """Number of missing values."""
        return int(np.count_nonzero(np.isnan(self.values)))


def read_window(plan: WindowPlan, reader: RingReader, now_ns: int) -> WindowValues:
    """Read the window of a plan. Where the clock was set back, the newest sample of an instant is used."""
    segments = reader.ring.segments()
    newest = reader.newest_tick(now_ns)
    oldest = reader.oldest_tick(now_ns)
    bins = plan.bins
    grid = BinGrid(len(plan.ports), bins.first, bins.points, bins.width, plan.statistic)
    runs = runs_of_wall_time(segments, oldest, newest, bins.first, bins.end)
    lines = [plan.history.line_rate(*port) for port in zip(plan.ports, plan.rates, strict=True)]
    divisors = _constant_rates(plan, runs) if plan.unit == "ratio" else {}
    marks = SampleMarks()
    doubts = BinGrid(len(plan.ports), bins.first, bins.points if plan.uncertainty else 0, bins.width, "max")
    for run in runs:
        for row, found in read_series(reader, plan.slots, run, newest, lines, plan.detail):
            series = found
            if plan.job is not None:
                series = found.only(plan.job.ports.mask([plan.ports[row]], run.tick, run.count)[0])
            if series.merges:
                marks.add(plan, row, run, series.merges)
            if series.steps is not None:
                doubts.add(row, run.wall_tick, _uncertainty(series))
            values = series.peaks if plan.statistic == "max" else series.bytes_per_second
            changes = divisors.get(row, 1.0) is None
            grid.add(row, run.wall_tick, _divide(values, plan, row, run) if changes else values)
    values = grid.values()
    if divisors:
        each = np.array([divisors[row] or 1.0 for row in range(len(plan.ports))])
        values = np.divide(values, each[:, None, None], dtype=np.float64).astype(np.float32)
    held = max(oldest, segments[0][0]) if segments else newest
    oldest_ms, newest_ms = (int(ns) // MILLISECOND_NS for ns in reader.wall_ns(np.array([held, newest])))
    unsure = _chosen(plan, doubts.values()) if plan.uncertainty else None
    signals = tuple(_read_signals(plan, reader, runs)) if plan.signals else ()
    return WindowValues(plan, _chosen(plan, values), oldest_ms, newest_ms, marks, unsure, signals)


def _read_signals(plan: WindowPlan, reader: RingReader, runs: Sequence[TickRun]) -> Iterator[WindowSignals]:
    for port, slot in zip(plan.ports, plan.slots, strict=True):
        for run in runs:
            found = read_port_signals(reader, port, slot, run.tick, run.tick + run.count - 1, plan.job)
            if found.signals:
                yield found


def read_port_signals(
    reader: RingReader, port: str, slot: int, first_tick: int, last_tick: int, job: ChosenJob | None = None
) -> WindowSignals:
    """The signals of a port at the ticks from `first_tick` to `last_tick`, or those of a job among them."""
    ticks, readings = read_signals(reader, slot, first_tick, last_tick)
    wanted = ticks >= first_tick
    if job is not None:
        # a reading belongs to the job if the port did at its end
        had = job.ports.mask([port], first_tick, last_tick - first_tick + 1)[0]
        wanted &= had[np.maximum(ticks - first_tick, 0)]
    return WindowSignals(
        port,
        readings.signals,
        ticks[wanted],
        readings.wall_ns[wanted],
        readings.counters[wanted],
        readings.gains().only(wanted),
    )


def _chosen(plan: WindowPlan, values: Singles) -> Singles:
    """The directions of a plan as series."""
    chosen = values[:, list(plan.directions)] if len(plan.directions) == 1 else values
    return chosen.reshape(plan.series, plan.bins.points)


def _uncertainty(series: RateSeries) -> Singles:
    """The uncertainty of each rate as a part of it: (2, ticks), NaN where data is missing."""
    assert series.steps is not None
    return np.where(np.isnan(series.bytes_per_second), np.nan, series.steps / STEPS).astype(np.float32)


def _rates(plan: WindowPlan, row: int, run: TickRun) -> list[tuple[int, float]]:
    """The line rates of a port in a run: first tick and rate (bytes/s) of each part; NaN if unknown."""
    spans = plan.history.spans(plan.ports[row], run.tick, run.tick + run.count)
    found: list[tuple[int, float]] = []
    for span in spans:
        rate = (span.state and span.state.rate_bytes_per_second) or np.nan
        # nothing is measured where a port does not exist, so its rate there does not matter
        if not found or (span.state is not None and not _same(rate, found[-1][1])):
            found.append((span.first, rate))
    return found or [(run.tick, plan.rates[row] or np.nan)]


def _constant_rates(plan: WindowPlan, runs: Sequence[TickRun]) -> dict[int, float | None]:
    """The line rate of each port, by row; None if it changes within the runs."""
    found: dict[int, float | None] = {}
    for row in range(len(plan.ports)):
        rates = [rate for run in runs for _, rate in _rates(plan, row, run)] or [np.nan]
        found[row] = rates[0] if all(_same(rate, rates[0]) for rate in rates) else None
    return found


def _same(first: float, second: float) -> bool:
    return first == second or (np.isnan(first) and np.isnan(second))


def _divide(values: Singles, plan: WindowPlan, row: int, run: TickRun) -> Singles:
    """Utilisation of a port whose line rate changes within the run; NaN while it is unknown."""
    begins, rates = zip(*_rates(plan, row, run), strict=True)
    lengths = np.diff([*begins, run.tick + run.count])
    return np.asarray(values / np.repeat(rates, lengths), dtype=np.float32)
