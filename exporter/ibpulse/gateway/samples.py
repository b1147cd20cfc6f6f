"""Samples of a node's rails as read from its windows: their sum, statistics of bins, and the line rates of the past."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.members import MAX_PORTS, unexpected
from ibpulse.core.answers.node import EventsAnswer, PortAnswer
from ibpulse.core.answers.samples import WindowHead
from ibpulse.core.arrays import Bools, Counts, Floats, Singles
from ibpulse.core.client.transport import NodeArray, read_array
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.steps.runs import find_equal_runs, find_row_runs
from ibpulse.core.window_values import Statistic
from ibpulse.gateway.nodes.requests import Node, ask_node

# those after which a rail can have another rate
RATE_KINDS = ("link-down", "link-up", "link-change", "rate-change", "appeared", "disappeared")
MAX_RATE_EVENTS = 5000
MAX_WINDOW_BYTES = 8_000_000
MS_PER_SECOND = 1000
# a minute of 64 rails at 1 ms takes 40 MB
MAX_KEPT_SAMPLES = 8_000_000


@dataclass(frozen=True, slots=True)
class RailLineRates:
    """The line rates of a rail in bytes per second: `rates[n]` from `begins_ms[n]` on, NaN while it is unknown.

    The first one is that of all time before, too. Times are by the clock of the node.
    """

    begins_ms: Sequence[float]
    rates: Sequence[float]

    def at(self, times_ms: Counts) -> Floats:
        """The line rate at each time."""
        places = np.searchsorted(self.begins_ms, times_ms, side="right") - 1
        return np.asarray(self.rates)[np.maximum(places, 0)]


async def ask_line_rates(node: Node, rails: Mapping[str, PortAnswer | None], from_ms: int) -> dict[str, RailLineRates]:
    """The line rates of rails since a time; `rails` has their state of now.

    Raises:
        DaemonError: the node does not tell its events.
    """
    query = [("from", str(from_ms)), ("limit", str(MAX_RATE_EVENTS)), *(("kind", kind) for kind in RATE_KINDS)]
    found = await ask_node(node, EventsAnswer, "/api/v1/events", query)
    return {
        name: find_rates(name, None if port is None else port.rate_bytes_per_second, found)
        for name, port in rails.items()
    }


def find_rates(rail: str, rate_now: float | None, found: EventsAnswer) -> RailLineRates:
    """The line rates of a rail, from the states before and after its events and the rate that it has now."""
    begins, rates = [-math.inf], [math.nan if rate_now is None else rate_now]
    mine = [event for event in found.events if event.subject == rail and (event.before or event.after)]
    known = [event.before or event.after for event in mine]
    if known and known[0] is not None:
        rates = [_known(known[0].rate_bytes_per_second)]
    for event in mine:
        # a port that disappeared has no samples
        if event.after is not None:
            begins.append(event.time_ms)
            rates.append(_known(event.after.rate_bytes_per_second))
    if found.left_out and found.events:
        # of what was before the first event that was sent, nothing is known
        begins, rates = [-math.inf, max(begins[0], found.events[0].time_ms), *begins[1:]], [math.nan, *rates]
    return RailLineRates(begins, rates)


def sum_at(rails: Iterable[RailLineRates], times_ms: Counts) -> Floats:
    """The sum of the line rates of rails at each time; NaN where one is unknown, or 0."""
    total = np.sum([rail.at(times_ms) for rail in rails], axis=0, dtype=np.float64)
    return np.where(total > 0, total, np.nan)


def _known(rate: float | None) -> float:
    return math.nan if rate is None else rate


async def ask_samples(node: Node, job: str, span: Sequence[tuple[str, str]], statistic: Statistic = "max") -> NodeArray:
    """The samples of a job's rails in a span (`last`, or `from` and `to`); for peaks, the certain part of each.

    Raises:
        DaemonError: there is no answer, or not this one.
    """
    query = [("job", job), ("format", "npy"), ("statistic", statistic), *span]
    return read_array(await node.get("/api/v1/window", query, max_bytes=MAX_WINDOW_BYTES))


def rails_in(head: WindowHead) -> list[str]:
    """The rails of a window that has the transmit and the receive series of each.

    Raises:
        DaemonError: it has other series.
    """
    names = list(dict.fromkeys(name.rpartition(" ")[0] for name in head.series))
    if head.series != [f"{name} {way}" for name in names for way in DIRECTIONS]:
        raise unexpected("other series than transmit and receive")
    if head.resolution_ms != head.interval_ms or head.start_ms % head.interval_ms:
        raise unexpected("other samples than asked for")
    if head.end_ms - head.start_ms != head.points * head.resolution_ms:
        raise unexpected("times that do not match its points")
    return names


class NodeSamples:
    """Rates of the rails of a node in bytes per second, by the clock of the node, for as long as `kept_ms`.

    `start_ms` up to `end_ms`, exclusive, were read. Missing samples, and others, are NaN.

    Raises:
        DaemonError: there would be too many samples.
    """

    def __init__(self, interval_ms: int, kept_ms: int, rails: Sequence[str] = ()) -> None:
        self.interval_ms, self.kept_ms = interval_ms, kept_ms
        self.rails = tuple(rails)
        self._size = max(1, kept_ms // interval_ms)
        if 2 * len(self.rails) * self._size > MAX_KEPT_SAMPLES:
            each = f"{len(self.rails)} rails, each every {interval_ms} ms"
            raise DaemonError(f"its answer has the samples of {each}, more than are kept", kind="bad-answer")
        self._rates = np.full((2, len(self.rails), self._size), np.nan, dtype=np.float32)
        self._merged = np.zeros((2, len(self.rails), self._size), dtype=np.bool_)
        self.start_ms = self.end_ms = 0

    def add(self, window: NodeArray) -> NodeSamples:
        """Add a window; returns itself, or what replaces it if the interval or the rails are others.

        Raises:
            DaemonError: the window is not one of samples.
        """
        head = window.head
        rails = rails_in(head)
        if head.interval_ms != self.interval_ms or not set(rails) <= set(self.rails):
            return self._with(head.interval_ms, rails).add(window)
        if not head.points:
            return self
        if head.end_ms <= self.start_ms or head.start_ms > self.end_ms + self.kept_ms:
            # the clock was set back, or nothing that is kept is near
            self.start_ms = self.end_ms = head.start_ms
        first = max(head.start_ms, self.end_ms)
        between = max(0, head.start_ms - self.end_ms) // self.interval_ms
        skipped = (first - head.start_ms) // self.interval_ms
        if skipped < head.points:
            places = [self.rails.index(name) for name in rails]
            values = np.full((2, len(self.rails), between + head.points - skipped), np.nan, dtype=np.float32)
            values[:, places, between:] = window.values.reshape(len(rails), 2, head.points).swapaxes(0, 1)[
                ..., skipped:
            ]
            self._write(self.end_ms, values)
            self._mark(head, rails, first)
        return self

    def _with(self, interval_ms: int, rails: Sequence[str]) -> NodeSamples:
        """These samples with further rails; without them if the interval is another one."""
        if interval_ms != self.interval_ms or len(self.rails) + len(rails) > MAX_PORTS:
            return NodeSamples(interval_ms, self.kept_ms, rails)
        new = NodeSamples(interval_ms, self.kept_ms, list(dict.fromkeys((*self.rails, *rails))))
        own = len(self.rails)
        new._rates[:, :own], new._merged[:, :own] = self._rates, self._merged
        new.start_ms, new.end_ms = self.start_ms, self.end_ms
        return new

    def _write(self, first_ms: int, values: npt.NDArray[np.floating]) -> None:
        first = first_ms // self.interval_ms
        end = first + values.shape[-1]
        values = values[..., -self._size :]
        places = np.arange(end - values.shape[-1], end) % self._size
        self._rates[..., places], self._merged[..., places] = values, False
        self.end_ms = end * self.interval_ms
        self.start_ms = max(self.start_ms, self.end_ms - self._size * self.interval_ms)

    def _mark(self, head: WindowHead, rails: Sequence[str], first_ms: int) -> None:
        for series, first, count in head.implausible.places:
            begin = max(head.start_ms // self.interval_ms + first, first_ms // self.interval_ms)
            end = min(head.start_ms // self.interval_ms + first + count, self.end_ms // self.interval_ms)
            if series < 2 * len(rails) and begin < end:
                places = np.arange(max(begin, end - self._size), end) % self._size
                self._merged[series % 2, self.rails.index(rails[series // 2]), places] = True

    def read(self, rails: Sequence[str], from_ms: int, to_ms: int) -> tuple[Singles, Bools]:
        """Rates and whether they are merged, of some rails: (2, rails, samples).

        From `from_ms` up to `to_ms`, exclusive, which are multiples of the interval. An unknown rail has no samples.
        """
        first, end = from_ms // self.interval_ms, to_ms // self.interval_ms
        rates = np.full((2, len(rails), max(0, end - first)), np.nan, dtype=np.float32)
        merged = np.zeros(rates.shape, dtype=np.bool_)
        rows = [row for row, name in enumerate(rails) if name in self.rails]
        own = [self.rails.index(rails[row]) for row in rows]
        begin, until = max(first, self.start_ms // self.interval_ms), min(end, self.end_ms // self.interval_ms)
        # slices of the ring: each tick on its own takes ten times as long
        while begin < until:
            place = begin % self._size
            length = min(until - begin, self._size - place)
            held, found = slice(begin - first, begin - first + length), slice(place, place + length)
            rates[:, rows, held] = self._rates[:, own, found]
            merged[:, rows, held] = self._merged[:, own, found]
            begin += length
        return rates, merged

    def sum(self, rails: Sequence[str], from_ms: int, to_ms: int, *, live: bool = False) -> tuple[Singles, Bools]:
        """The sum over rails: (2, samples), and whether a part of it is merged.

        A rail without any sample in a wall second is left out of it; if one of the others misses a sample, the sum is
        missing. While seconds are not complete (`live`), a rail also counts if it had samples in the second before.
        """
        # an unknown rail adds nothing
        rails = [name for name in rails if name in self.rails]
        if not rails:
            shape = 2, max(0, (to_ms - from_ms) // self.interval_ms)
            return np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.bool_)
        # an interval that does not divide a second is longer than one
        second = self.interval_ms if MS_PER_SECOND % self.interval_ms else MS_PER_SECOND
        first, end = from_ms // second * second - second, -(-to_ms // second) * second
        rates, merged = self.read(rails, first, end)
        known: Bools = np.asarray(
            (~np.isnan(rates)).reshape(2, len(rails), -1, second // self.interval_ms).any(axis=(0, 3))
        )
        if live:
            known[:, 1:] |= known[:, :-1].copy()
        counted = np.repeat(known, second // self.interval_ms, axis=1)
        sums = np.where(counted, rates, 0).sum(axis=1, dtype=np.float64)
        sums[:, ~counted.any(axis=0)] = np.nan
        part = slice((from_ms - first) // self.interval_ms, (to_ms - first) // self.interval_ms)
        return sums[:, part].astype(np.float32), np.asarray(merged.any(axis=1))[:, part]

    def left_out(self, rails: Sequence[str]) -> list[str]:
        """The rails without any sample in the last two seconds, while others have some."""
        begin = (self.end_ms - 2 * MS_PER_SECOND) // self.interval_ms * self.interval_ms
        known = [name for name in rails if name in self.rails]
        rates, _ = self.read(known, begin, self.end_ms)
        some: Bools = np.asarray((~np.isnan(rates)).any(axis=(0, 2)))
        having = {name for name, has in zip(known, some.tolist(), strict=True) if has}
        return [name for name in rails if name not in having] if having else []


def reduce_to_bins(
    rates: Singles, merged: Bools, from_ms: int, interval_ms: int, bin_ms: int, bins: int, statistic: Statistic = "max"
) -> tuple[Singles, Bools]:
    """A statistic of the samples that lie in each bin, (series, bins), and whether one of them is merged.

    The first sample is at `from_ms`, the beginning of the first bin or up to an interval later. A bin without samples
    is NaN.
    """
    found = np.full((rates.shape[0], bins), np.nan, dtype=np.float32)
    marks = np.zeros(found.shape, dtype=np.bool_)
    places = (from_ms + interval_ms * np.arange(rates.shape[1])) // bin_ms - from_ms // bin_ms
    inside = places < bins
    firsts, _ = find_equal_runs(places[inside])
    if len(firsts):
        values = rates[:, inside]
        if statistic == "mean":
            known = np.add.reduceat((~np.isnan(values)).astype(np.int64), firsts, axis=1)
            sums = np.add.reduceat(np.nan_to_num(values).astype(np.float64), firsts, axis=1)
            reduced = np.divide(sums, known, out=np.full(sums.shape, np.nan), where=known > 0)
        else:
            reduced = (np.fmax if statistic == "max" else np.fmin).reduceat(values, firsts, axis=1)
        found[:, places[firsts]] = reduced
        marks[:, places[firsts]] = np.logical_or.reduceat(merged[:, inside], firsts, axis=1)
    return found, marks


def bin_samples(
    samples: NodeSamples,
    rails: Sequence[str],
    from_ms: int,
    to_ms: int,
    bin_ms: int,
    statistic: Statistic = "max",
    *,
    live: bool = False,
    lines: Sequence[RailLineRates] | None = None,
) -> tuple[Singles, Bools]:
    """A statistic of the sum over rails in each bin, (2, bins), and whether a part of it is merged.

    The bins lie from `from_ms` up to `to_ms`, exclusive. A sample that is longer than a bin counts for all bins in
    which a part of it lies. With `lines`, the sum is divided by that of these line rates.
    """
    length_ms, bins = samples.interval_ms, (to_ms - from_ms) // bin_ms
    begin = (from_ms if length_ms > bin_ms else from_ms + length_ms - 1) // length_ms * length_ms
    end = -(-to_ms // length_ms) * length_ms
    rates, merged = samples.sum(rails, begin, end, live=live)
    if lines is not None:
        # as on the node, a change counts for all of the sample in which it was found
        rates = (rates / sum_at(lines, np.arange(begin, end, length_ms) + length_ms - 1)).astype(np.float32)
    if length_ms > bin_ms:
        return _spread(rates, merged, from_ms - begin, length_ms, bin_ms, bins, statistic)
    return reduce_to_bins(rates, merged, begin, length_ms, bin_ms, bins, statistic)


def _spread(
    rates: Singles, merged: Bools, after_ms: int, length_ms: int, bin_ms: int, bins: int, statistic: Statistic
) -> tuple[Singles, Bools]:
    """Bins of samples that are longer than a bin: a part of at most two samples lies in each."""
    edges = after_ms + bin_ms * np.arange(bins)
    first, last = edges // length_ms, (edges + bin_ms - 1) // length_ms
    one, other = rates[:, first], rates[:, last]
    low, high = np.fmin(one, other), np.fmax(one, other)
    values = {"max": high, "min": low, "mean": (low + high) / 2}[statistic]
    return values, merged[:, first] | merged[:, last]


def common_interval(intervals: Iterable[int], unknown: int) -> int:
    """The interval that most nodes have, of several the longest; `unknown` without any."""
    counts = Counter(intervals)
    return max(counts, key=lambda each: (counts[each], each), default=unknown)


def find_places(marks: Bools) -> list[tuple[int, int, int]]:
    """Runs of marks: series, first value, number of values."""
    row, first, end = find_row_runs(marks)
    return list(zip(row.tolist(), first.tolist(), (end - first).tolist(), strict=True))
