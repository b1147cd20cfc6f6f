"""Rates above the line rate: merges against an independent computation, their laws, and the uncertainty of a rate."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.ring.layout import ABSENT
from ibpulse.core.statistics.plausible import MAX_BEFORE, LineRate, lower_bound, uncertainty_steps
from ibpulse.core.statistics.rates import Rates, Timing, rates
from tests.statistics.test_series import rate_series

MS = 1_000_000
INTERVAL = 10 * MS
LINE = 1e9
# counts of 4 bytes that the line rate moves in 10 ms
FULL = 2_500_000


@dataclass(frozen=True)
class Read:
    """One read of a counter; `count` is None if it was not read."""

    time_ns: int
    width_ns: int
    count: int | None


@dataclass(frozen=True)
class Port:
    """Both directions of a port with the line rate at each tick; reads are at multiples of the stride."""

    ways: tuple[tuple[Read | None, ...], tuple[Read | None, ...]]
    line: LineRate
    stride: int

    @property
    def ticks(self) -> int:
        return len(self.ways[0])


@st.composite
def ports(draw: st.DrawFn) -> Port:
    """Traffic of up to 2.5 x the line rate, so that most merges are possible and some are not."""
    stride, samples = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.integers(2, 22))
    parts = st.sampled_from([0, 0, 0.2, 0.5, 0.9, 1.0, 1.0, 1.05, 1.2, 1.5, 2.0, 2.5])
    fates = st.sampled_from(["read"] * 15 + ["absent", "reset"])
    ways, stamps, now = [], [], 10**12
    # the second: a rate is certain to 1 %, or just not
    late = draw(st.sampled_from([st.integers(-4 * MS, 4 * MS), st.integers(-80_000, 80_000)]))
    width = draw(st.sampled_from([st.integers(0, MS), st.integers(0, 80_000)]))
    for _ in range(samples):
        now += draw(late) + 10 * MS * stride
        stamps.append((now, draw(width), draw(width)))
    for way in (0, 1):
        count, reads = draw(st.sampled_from([0, 2**62])), []
        for before, first, second in stamps:
            fate, moved = draw(fates), round(draw(parts) * FULL * stride)
            count = moved if fate == "reset" else count + moved
            begin, width = (before, first) if way == 0 else (before + first, second)
            reads += [None] * (stride - 1 if reads else 0)
            reads.append(Read(begin + width // 2, width, None if fate == "absent" else count))
        ways.append(tuple(reads))
    edge = draw(st.integers(1, samples * stride))
    line = draw(st.sampled_from([LineRate((LINE,)), LineRate((LINE, 2 * LINE), (edge,)), LineRate()]))
    return Port((ways[0], ways[1]), line, stride)


def arrays(port: Port, first: int = 0) -> dict[str, np.ndarray]:
    """The arguments of `rates` for the ticks from `first` on; stamps as the sampler writes them."""
    stamps, counters = np.zeros((port.ticks, 3), dtype=np.int64), np.full((port.ticks, 2), ABSENT, dtype=np.uint64)
    for tick, (transmit, receive) in enumerate(zip(*port.ways, strict=True)):
        if transmit and receive:
            begin = transmit.time_ns - transmit.width_ns // 2
            between = begin + transmit.width_ns
            stamps[tick] = begin, between, between + receive.width_ns
            counters[tick] = [ABSENT if read.count is None else read.count for read in (transmit, receive)]
    return {"stamps": stamps[first:], "counters": counters[first:]}


def compute(port: Port, first: int = 0, exact: bool = False) -> Rates:
    given = arrays(port, first)
    middles = (given["stamps"][:, :-1] + given["stamps"][:, 1:]) >> 1
    valid = given["counters"] != ABSENT
    timing = Timing(given["stamps"][None], [port.line], first, exact, INTERVAL)
    return rates(
        middles.T[None], given["counters"].T[None], valid.T[None], np.array([4]), np.array([port.stride]), timing
    )


class Slow:
    """One counter, in exact fractions, sample by sample."""

    def __init__(self, reads: tuple[Read | None, ...], line: LineRate, stride: int) -> None:
        self.reads = [read for read in reads[::stride] if read is not None]
        at = line.over(0, len(reads)).tolist()
        self.limits = [max(at[max(0, k * stride - stride + 1) : k * stride + 1]) for k in range(len(self.reads))]
        self.groups = [group for k in range(1, len(self.reads)) if self.over(k - 1, k) and (group := self.group(k))]

    def good(self, k: int) -> bool:
        if k < 1:
            return False
        before, now = self.reads[k - 1].count, self.reads[k].count
        return before is not None and now is not None and now >= before

    def elapsed(self, i: int, k: int) -> int:
        return self.reads[k].time_ns - self.reads[i].time_ns

    def moved(self, i: int, k: int) -> int:
        return 4 * (self.reads[k].count - self.reads[i].count)  # type: ignore[operator]

    def over(self, i: int, k: int) -> bool:
        """Whether more moved from read i to read k than the line rate can, whenever the counters were taken."""
        if not self.good(k) or self.limits[k] == float("inf"):
            return False
        longest = self.elapsed(i, k) + Fraction(self.reads[i].width_ns + self.reads[k].width_ns, 2)
        return (self.moved(i, k) - 4) * 10**9 > int(self.limits[k]) * longest

    def group(self, k: int) -> tuple[int, int] | None:
        for before in range(1, MAX_BEFORE + 1):
            whole = all(self.good(j) and self.limits[j] == self.limits[k] for j in range(k - before, k))
            if not whole:
                return None
            if not self.over(k - before - 1, k):
                return k - before - 1, k
        return None

    def span(self, k: int) -> tuple[int, int]:
        """The reads between which the mean stands at sample k."""
        around = [(i, j) for i, j in self.groups if i < k <= j]
        return max(around, key=lambda one: one[1] - one[0], default=(k - 1, k))

    def rate(self, k: int) -> float:
        if not self.good(k):
            return float("nan")
        i, j = self.span(k)
        return self.moved(i, j) * 1e9 / self.elapsed(i, j)

    def above_the_mean_of_two(self, k: int, nominal_ns: int) -> Fraction:
        """By which part the rate of a sample is above the mean of it and the sample before.

        Without end if that mean is 0, or if the sample before is merged.
        """
        moved, both = self.moved(k - 1, k), self.moved(k - 2, k)
        if not both or self.span(k - 1) != (k - 2, k - 1):
            return Fraction(10**9)
        widths = Fraction(self.reads[k - 2].width_ns + self.reads[k].width_ns, 2)
        longest = max(self.elapsed(k - 2, k) + widths, nominal_ns)
        return max(Fraction(0), Fraction(moved, self.elapsed(k - 1, k)) * longest / both - 1)

    def unexplained(self, k: int) -> bool:
        return self.over(k - 1, k) and self.span(k) == (k - 1, k)


def each_way(port: Port) -> list[Slow]:
    return [Slow(reads, port.line, port.stride) for reads in port.ways]


@settings(deadline=None, max_examples=120)
@given(port=ports())
def test_merges_are_those_of_the_slow_computation(port: Port) -> None:
    found = compute(port, exact=True)
    for way, slow in enumerate(each_way(port)):
        ends = np.arange(0, port.ticks, port.stride)
        expected = [np.nan, *(slow.rate(k) for k in range(1, len(ends)))]
        np.testing.assert_allclose(found.bytes_per_second[0, way, ends], expected, rtol=1e-12)
        lonely = [k * port.stride for k in range(1, len(ends)) if slow.unexplained(k)]
        assert found.merges.unexplained[found.merges.unexplained[:, 1] == way, 2].tolist() == lonely
        outer = {span for k in range(1, len(ends)) if slow.good(k) and (span := slow.span(k)) in slow.groups}
        mine = found.merges.places[:, 1] == way
        expected_places = [[0, way, i * port.stride + 1, j * port.stride] for i, j in sorted(outer)]
        assert found.merges.places[mine].tolist() == expected_places
        over = [k for k in range(1, len(ends)) if slow.over(k - 1, k)]
        assert found.merges.counts[mine].sum() == len(over) - len(lonely)
        moved = sum(slow.moved(k - 1, k) for k in range(1, len(ends)) if slow.good(k))
        total = np.nansum(found.bytes_per_second[0, way] * found.seconds[0, way])
        np.testing.assert_allclose(total, moved, rtol=1e-9, atol=1e-6)
        for k in range(1, len(ends)):
            if slow.good(k):
                i, j = slow.span(k)
                elapsed = slow.elapsed(i, j)
                unknown = Fraction(slow.reads[i].width_ns + slow.reads[j].width_ns, 2)
                unknown += max(0, INTERVAL * port.stride - elapsed)
                doubt = unknown / elapsed
                short = (i, j) == (k - 1, k) and elapsed < INTERVAL * port.stride
                if doubt >= Fraction(1, 100) and short and slow.good(k - 1):
                    doubt = min(doubt, slow.above_the_mean_of_two(k, INTERVAL * port.stride))
                steps = int(found.steps[0, way, ends[k]])  # type: ignore[index]
                assert Fraction(steps - 1, 1000) <= doubt < Fraction(steps, 1000)


@settings(deadline=None, max_examples=60)
@given(port=ports(), data=st.data())
def test_any_part_of_a_span_has_the_values_of_the_whole(port: Port, data: st.DataObject) -> None:
    """A part that begins with the reads of five samples before it, and ends four samples after it."""
    whole = compute(port)
    first = data.draw(st.integers(0, port.ticks - 1)) // port.stride * port.stride
    last = data.draw(st.integers(0, len(range(first, port.ticks, port.stride)) - 1))
    cut = Port(
        (port.ways[0][: first + last * port.stride + 1], port.ways[1][: first + last * port.stride + 1]),
        port.line,
        port.stride,
    )
    part = compute(cut, first)
    inside = slice((MAX_BEFORE + 1) * port.stride, max(0, (last - MAX_BEFORE) * port.stride + 1))
    beyond = slice(first + inside.start, first + max(inside.start, inside.stop))
    np.testing.assert_array_equal(part.bytes_per_second[:, :, inside], whole.bytes_per_second[:, :, beyond])
    np.testing.assert_array_equal(part.peaks[:, :, inside], whole.peaks[:, :, beyond])


@settings(deadline=None, max_examples=100)
@given(port=ports())
def test_the_series_of_one_port_agrees(port: Port) -> None:
    given = arrays(port)
    present = (given["stamps"] > 0).any(axis=1)
    arguments = given["stamps"], given["counters"].view(np.int64), present, 4, port.stride, port.line
    found = rate_series(*arguments, interval_ns=INTERVAL)
    exact = rate_series(*arguments, interval_ns=INTERVAL, detail="uncertainty")
    expected = compute(port)
    for series in (found, exact):
        np.testing.assert_allclose(series.bytes_per_second, expected.bytes_per_second[0], rtol=3e-6)
        np.testing.assert_allclose(series.peaks, expected.peaks[0], rtol=3e-6)
        assert series.merges.places.tolist() == expected.merges.places.tolist()
    np.testing.assert_array_equal(exact.steps, compute(port, exact=True).steps[0])  # type: ignore[index]


def counted(counts: list[int], width_ns: int = 20_000) -> Rates:
    """Both directions count so much from read to read, one every 10 ms."""
    totals = [0, *itertools.accumulate(counts)]
    reads = tuple(Read(10**12 + tick * INTERVAL, width_ns, total) for tick, total in enumerate(totals))
    return compute(Port((reads, reads), LineRate((LINE,)), 1))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # the counter of the second sample was 3 ms late
        ([1.0, 0.7, 1.3, 1.0], [1.0, 1.0, 1.0, 1.0]),
        ([0.5, 0.2, 1.4, 0.5], [0.5, 0.8, 0.8, 0.5]),
        # one sample before is not enough
        ([0.0, 0.0, 2.5, 0.0], [2.5 / 3, 2.5 / 3, 2.5 / 3, 0.0]),
        # a sample above the line rate may be among those before another one
        ([0.0, 0.0, 0.0, 1.5, 2.0], [0.0, 3.5 / 4, 3.5 / 4, 3.5 / 4, 3.5 / 4]),
        # five samples in total, and no more
        ([1.0, 0.9, 0.9, 0.9, 0.9, 1.4], [1.0, *[1.0] * 5]),
        ([0.0, 1.0, 1.0, 1.0, 1.0, 1.4], [0.0, 1.0, 1.0, 1.0, 1.0, 1.4]),
        # within the uncertainty of the reads, 0.2 %
        ([1.0, 1.0015, 1.0], [1.0, 1.0015, 1.0]),
        ([0.9, 1.0025, 1.0], [0.95125, 0.95125, 1.0]),
        # what no line could carry is left as it is
        ([1.5] * 20, [1.5] * 20),
    ],
)
def test_the_fewest_samples_that_explain_it(parts: list[float], expected: list[float]) -> None:
    found = counted([round(part * FULL) for part in parts]).bytes_per_second[0, 0, 1:] / LINE
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("more", "merged"), [(1, False), (2, True)])
def test_a_counter_may_have_been_about_to_show_one_more_count(more: int, merged: bool) -> None:
    assert bool(counted([FULL - 5, FULL + more, FULL - 5], width_ns=0).merges) == merged


def test_a_rate_is_uncertain_by_its_reads_and_by_what_a_short_sample_does_not_cover() -> None:
    unknown = np.array([0, 199_000, 200_000, 1_000_000, 10**15, *[40_000] * 4])
    elapsed = np.array([INTERVAL] * 5 + [20 * MS, 10 * MS, 8 * MS, 5 * MS])
    steps = uncertainty_steps(unknown, elapsed, INTERVAL)
    # of the last four, half of 40 us, and nothing, nothing, a quarter and all of the time measured
    assert steps.tolist() == [1, 10, 11, 51, 65535, 2, 3, 253, 1005]
    # below 1 % a peak is the rate, otherwise the least that it can be
    peaks = lower_bound(np.array([100.0, 100.0, 100.0, 125.0]), steps[[1, 2, 3, 7]])
    np.testing.assert_allclose(peaks, [100, 100 / 1.011, 100 / 1.051, 125 / 1.253])


@dataclass(frozen=True)
class Traffic:
    """Bytes per second, `levels`, each from one of `instants` to the next."""

    instants: list[int]
    levels: list[float]

    def moved(self, instant: float) -> float:
        """Bytes until an instant."""
        totals = np.concatenate(([0], np.cumsum(np.diff(self.instants) * np.array(self.levels) / 1e9)))
        return float(np.interp(instant, self.instants, totals))

    def highest_mean(self, length: int) -> float:
        """The highest mean over any time of a length, which begins or ends at a change of level."""
        edges = np.array(self.instants)
        begins = np.concatenate((edges, edges - length))
        begins = begins[(begins >= edges[0]) & (begins + length <= edges[-1])]
        return max((self.moved(begin + length) - self.moved(begin)) * 1e9 / length for begin in begins)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_no_peak_is_above_the_highest_mean_over_an_interval(data: st.DataObject) -> None:
    """Reads are up to 9 ms late and 1 ms long, with the counter at any moment of each."""
    ticks = data.draw(st.integers(2, 20))
    lengths = data.draw(st.lists(st.integers(MS, 15 * MS), min_size=40, max_size=40))
    levels = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.97, 1.0]), min_size=40, max_size=40))
    start = 10**12
    traffic = Traffic(
        [0, *itertools.accumulate([start, *lengths, 10**12])], [0.0, *(LINE * one for one in levels), 0.0]
    )
    ways: tuple[list[Read | None], list[Read | None]] = [], []
    for tick in range(ticks):
        begin = start + tick * INTERVAL + data.draw(st.sampled_from([0, 0, MS, 4 * MS, 7 * MS, 8 * MS]))
        for reads in ways:
            width = data.draw(st.sampled_from([0, 20_000, MS]))
            taken = begin + data.draw(st.integers(0, width))
            reads.append(Read(begin + width // 2, width, round(traffic.moved(taken) / 4)))
            begin += width
    found = compute(Port((tuple(ways[0]), tuple(ways[1])), LineRate(), 1))
    rounding = 4e9 / MS
    assert np.nanmax(found.peaks, initial=0) <= 1.01 * traffic.highest_mean(INTERVAL) + rounding


@pytest.mark.parametrize("stride", [1, 3])
def test_a_late_read_leaves_the_peaks_of_a_steady_flow_as_they_are(stride: int) -> None:
    start, late = 10**12, [0, 0, 4 * MS, 0, 9 * MS, 1 * MS, 0, 7 * MS, 7 * MS, 0]
    reads: list[Read | None] = []
    for place, ns in enumerate(late):
        time_ns = start + place * stride * INTERVAL + ns
        reads += [None] * (stride - 1 if reads else 0)
        reads.append(Read(time_ns, 20_000, (time_ns - start) // 8))
    found = compute(Port((tuple(reads), tuple(reads)), LineRate(), stride))
    np.testing.assert_allclose(found.peaks[0, :, stride:], 5e8, rtol=2e-3)


def test_the_first_moments_of_a_burst_count_as_their_bytes_over_an_interval() -> None:
    """Silence, a read that is 6 ms late, and 4 ms of traffic until the next read."""
    times = [0, 10 * MS, 26 * MS, 30 * MS, 40 * MS]
    counts = [0, 0, 0, 1_000_000, 3_500_000]
    reads = tuple(Read(10**12 + at, 0, count) for at, count in zip(times, counts, strict=True))
    found = compute(Port((reads, reads), LineRate(), 1))
    np.testing.assert_allclose(found.bytes_per_second[0, 0, 1:], [0, 0, 1e9, 1e9])
    np.testing.assert_allclose(found.peaks[0, 0, 1:], [0, 0, 0.4e9, 1e9], rtol=1e-3)
