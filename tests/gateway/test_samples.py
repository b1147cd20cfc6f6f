"""Samples of a node from its windows: sums over rails, missing data, bins, and the line rates of the past."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.node import EventsAnswer
from ibpulse.core.answers.samples import History, Implausible, WindowHead
from ibpulse.core.client.transport import NodeArray
from ibpulse.gateway.samples import (
    NodeSamples,
    bin_samples,
    common_interval,
    find_places,
    find_rates,
    reduce_to_bins,
    sum_at,
)
from tests.fleet.small_answers import events_of, state_of
from tests.tables import for_each

START = 1_763_683_200_000
RAILS = ("mlx5_0:1", "mlx5_1:1")
NAN = float("nan")
FOLDS = {"max": max, "min": min, "mean": fmean}


def window(values: np.ndarray, start_ms: int = START, rails: Sequence[str] = RAILS, **changes: object) -> NodeArray:
    """A window of samples of 10 ms; `values` are (rails, 2, samples)."""
    points = values.shape[-1]
    head = {
        "interval_ms": 10,
        "resolution_ms": 10,
        "statistic": "max",
        "unit": "bytes_per_second",
        "start_ms": start_ms,
        "end_ms": start_ms + 10 * points,
        "points": points,
        "holes": 0,
        "implausible": Implausible(merged=0, unexplained=0, places=[]),
        "history": History(oldest_ms=START, newest_ms=start_ms),
        "coverage": "",
        "series": [f"{name} {way}" for name in rails for way in ("transmit", "receive")],
    }
    return NodeArray(WindowHead(**(head | changes)), values.reshape(-1, points).astype(np.float32))


def level(samples: int, first: float = 1.0, second: float = 2.0) -> np.ndarray:
    """Two rails, each with the same rate all the time."""
    return np.stack([np.full((2, samples), first), np.full((2, samples), second)])


def test_windows_one_after_another_are_one_series() -> None:
    values = np.arange(2 * 2 * 150, dtype=np.float32).reshape(2, 2, 150)
    samples = NodeSamples(10, 5000)
    for first, end in ((0, 70), (70, 100), (90, 150)):
        samples = samples.add(window(values[..., first:end], START + 10 * first))
    found, _ = samples.read(RAILS, START, START + 1500)
    assert np.array_equal(found, values.swapaxes(0, 1))
    assert (samples.start_ms, samples.end_ms) == (START, START + 1500)


def test_what_was_not_read_is_missing_and_never_zero() -> None:
    samples = NodeSamples(10, 5000).add(window(level(50)))
    samples = samples.add(window(level(50), START + 1000))
    sums, _ = samples.sum(RAILS, START, START + 2000)
    assert np.isnan(sums[:, 50:100]).all()
    assert (sums[:, :50] == 3).all()
    assert np.isnan(sums[:, 150:]).all()


def test_a_sum_misses_what_one_of_its_rails_misses() -> None:
    values = level(100)
    values[1, 0, 30] = NAN
    sums, _ = NodeSamples(10, 5000).add(window(values)).sum(RAILS, START, START + 1000)
    assert np.flatnonzero(np.isnan(sums[0])).tolist() == [30]
    assert not np.isnan(sums[1]).any()


def test_a_rail_without_any_sample_in_a_second_is_left_out_of_it() -> None:
    values = level(200)
    values[1, :, 100:] = NAN
    samples = NodeSamples(10, 5000).add(window(values))
    sums, _ = samples.sum(RAILS, START, START + 2000)
    assert sums[0, [0, 99, 100, 199]].tolist() == [3, 3, 1, 1]
    # while the second is not over, nobody knows whether it still comes
    assert np.isnan(samples.sum(RAILS, START + 1000, START + 1500, live=True)[0]).all()


def test_old_samples_give_way_and_a_clock_that_was_set_back_begins_anew() -> None:
    samples = NodeSamples(10, 1000).add(window(level(150)))
    assert samples.start_ms == START + 500
    assert np.isnan(samples.read(RAILS, START, START + 500)[0]).all()
    samples = samples.add(window(level(20), START - 10_000))
    assert (samples.start_ms, samples.end_ms) == (START - 10_000, START - 9800)
    assert np.isnan(samples.read(RAILS, START + 600, START + 700)[0]).all()


def test_a_new_rail_keeps_the_past_of_the_others() -> None:
    samples = NodeSamples(10, 5000).add(window(level(100)[:1], rails=RAILS[:1]))
    samples = samples.add(window(level(100), START + 1000))
    sums, _ = samples.sum(RAILS, START, START + 2000)
    assert sums[0, [0, 99, 100, 199]].tolist() == [1, 1, 3, 3]


def test_a_node_cannot_have_more_samples_kept_than_fit() -> None:
    rails = [f"mlx5_{number}:1" for number in range(1024)]
    fast = {"interval_ms": 1, "resolution_ms": 1, "end_ms": START + 10}
    with pytest.raises(DaemonError, match="1024 rails, each every 1 ms, more than are kept") as found:
        NodeSamples(1, 61_000).add(window(np.zeros((1024, 2, 10)), rails=rails, **fast))
    assert found.value.kind == "bad-answer"


@pytest.mark.parametrize(
    "changes",
    [{"series": ["mlx5_0:1 transmit"]}, {"resolution_ms": 20}, {"end_ms": START + 5}, {"start_ms": START + 3}],
)
def test_other_windows_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DaemonError, match="not as expected") as found:
        NodeSamples(10, 5000).add(window(level(10), **changes))
    assert found.value.kind == "bad-answer"


def test_merged_samples_are_marked_in_the_sum() -> None:
    marked = Implausible(merged=2, unexplained=0, places=[[2, 30, 2]])
    _, merged = NodeSamples(10, 5000).add(window(level(100), implausible=marked)).sum(RAILS, START, START + 1000)
    assert find_places(merged) == [(0, 30, 2)]


@given(
    rates=st.lists(st.sampled_from([0.0, 1.0, 5.0, NAN]), min_size=1, max_size=60),
    shift=st.integers(0, 9),
    interval=st.sampled_from([10, 8]),
    statistic=st.sampled_from(["max", "mean", "min"]),
)
def test_bins_have_the_statistic_of_their_samples(
    rates: list[float], shift: int, interval: int, statistic: str
) -> None:
    values = np.array([rates], dtype=np.float32)
    begin = START + shift - shift % 2 if interval == 8 else START
    bins = 1 + (begin + interval * (len(rates) - 1)) // 20 - begin // 20
    found, _ = reduce_to_bins(values, np.isnan(values), begin, interval, 20, bins, statistic)  # type: ignore[arg-type]
    for place in range(bins):
        inside = [
            rate
            for number, rate in enumerate(rates)
            if (begin + interval * number) // 20 == begin // 20 + place and not np.isnan(rate)
        ]
        assert found[0, place] == pytest.approx(FOLDS[statistic](inside) if inside else NAN, nan_ok=True)


@pytest.mark.parametrize("live", [False, True])
def test_rails_without_samples_add_nothing_however_many_there_are(live: bool) -> None:
    samples = NodeSamples(10, 5000).add(window(level(200)))
    unknown = [f"claimed_{number}:1" for number in range(5000)]
    usual, _ = samples.sum(RAILS, START, START + 1000, live=live)
    tracemalloc.start()
    found, merged = samples.sum((*RAILS, *unknown), START, START + 1000, live=live)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    np.testing.assert_array_equal(found, usual)
    assert not merged.any()
    # a job may have no ports on a node, and a node none of those that a job claims
    for rails in ((), unknown):
        nothing, merged = samples.sum(rails, START, START + 1000, live=live)
        assert (nothing.shape, merged.shape) == ((2, 100), (2, 100))
        assert np.isnan(nothing).all()
        assert samples.left_out(rails) == []
    assert samples.left_out(("claimed_1:1", RAILS[0])) == ["claimed_1:1"]


@given(
    rates=st.lists(st.sampled_from([0.0, 1.0, 5.0, NAN]), min_size=3, max_size=20),
    length=st.sampled_from([30, 70, 100]),
    shift=st.integers(0, 5),
    statistic=st.sampled_from(["max", "mean", "min"]),
)
def test_samples_longer_than_bins_count_for_all_that_they_touch(
    rates: list[float], length: int, shift: int, statistic: str
) -> None:
    begin = START // length * length
    lengths = {"interval_ms": length, "resolution_ms": length, "end_ms": begin + length * len(rates)}
    values = np.array([[rates, rates]])
    samples = NodeSamples(length, 10_000).add(window(values, begin, RAILS[:1], **lengths))
    first, last = -(-begin // 20) * 20 + 20 * shift, (begin + length * len(rates)) // 20 * 20
    found, _ = bin_samples(samples, RAILS[:1], first, last, 20, statistic)  # type: ignore[arg-type]
    for place in range(max(0, (last - first) // 20)):
        at = first + 20 * place
        touched = [
            rate
            for number, rate in enumerate(rates)
            if begin + length * number < at + 20 and at < begin + length * (number + 1) and not np.isnan(rate)
        ]
        np.testing.assert_equal(found[0, place], np.float32(FOLDS[statistic](touched) if touched else NAN))


def test_the_grid_is_that_of_most_nodes() -> None:
    assert [common_interval(each, 10) for each in ((), (10, 10, 1000), (1000, 10), (5, 10, 10, 5))] == [
        10,
        10,
        1000,
        10,
    ]


FAST, SLOW, NOW = 50e9, 25e9, 1_763_683_200_000


def state(rate: float | None) -> dict[str, Any]:
    return state_of(state="ACTIVE", active=True, rate_bytes_per_second=rate)


def happened(*events: tuple[int, str, float | None, float | None], left_out: int = 0) -> EventsAnswer:
    """Events at a time in s, each of a port, with the line rates before and after; 0 for a port that is not there."""
    found = [
        {
            "time_ms": NOW + 1000 * second,
            "kind": "rate-change",
            "subject": subject,
            "before": None if before == 0 else state(before),
            "after": None if after == 0 else state(after),
        }
        for second, subject, before, after in events
    ]
    return EventsAnswer.model_validate_json(events_of(*found, left_out=left_out))


DOWN_AND_UP = ((5, "mlx5_0:1", FAST, SLOW), (8, "mlx5_0:1", SLOW, FAST))
GONE_AND_BACK = ((5, "mlx5_0:1", FAST, 0), (8, "mlx5_0:1", 0, SLOW))
OTHER = (5, "mlx5_1:1", SLOW, FAST)


# events, those left out, the rate now, and the rates at times
@for_each(
    {
        "of another port": ((OTHER,), 0, FAST, {-100: FAST, 0: FAST, 100: FAST}),
        "from its event on": (DOWN_AND_UP, 0, None, {-100: FAST, 4: FAST, 5: SLOW, 7: SLOW, 8: FAST, 9: FAST}),
        "gone and back": (GONE_AND_BACK, 0, SLOW, {4: FAST, 6: FAST, 9: SLOW}),
        "appeared": (GONE_AND_BACK[1:], 0, FAST, {4: SLOW, 9: SLOW}),
        "unknown": ((), 0, None, {0: NAN}),
        "unknown before its event": (((5, "mlx5_0:1", None, SLOW),), 0, FAST, {4: NAN, 6: SLOW}),
        "before the first event that was sent": ((OTHER, DOWN_AND_UP[1]), 1, FAST, {4: NAN, 6: SLOW, 9: FAST}),
        "before the first one of another port": ((OTHER,), 1, FAST, {4: NAN, 6: FAST}),
    }
)
def test_the_line_rates_of_the_past(
    events: tuple[tuple[int, str, float | None, float | None], ...],
    left_out: int,
    now: float | None,
    expected: dict[int, float],
) -> None:
    rates = find_rates("mlx5_0:1", now, happened(*events, left_out=left_out))
    found = rates.at(np.array([NOW + 1000 * second for second in expected]))
    np.testing.assert_array_equal(found, [*expected.values()])


def test_a_sum_is_known_if_all_its_parts_are() -> None:
    one, other = find_rates("mlx5_0:1", FAST, happened()), find_rates("mlx5_1:1", None, happened())
    times = np.array([NOW])
    assert sum_at([one, one], times).tolist() == [2 * FAST]
    assert np.isnan(sum_at([one, other], times)).all()
