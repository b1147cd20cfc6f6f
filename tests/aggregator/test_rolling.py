from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.aggregator.node import RollingSeconds

pushes = st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=4), max_size=12)


@given(pushes=pushes, window=st.integers(1, 7))
def test_a_window_is_the_last_values_pushed(pushes: list[list[int]], window: int) -> None:
    rolling = RollingSeconds(7, (1,))
    for values in pushes:
        rolling.push(np.array(values, dtype=float)[:, None])
    last = [value for values in pushes for value in values][-window:]
    assert rolling.sum(window)[0] == sum(last)
    assert rolling.max(window)[0] == max(last, default=0)


def test_missing_seconds_push_old_values_out() -> None:
    rolling = RollingSeconds(5, (1,))
    rolling.push(np.full((5, 1), 3.0))
    rolling.push_holes(3)
    assert rolling.sum(5)[0] == 6
    rolling.push_holes(1_000_000)
    assert rolling.sum(5)[0] == 0


def test_a_new_row_is_empty_and_the_others_stay() -> None:
    rolling = RollingSeconds(3, (1, 2))
    rolling.push(np.ones((2, 1, 2)))
    rolling.add_row()
    np.testing.assert_array_equal(rolling.sum(3), [[2, 2], [0, 0]])


def test_a_cleared_row_is_empty_and_the_others_stay() -> None:
    rolling = RollingSeconds(3, (2,))
    rolling.push(np.ones((2, 2)))
    rolling.clear_row(0)
    np.testing.assert_array_equal(rolling.sum(3), [0, 2])
