"""The line rates that rails had, from the events of their node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ibpulse.core.answers.events import EventsAnswer
from ibpulse.gateway.samples import find_rates, sum_at
from tests.fleet.small_answers import events_of, state_of

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


def at(found: EventsAnswer, now: float | None, *seconds: int) -> list[float]:
    rates = find_rates("mlx5_0:1", now, found)
    return rates.at(np.array([NOW + 1000 * second for second in seconds])).tolist()


def test_a_rail_without_events_had_the_rate_that_it_has() -> None:
    assert at(happened((5, "mlx5_1:1", SLOW, FAST)), FAST, -100, 0, 100) == [FAST] * 3


def test_a_rate_is_in_force_from_its_event_on() -> None:
    found = happened((5, "mlx5_0:1", FAST, SLOW), (8, "mlx5_0:1", SLOW, FAST))
    assert at(found, None, -100, 4, 5, 7, 8, 9) == [FAST, FAST, SLOW, SLOW, FAST, FAST]


def test_a_port_that_appeared_or_disappeared_keeps_the_rate_that_is_known() -> None:
    found = happened((5, "mlx5_0:1", FAST, 0), (8, "mlx5_0:1", 0, SLOW))
    assert at(found, SLOW, 4, 6, 9) == [FAST, FAST, SLOW]
    assert at(happened((8, "mlx5_0:1", 0, SLOW)), FAST, 4, 9) == [SLOW, SLOW]


@pytest.mark.parametrize(("now", "expected"), [(None, math.nan), (FAST, FAST)])
def test_an_unknown_rate_stays_unknown(now: float | None, expected: float) -> None:
    assert at(happened(), now, 0) == pytest.approx([expected], nan_ok=True)
    assert at(happened((5, "mlx5_0:1", None, SLOW)), now, 4, 6) == pytest.approx([math.nan, SLOW], nan_ok=True)


def test_before_the_first_event_that_was_sent_nothing_is_known() -> None:
    found = happened((5, "mlx5_1:1", SLOW, FAST), (8, "mlx5_0:1", SLOW, FAST), left_out=1)
    assert at(found, FAST, 4, 6, 9) == pytest.approx([math.nan, SLOW, FAST], nan_ok=True)
    assert at(happened((5, "mlx5_1:1", SLOW, FAST), left_out=1), FAST, 4, 6) == pytest.approx(
        [math.nan, FAST], nan_ok=True
    )


def test_a_sum_is_known_if_all_its_parts_are() -> None:
    one, other = find_rates("mlx5_0:1", FAST, happened()), find_rates("mlx5_1:1", None, happened())
    times = np.array([NOW])
    assert sum_at([one, one], times).tolist() == [2 * FAST]
    assert np.isnan(sum_at([one, other], times)).all()
