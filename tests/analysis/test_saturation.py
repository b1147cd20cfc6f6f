from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.statistics.signature import (
    MoeSaturationOptions,
    MoeSaturationState,
    Saturation,
    SaturationOptions,
    Signature,
    advance_moe_saturation,
    resembles_moe_saturation,
    seconds_above,
)

OPTIONS = SaturationOptions(window_seconds=5)
MOE = MoeSaturationOptions(hold_seconds=10, release_seconds=3)


def run(per_second: np.ndarray) -> list[tuple[bool, float]]:
    """State and seconds after each second of utilisation (seconds, ticks) of one row, NaN where data is missing."""
    tick, found, states = 1 / per_second.shape[1], Saturation(OPTIONS), []
    found.fit_rows(1)
    for utilization in per_second:
        measured = np.where(np.isnan(utilization), 0.0, tick)
        above = seconds_above(utilization, measured, OPTIONS.level)
        found.advance(np.array([above]), np.array([measured.sum()]))
        states.append((bool(found.saturated[0]), float(found.saturated_seconds[0])))
    return states


@given(
    levels=st.lists(st.lists(st.sampled_from([0.1, 0.84, 0.85, 0.99]), min_size=4, max_size=4), min_size=5, max_size=9)
)
def test_saturated_is_where_the_upper_median_of_the_window_reaches_the_level(levels: list[list[float]]) -> None:
    samples = np.array(levels)
    last = np.sort(samples[-5:].ravel())
    # of an even number of samples half are at or above the upper median
    assert run(samples)[-1][0] == (last[len(last) // 2] >= OPTIONS.level)


def test_a_busy_link_is_saturated_once_half_a_window_was_seen() -> None:
    states = run(np.full((8, 10), 0.95))
    assert [saturated for saturated, _ in states] == [False, False, True, True, True, True, True, True]
    assert states[-1][1] == pytest.approx(6.0)


def test_a_link_that_is_full_for_less_than_half_of_the_time_is_not_saturated() -> None:
    assert not run(np.tile([0.99, 0.99, 0.3, 0.3, 0.3], (10, 2)))[-1][0]


def test_the_state_ends_when_the_window_has_moved_on() -> None:
    states = run(np.concatenate((np.full((5, 10), 0.95), np.zeros((5, 10)))))
    assert [saturated for saturated, _ in states[5:]] == [True, True, False, False, False]


def test_missing_data_is_not_observed_and_too_much_of_it_gives_no_answer() -> None:
    samples = np.full((5, 10), 0.95)
    samples[:, :4] = np.nan
    states = run(samples)
    assert states[-1][0]
    samples[:, :6] = np.nan
    assert not run(samples)[-1][0]


def test_only_observed_time_counts_as_saturated_time() -> None:
    samples = np.full((5, 10), 0.95)
    samples[4, :5] = np.nan
    states = run(samples)
    assert states[4][1] - states[3][1] == pytest.approx(0.5)


def test_rows_are_independent_and_new_ones_begin_at_zero() -> None:
    found = Saturation(OPTIONS)
    found.fit_rows(2)
    for _ in range(5):
        found.advance(np.array([0.9, 0.1]), np.ones(2))
    assert found.saturated.tolist() == [True, False]
    found.fit_rows(3, [0])
    assert (found.saturated.tolist(), found.saturated_seconds.tolist()) == ([False] * 3, [0.0] * 3)
    found.advance(np.ones(3), np.ones(3))
    assert not found.saturated.any()


def test_without_counting_only_the_state_advances() -> None:
    found = Saturation(OPTIONS)
    found.fit_rows(1)
    for _ in range(5):
        found.advance(np.ones(1), np.ones(1), counting=False)
    assert (found.saturated.tolist(), found.saturated_seconds.tolist()) == ([True], [0.0])


def test_time_above_the_level_includes_the_level_and_excludes_missing_data() -> None:
    utilization = np.array([[0.85, 0.2, np.nan, 0.9], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(seconds_above(utilization, np.full((2, 4), 0.25), 0.85), [0.5, 0.0])


GOOD = Signature("moe_like", 0.5)


@pytest.mark.parametrize(
    ("signature", "duty", "peak", "expected"),
    [
        (GOOD, 0.92, 0.94, True),
        (replace(GOOD, confidence=0.29), 0.92, 0.94, False),
        (Signature("unknown", 0.5), 0.92, 0.94, False),
        (Signature("dense_like", 0.5), 0.92, 0.94, False),
        (GOOD, 0.84, 0.94, False),
        (GOOD, 0.92, 0.84, False),
        (GOOD, float("nan"), 0.94, False),
        (GOOD, 0.92, float("nan"), False),
    ],
)
def test_all_conditions_of_moe_saturation_must_hold(
    signature: Signature, duty: float, peak: float, expected: bool
) -> None:
    assert resembles_moe_saturation(signature, duty, peak, MOE) is expected


def advance(states: str, options: MoeSaturationOptions = MOE) -> list[MoeSaturationState]:
    found = []
    state = MoeSaturationState()
    for mark in states:
        state = advance_moe_saturation(state, mark == "+", options)
        found.append(state)
    return found


def test_moe_saturation_begins_when_the_conditions_have_held_long_enough() -> None:
    assert [state.saturated for state in advance("+" * 12)] == [False] * 9 + [True] * 3


def test_a_short_pause_neither_ends_nor_advances_it() -> None:
    assert [state.saturated for state in advance("++++++--++++++")] == [False] * 11 + [True] * 3
    assert advance("+" * 10 + "--")[-1].saturated


def test_a_long_pause_ends_it_and_the_conditions_have_to_hold_again() -> None:
    states = advance("+" * 10 + "---" + "+" * 9)
    assert [state.saturated for state in states[10:13]] == [True, True, False]
    assert not states[-1].saturated
    assert advance_moe_saturation(states[-1], True, MOE).saturated


def test_time_in_the_state_only_grows_and_is_counted_while_it_is_on() -> None:
    states = advance("+" * 12 + "-" * 5 + "+" * 10)
    times = [state.saturated_seconds for state in states]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(sum(state.saturated for state in states))


@given(marks=st.text("+-", max_size=80))
def test_it_is_never_on_before_its_time_nor_after_a_long_pause(marks: str) -> None:
    for place, state in enumerate(advance(marks)):
        seen = marks[: place + 1]
        if state.saturated:
            assert seen.count("+") >= MOE.hold_seconds
            assert not seen.endswith("---")
