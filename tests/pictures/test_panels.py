from dataclasses import replace

import numpy as np

from ibpulse.workbench.pictures.panels import describe_run, head_lines, wrap
from tests.pictures.runs import take


def test_a_run_says_its_host_date_span_and_interval() -> None:
    run = take(np.zeros((2, 500)))
    assert describe_run(run) == "node7 · 2025-11-21 00:00:00 UTC · 5 s at 10 ms"
    assert describe_run(replace(run, host="", interval_ns=10**10)) == "2025-11-21 00:00:00 UTC · 83.33 min at 10 s"


def test_a_simulated_run_says_so_first() -> None:
    run = replace(take(np.zeros((2, 500))), simulated=True)
    assert describe_run(run) == "SIMULATED · node7 · 2025-11-21 00:00:00 UTC · 5 s at 10 ms"


def test_the_smallest_hole_is_said() -> None:
    rates = np.zeros((1, 100_000))
    rates[0, 7] = np.nan
    assert describe_run(take(rates)).endswith("0.1 % missing")


def test_lines_break_between_parts_and_never_between_a_number_and_its_unit() -> None:
    rates = np.zeros((1, 1000))
    rates[0, 7:12] = np.nan
    run = take(rates)
    for width in np.arange(1.6, 8.0, 0.1):
        lines = head_lines(run, float(width))
        assert " · ".join(lines) == describe_run(run)
        assert any(line.endswith("0.5 % missing") for line in lines)
        assert max(map(len, lines)) <= width / (8 * 0.0082)


def test_a_part_that_is_wider_than_a_line_is_cut() -> None:
    assert wrap(["a" * 50, "bc"], 1.0) == ["a" * 19 + "…", "bc"]
