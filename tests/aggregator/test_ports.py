"""Numbers of single ports against closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, summarize
from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS, PortSnapshot, UtilizationMoments
from ibpulse.core.events import PortHistory
from ibpulse.core.model import DeviceIdentity, PortState
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.plausible import MAX_BEFORE, NO_MERGES, Merges
from tests.aggregator.rings import RATE, Ring, Traffic, constant, follow, port, square, started, update

A = "mlx5_0:1"
IDLE = constant(0.0)


def sampled(
    path: Path, traffic: tuple[Traffic, Traffic], seconds: int = 3, *, interval_ms: int = 10, **written: Any
) -> PortSnapshot:
    """The one port of a ring that was filled for some whole seconds next to a running aggregator."""
    ring, aggregator = started(path, port(A), interval_ms=interval_ms)
    ring.write(A, traffic, 1, seconds * ring.ticks_per_second, **written)
    return update(ring, aggregator, seconds).ports[0]


def moments_of(found: PortSnapshot, way: int = 0) -> UtilizationMoments:
    moments = found.directions[way].moments
    assert moments is not None
    return moments


@pytest.mark.parametrize("interval_ms", [1, 4, 10, 100, 1000])
def test_constant_traffic_has_full_duty_no_variation_and_its_rate_as_peak(tmp_path: Path, interval_ms: int) -> None:
    found = sampled(tmp_path, (constant(20e9), constant(5e9)), 4, interval_ms=interval_ms)
    for window in found.directions[0].windows:
        assert window.peak_bytes_per_second == pytest.approx(20e9)
        assert window.duty_cycle_ratio == 1.0
        assert window.burstiness_cv == pytest.approx(0, abs=1e-6)
    assert found.directions[1].windows[0].peak_bytes_per_second == pytest.approx(5e9)


def test_moments_of_constant_traffic_are_its_utilisation_times_time(tmp_path: Path) -> None:
    found = sampled(tmp_path, (constant(0.4 * RATE), IDLE))
    assert found.observed_seconds == pytest.approx(3 - 0.01)  # the first tick has nothing before it
    moments = moments_of(found)
    assert moments.utilization_seconds == pytest.approx(0.4 * found.observed_seconds)
    assert moments.utilization_squared_seconds == pytest.approx(0.16 * found.observed_seconds)
    assert moments.active_utilization_seconds == pytest.approx(0.4 * found.observed_seconds)
    assert moments.active_utilization_squared_seconds == pytest.approx(0.16 * found.observed_seconds)
    assert found.directions[0].active_seconds == pytest.approx(found.observed_seconds)
    assert found.directions[1].active_seconds == 0


def test_another_device_under_the_name_begins_at_0(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, replace(port(A), device=DeviceIdentity("a")))
    ring.write(A, (constant(30e9), constant(30e9)), 1, 350, resets=(120,))
    before = follow(ring, aggregator, 1, 3).ports[0]
    assert (before.resets, before.replacements) == (1, 0)
    # its counters are far above those of the first device
    ring.change(replace(port(A), device=DeviceIdentity("b")))
    ring.file.assign(A, 4, 1, anew=True)
    ring.write(A, (constant(4e9), constant(5e9)), 351, 600, start=(10**15, 10**15))
    for _ in range(2):
        found = follow(ring, aggregator, 4, 6).ports[0]
        assert (found.resets, found.replacements) == (2, 1)
        # from its first sample, at tick 351, to the end of the sixth second
        assert [way.bytes_total for way in found.directions] == pytest.approx(
            [249 * 0.01 * rate for rate in (4e9, 5e9)]
        )
        assert found.observed_seconds == pytest.approx(2.49)
        assert moments_of(found).utilization_seconds == pytest.approx(2.49 * 4e9 / RATE)
        assert max(window.peak_bytes_per_second or 0 for window in found.directions[0].windows) == pytest.approx(4e9)


def test_every_sample_is_in_the_histogram(tmp_path: Path) -> None:
    found = sampled(tmp_path, (square(0.45 * RATE, 25, 75), IDLE), 4)
    histogram = moments_of(found).histogram
    counts = np.diff([0, *histogram.cumulative])
    idle, busy = UTILIZATION_BUCKETS.index(0.002), UTILIZATION_BUCKETS.index(0.5)
    assert counts[busy] == 4 * 25 - 1
    assert counts[idle] == 4 * 75
    assert counts.sum() == 399
    assert histogram.total == pytest.approx(99 * 0.45)


def test_an_unread_counter_is_missing_for_the_port_but_not_for_the_other_total(tmp_path: Path) -> None:
    found = sampled(tmp_path, (constant(20e9), constant(10e9)), absent={(tick, 0) for tick in range(101, 201)})
    assert found.observed_seconds == pytest.approx(2.99 - 1.01)
    assert [side.bytes_total for side in found.directions] == [pytest.approx(20e9 * 2.99), pytest.approx(10e9 * 2.99)]
    assert moments_of(found, 1).histogram.cumulative[-1] == 299 - 101


def test_a_counter_that_was_never_read_has_no_total(tmp_path: Path) -> None:
    found = sampled(tmp_path, (constant(20e9), IDLE), absent={(tick, 0) for tick in range(1, 401)})
    assert [side.bytes_total for side in found.directions] == [None, 0]
    assert found.directions[0].windows[0].peak_bytes_per_second is None
    assert found.directions[1].windows[0].duty_cycle_ratio is None


@pytest.mark.parametrize("stride", [2, 3, 7, 150])
def test_a_strided_port_has_the_same_sums_as_any_other(tmp_path: Path, stride: int) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, (constant(20e9), constant(1e9)), 1, 1600, stride=stride)
    found = follow(ring, aggregator, 1, 15)
    assert found.end_tick >= 700
    port_found = found.ports[0]
    newest = ring.now_after(15) // stride * stride
    seen = newest - MAX_BEFORE * stride - stride
    assert port_found.observed_seconds == pytest.approx(seen / 100)
    assert moments_of(port_found).histogram.cumulative[-1] == seen
    assert moments_of(port_found).utilization_seconds == pytest.approx(0.4 * seen / 100)
    assert port_found.directions[0].bytes_total == pytest.approx(20e9 * seen / 100)
    assert port_found.sampling_interval_seconds == pytest.approx(stride * 0.01)
    assert port_found.directions[0].windows[0].burstiness_cv == pytest.approx(0, abs=1e-6)


def test_a_port_that_is_not_active_has_nothing_but_totals(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A, active=False))
    ring.write(A, (constant(20e9), IDLE), 1, 300)
    found = update(ring, aggregator, 3).ports[0]
    assert found.directions[0].bytes_total == pytest.approx(20e9 * 2.99)
    assert found.observed_seconds == 0
    assert found.directions[0].moments is None
    assert found.directions[0].windows[0].peak_bytes_per_second is None


def test_a_port_of_unknown_rate_has_activity_but_no_utilisation(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A, rate=None))
    ring.write(A, (constant(20e9), IDLE), 1, 300)
    found = update(ring, aggregator, 3).ports[0]
    assert found.directions[0].moments is None
    assert found.directions[0].active_seconds == pytest.approx(2.99)
    assert found.directions[0].windows[0].duty_cycle_ratio == 1.0


def test_utilisation_stays_when_the_rate_is_lost(tmp_path: Path) -> None:
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, (constant(20e9), IDLE), 1, 400)
    before = moments_of(update(ring, aggregator, 2).ports[0])
    ring.change(port(A, active=False))
    assert moments_of(update(ring, aggregator, 3).ports[0]) == before


def test_ports_of_different_strides_and_rates_do_not_mix(tmp_path: Path) -> None:
    names = ["efa_0:1", "mlx5_0:1", "mlx5_1:2"]
    rates = [12.5e9, 50e9, 25e9]
    ring, aggregator = started(tmp_path, *[port(name, rate=rate) for name, rate in zip(names, rates, strict=True)])
    for stride, (name, rate) in zip((3, 1, 2), zip(names, rates, strict=True), strict=True):
        ring.write(name, (constant(rate / 2), constant(rate / 10)), 1, 500, stride=stride)
    for found in update(ring, aggregator, 4).ports:
        assert moments_of(found).utilization_seconds == pytest.approx(0.5 * found.observed_seconds)
        assert moments_of(found, 1).utilization_seconds == pytest.approx(0.1 * found.observed_seconds)


def test_effective_resolution_is_measured_port_after_port(tmp_path: Path) -> None:
    others = [f"mlx5_{number}:1" for number in range(1, 5)]
    ring, aggregator = started(tmp_path, port(A), port("efa_0:1"), *map(port, others))
    for name in (A, *others):
        ring.write(name, (square(20e9, 1, 3), IDLE), 1, 900)
    ring.write("efa_0:1", (constant(20e9), IDLE), 1, 900, stride=3)
    first, *_, last = (
        [found.effective_resolution_seconds for found in update(ring, aggregator, at).ports] for at in range(4, 9)
    )
    assert 1 <= sum(value is None for value in first) < 6
    assert last == [pytest.approx(0.04), pytest.approx(0.03), *[pytest.approx(0.04)] * 4]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_traffic_with_missing_data_agrees_with_a_plain_loop(tmp_path: Path, data: st.DataObject) -> None:
    levels = data.draw(st.lists(st.sampled_from([0.0, 0.05e9, 1e9, 20e9, 49e9]), min_size=1, max_size=12))
    holes = data.draw(st.sets(st.integers(2, 299), max_size=40))
    rates = {tick: levels[tick % len(levels)] for tick in range(1, 301)}
    ring, aggregator = started(tmp_path, port(A))
    ring.write(A, (lambda tick: rates[tick], IDLE), 1, 300, holes=holes)
    found = follow(ring, aggregator, 1, 3).ports[0]
    good = [tick for tick in range(2, 301) if tick not in holes and tick - 1 not in holes]
    values = np.array([rates[tick] for tick in good])
    active = values[values > 0.1e9]
    window = found.directions[0].windows[1]
    assert found.observed_seconds == pytest.approx(0.01 * len(good))
    # single ticks on and off are what a counter that is refreshed late looks like
    if found.effective_resolution_seconds is not None and found.effective_resolution_seconds > 0.015:
        assert (window.peak_bytes_per_second, window.duty_cycle_ratio, window.burstiness_cv) == (None,) * 3
        return
    assert window.peak_bytes_per_second == pytest.approx(values.max(), rel=1e-6)
    assert window.duty_cycle_ratio == pytest.approx(len(active) / len(values))
    if len(active) >= 2:
        assert window.burstiness_cv == pytest.approx(active.std() / active.mean(), rel=1e-5, abs=1e-6)
    assert moments_of(found).utilization_seconds == pytest.approx(values.sum() * 0.01 / RATE, rel=1e-6)


def test_a_stride_that_changes_makes_no_false_number(tmp_path: Path) -> None:
    """Bursts of 20 GB/s, sampled at every tick, then at every tenth, then at every tick, and followed all the while."""
    bursts = square(20e9, 30, 70)
    ring, aggregator = started(tmp_path, port(A))
    counters = ring.write(A, (bursts, constant(1e9)), 1, 200)
    peaks, totals = [], []
    for second in range(1, 18):
        # it changes within a second, and not where a tenth tick lies
        for begin, stride in ((1, 10 if 6 <= second <= 11 else 1), (48, 10 if 5 <= second <= 10 else 1)):
            first, last = 100 * (second + 1) + begin, 100 * (second + 1) + (47 if begin == 1 else 100)
            counters = ring.write(A, (bursts, constant(1e9)), first, last, stride=stride, start=counters)
        found = update(ring, aggregator, second)
        sides = found.ports[0].directions
        peaks += [window.peak_bytes_per_second or 0.0 for window in sides[0].windows]
        totals.append(sides[0].bytes_total or 0)
    assert max(peaks) == pytest.approx(20e9)
    assert totals == sorted(totals)
    decided = ring.now_after(17) - MAX_BEFORE
    assert totals[-1] == pytest.approx(sum(map(bursts, range(2, decided + 1))) / 100)
    # each change is a hole of a stride at most, and as much may be lost where a second meets one of another stride
    assert decided / 100 - 0.4 <= found.ports[0].observed_seconds < decided / 100
    assert found.ports[0].sampling_interval_seconds == pytest.approx(0.01)


def test_a_resolution_measured_at_another_stride_is_forgotten(tmp_path: Path) -> None:
    """Few ports a second are measured: until their turn comes, the others are not those whose counters stand still."""
    names = (A, *(f"mlx5_{number}:1" for number in range(1, 6)))
    ring, aggregator = started(tmp_path, *map(port, names))
    ends = [ring.write(name, (constant(20e9), IDLE), 1, 6500, stride=10) for name in names]
    found = follow(ring, aggregator, 58, 64)
    assert [side.effective_resolution_seconds for side in found.ports] == [pytest.approx(0.1)] * 6
    for name, counters in zip(names, ends, strict=True):
        ring.write(name, (constant(20e9), IDLE), 6501, 6620, start=counters)
    found = update(ring, aggregator, 66)
    # every tick since, although most of the last minute was sampled at every tenth
    resolutions = [side.effective_resolution_seconds for side in found.ports]
    assert {value if value is None else round(value, 6) for value in resolutions} == {0.01, None}
    assert [side.directions[0].windows[0].peak_bytes_per_second for side in found.ports] == [pytest.approx(20e9)] * 6


B = "mlx5_1:1"
LATE = {450, 520, 999}
"""Ticks at which half of the bytes of the port are missing; the next tick has them."""
NOTICE = (
    "mlx5_0:1 counts more than its line rate of 50GB/s can carry: there is traffic within the adapter (loopback), or "
    "the rate is wrong"
)


def late(tick: int) -> float:
    part = 0.8
    return RATE * ((part / 2 if tick in LATE else part) + (part / 2 if tick - 1 in LATE else 0.0))


def make(
    tmp_path: Path, traffic: Traffic = late, last: int = 1400, history: PortHistory | None = None
) -> tuple[Ring, Aggregator]:
    ring = Ring.create(tmp_path, port(A), port(B))
    aggregator = Aggregator(ring.reader, AggregatorOptions(), history)
    for end in (200, last):
        ring.write(A, (traffic, constant(1e9)), 1, end)
        ring.write(B, (constant(1e9), constant(1e9)), 1, end)
        if end == 200:
            # the first second sees the ring end about now
            update(ring, aggregator, 1)
    return ring, aggregator


def test_a_late_counter_is_merged_and_counted_once_and_is_no_peak(tmp_path: Path) -> None:
    ring, aggregator = make(tmp_path)
    snapshots = [update(ring, aggregator, second) for second in range(3, 13)]
    assert [found.ports[0].implausible_samples for found in snapshots] == [0, 0, 1, 2, 2, 2, 2, 3, 3, 3]
    assert snapshots[-1].ports[1].implausible_samples == 0
    assert snapshots[-1].ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(0.8 * RATE)
    decided = ring.now_after(12) - MAX_BEFORE
    assert snapshots[-1].ports[0].directions[0].bytes_total == pytest.approx(0.8 * RATE * (decided - 1) / 100)
    assert snapshots[-1].fabric.notices == ()


def test_a_second_takes_samples_of_the_next_into_account(tmp_path: Path) -> None:
    """The sample at tick 1000, the last of its second, is above the line rate because that at 999 was late."""
    ring, aggregator = make(tmp_path)
    found = follow(ring, aggregator, 9, 11)
    summary = summarize(ring.reader, [port(A)], PortHistory(), AggregatorOptions(), 1, 10 * 10**9, 14 * 10**9)
    assert summary.ports[0].transmit.peak_bytes_per_second == pytest.approx(0.8 * RATE)
    assert found.node[0].bandwidth_peak_bytes_per_second == pytest.approx(0.8 * RATE + 3e9)


def test_what_no_line_can_carry_is_left_as_it_is_and_pointed_out_for_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring, aggregator = make(tmp_path, lambda tick: 1.5 * RATE if 301 <= tick <= 400 else 0.0, 7000)
    assert update(ring, aggregator, 2).fabric.notices == ()
    found = update(ring, aggregator, 4)
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(1.5 * RATE)
    assert found.fabric.notices == aggregator.with_notices(ring.fabric).notices == (NOTICE,)
    assert update(ring, aggregator, 63).fabric.notices == (NOTICE,)
    assert update(ring, aggregator, 64).fabric.notices == ()
    assert caplog.messages.count(NOTICE) == 1
    # the first samples could be merged with the silence before them
    assert found.ports[0].implausible_samples == 3


@pytest.mark.parametrize(("earlier", "merged"), [(0, True), (60, False)])
def test_a_link_that_trained_up_between_two_readings_merges_nothing(tmp_path: Path, earlier: int, merged: bool) -> None:
    """It was seen at 250 GB/s from tick 550 on, and may have had that rate from 490 on."""
    history = PortHistory()
    old = PortState("ACTIVE", "LinkUp", True, RATE, True)
    fast = PortState("ACTIVE", "LinkUp", True, 5 * RATE, True)
    history.change(A, 550, old, fast, earlier)
    ring, aggregator = make(tmp_path, lambda tick: 3 * RATE if tick >= 520 else 0.0, 1400, history)
    found = follow(ring, aggregator, 1, 8)
    assert (found.ports[0].implausible_samples > 0) is merged
    assert found.ports[0].directions[0].windows[0].peak_bytes_per_second == pytest.approx(3 * RATE)


def test_samples_from_before_the_start_are_not_counted(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port(A))
    ring.write(A, (late, constant(1e9)), 1, 700)
    aggregator = Aggregator(ring.reader, AggregatorOptions())
    ring.write(A, (late, constant(1e9)), 1, 1400)
    # of those at 451, 521 and 1000, only the last is after the start
    assert follow(ring, aggregator, 7, 11).ports[0].implausible_samples == 1


def test_a_late_sample_at_the_end_of_a_second_is_counted_once(tmp_path: Path) -> None:
    """The counter is late at tick 500, the last of its second, and right again at 501."""
    ring, aggregator = make(tmp_path, lambda tick: RATE * {500: 0.4, 501: 1.2}.get(tick, 0.8))
    assert [update(ring, aggregator, second).ports[0].implausible_samples for second in (4, 5, 6, 7)] == [0, 0, 1, 1]


def test_a_row_given_to_another_port_forgets_what_no_line_could_carry() -> None:
    table = PortTable(1e6, 10)
    first, second = (RingPort(port(name), 0, 1) for name in (A, B))
    rows, _ = table.rows_of([first], [A])
    impossible = Merges(NO_MERGES.places, NO_MERGES.counts, np.array([[0, 0, 150]]))
    table.add_merges(rows, impossible, 3, 100, counting=True)
    assert table.counts.unexplained[rows].tolist() == [4]
    # the ring has given the slot of the first port to the second
    assert table.counts.unexplained[table.rows_of([second], [B])[0]].tolist() == [0]
