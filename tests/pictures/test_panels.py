from dataclasses import replace

import numpy as np

from ibpulse.pictures.panels import describe_run
from tests.pictures.runs import take


def test_a_run_says_its_host_date_span_and_interval() -> None:
    run = take(np.zeros((2, 500)))
    assert describe_run(run) == "node7 · 2025-11-21 00:00:00 UTC · 5 s at 10 ms"
    assert describe_run(replace(run, host="", interval_ns=10**10)) == "2025-11-21 00:00:00 UTC · 83.33 min at 10 s"


def test_the_smallest_hole_is_said() -> None:
    rates = np.zeros((1, 100_000))
    rates[0, 7] = np.nan
    assert describe_run(take(rates)).endswith("0.1 % missing")
