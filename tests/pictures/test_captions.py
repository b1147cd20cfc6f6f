from dataclasses import replace

import numpy as np
import pytest

from ibpulse.pictures.panels import describe_run, duration_text, rate_text
from tests.pictures.runs import take


@pytest.mark.parametrize(
    ("period_ns", "text"),
    [(1, "1 ns"), (500_000, "500 µs"), (10_000_000, "10 ms"), (2_290_000_000, "2.29 s"), (570_123_456, "570.1 ms")],
)
def test_a_duration_is_written_with_a_space(period_ns: int, text: str) -> None:
    assert duration_text(period_ns) == text


def test_a_rate_is_written_with_a_space() -> None:
    assert rate_text(0.1e9) == "0.1 GB/s"


def test_a_run_says_its_host_date_span_and_interval() -> None:
    run = take(np.zeros((2, 500)))
    assert describe_run(run) == "node7 · 2025-11-21 00:00:00 UTC · 5 s at 10 ms"
    assert describe_run(replace(run, host="", interval_ns=10**10)) == "2025-11-21 00:00:00 UTC · 83.33 min at 10 s"


def test_the_smallest_hole_is_said() -> None:
    rates = np.zeros((1, 100_000))
    rates[0, 7] = np.nan
    assert describe_run(take(rates)).endswith("0.1 % not measured")
