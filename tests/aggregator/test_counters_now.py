"""The counters of ports end at the newest sample that no later one can revise, and never decrease."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS, PortSnapshot
from ibpulse.core.events import PortHistory
from ibpulse.core.model import PortState
from ibpulse.core.statistics.plausible import MAX_BEFORE
from tests.aggregator.rings import RATE, Ring, constant, port

A, B = "mlx5_0:1", "mlx5_1:1"
SETTLED = 20


def counters(shown: PortSnapshot) -> list[float]:
    """Every counter of a port that ends at its newest decided sample."""
    values: list[float] = [shown.observed_seconds, shown.resets, shown.jumps]
    for side in shown.directions:
        values += [side.bytes_total or 0, side.active_seconds]
        if side.moments is None:
            # it was never ACTIVE yet
            values += [0] * (len(UTILIZATION_BUCKETS) + 6)
            continue
        values += [side.moments.utilization_seconds, side.moments.utilization_squared_seconds]
        values += [side.moments.active_utilization_seconds, side.moments.active_utilization_squared_seconds]
        values += [*side.moments.histogram.cumulative, side.moments.histogram.total]
    return values


class Scraped:
    """Two ports in a ring, and an aggregator that is asked as the daemon asks it."""

    def __init__(self, path: Path, stride: int = 1) -> None:
        self.ring, self.history = Ring.create(path, port(A), port(B)), PortHistory()
        self.up = PortState("ACTIVE", "LinkUp", True, RATE, True, stride=stride)
        self.down = replace(self.up, state="DOWN", physical="Polling", active=False)
        self.history.begin(A, self.up)
        self._aggregator = Aggregator(self.ring.reader, AggregatorOptions(), self.history)
        self._second = -1
        self._last: Snapshot | None = None

    def scrape(self, tick: int) -> tuple[PortSnapshot, ...]:
        second = (tick - 30) // 100
        if self._last is None or second != self._second:
            self._second, self._last = second, self._aggregator.update(self.ring.fabric, tick)
            return self._last.ports
        return self._aggregator.with_counters_now(self._last, tick).ports


class Plain:
    """The same counters of one port in plain arithmetic, from (tick, counters) as they were written."""

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._reads: list[tuple[int, tuple[int, int]]] = []
        self.decided = 0

    def write(self, tick: int, read: tuple[int, int]) -> None:
        self._reads.append((tick, read))

    def decide(self, now: int) -> None:
        newest = max((tick for tick, _ in self._reads), default=0)
        # by then, a sample and those that it may be merged with are written or never will be
        settled = now - SETTLED - (MAX_BEFORE + 1) * self._stride + 1
        settled -= settled % self._stride
        self.decided = max(self.decided, newest - MAX_BEFORE * self._stride, min(newest, settled))

    def totals(self) -> tuple[list[int], int, int, int, list[int]]:
        """Bytes, resets, jumps, ticks with a good sample, and the bytes of those."""
        moved, resets, jumps, observed, good_bytes = [0, 0], 0, 0, 0, [0, 0]
        reads = [read for read in self._reads if read[0] <= self.decided]
        for (begin, before), (end, after) in pairwise(reads):
            grown = [4 * (new - old) for old, new in zip(before, after, strict=True)]
            jumped = [each > RATE * ((end - begin) / 100 + 1) for each in grown]
            fell = [each < 0 for each in grown]
            resets += any(fell)
            jumps += any(jumped)
            for way in range(2):
                moved[way] += 0 if fell[way] or jumped[way] else grown[way]
            if end - begin == self._stride and not any(fell) and not any(jumped):
                observed += self._stride
                good_bytes = [old + new for old, new in zip(good_bytes, grown, strict=True)]
        return moved, resets, jumps, observed, good_bytes


def test_a_hung_port_stops_alone(tmp_path: Path) -> None:
    scraped = Scraped(tmp_path)
    scraped.scrape(1)
    traffic = (constant(20e9), constant(5e9))
    scraped.ring.write(A, traffic, 1, 277)
    scraped.ring.write(B, traffic, 1, 400)
    hung, other = scraped.scrape(400)
    # its last samples are decided too once none can follow
    assert hung.observed_seconds == pytest.approx(2.76)
    assert hung.directions[0].bytes_total == pytest.approx(20e9 * 2.76)
    assert other.observed_seconds == pytest.approx((400 - MAX_BEFORE - 1) / 100)


# an example takes too long to be made smaller
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_counters_are_those_of_plain_arithmetic_and_never_decrease(tmp_path: Path, data: st.DataObject) -> None:
    """A scrape at every tick, over late refreshes, late records, missing samples, hangs, resets and jumps."""
    ticks = st.integers(110, 300)
    levels = data.draw(st.lists(st.sampled_from([0.0, 0.3, 0.9, 1.7, 3.5]), min_size=1, max_size=9))
    holes = data.draw(st.sets(ticks, max_size=30))
    resets = data.draw(st.sets(ticks, max_size=3))
    jumps = data.draw(st.dictionaries(ticks, st.sampled_from([0.7 * RATE, 1.8 * RATE, 1e14]), max_size=3))
    hang = data.draw(st.tuples(ticks, st.integers(0, 60)))
    stride = data.draw(st.sampled_from([1, 1, 2, 3]))
    late = data.draw(st.sampled_from([0, 0, 1, 3, 15]))
    down = data.draw(st.one_of(st.none(), st.tuples(ticks, st.integers(1, 60))))
    missing = {*holes, *range(hang[0], sum(hang))}
    scraped, plain = Scraped(tmp_path, stride), Plain(stride)
    ends, last = {A: (1000, 2000), B: (1000, 2000)}, [0.0]
    found = scraped.scrape(1)
    for tick in range(1, 347):
        written = tick - late
        if 0 < written <= 320:
            rate = levels[written % len(levels)] * RATE + jumps.get(written, 0.0) * 100
            traffic = (constant(rate), constant(RATE / 10))
            how = {"stride": stride, "holes": missing, "resets": resets}
            ends[A] = scraped.ring.write(A, traffic, written, written, start=ends[A], **how)
            if written % stride == 0 and written not in missing:
                plain.write(written, ends[A])
        # the other port is not late
        ends[B] = scraped.ring.write(B, (constant(RATE / 2), constant(0.0)), tick, tick, start=ends[B])
        is_down = down is not None and down[0] <= tick < sum(down)
        scraped.ring.change(port(A, active=not is_down), port(B))
        if down is not None and tick in (down[0], sum(down)):
            scraped.history.change(A, tick, *((scraped.up, scraped.down)[:: 1 if is_down else -1]))
        if tick < 130:
            continue
        found = scraped.scrape(tick)
        plain.decide(tick)
        values = counters(found[0]) + counters(found[1])
        assert all(new >= old for old, new in zip(last, values, strict=len(last) > 1)), tick
        last = values
        moved, fell, jumped, observed, _ = plain.totals()
        sides = found[0].directions
        assert ([side.bytes_total for side in sides], found[0].resets, found[0].jumps) == (moved, fell, jumped), tick
        assert found[1].directions[0].bytes_total == pytest.approx(RATE / 2 * (tick - MAX_BEFORE - 1) / 100)
        if down is None:
            assert found[0].observed_seconds == pytest.approx(observed / 100), tick
    if down is None:
        used = [side.moments.utilization_seconds for side in found[0].directions if side.moments]
        assert used == pytest.approx([each / RATE for each in plain.totals()[-1]])
