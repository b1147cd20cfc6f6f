"""Measured figures replace the last cells of their rows; the rest of the page is left as it is."""

from __future__ import annotations

import pytest

from bench.accuracy import fill

PAGE = """\
# Accuracy

## One

| number | definition | error | busy |
|---|---|---|---|
| mean | bytes ÷ time | 1 % | - |
| peak | highest [rate](x.md) | 2 % | - |

## Two

| number | error |
|---|---|
| mean | 3 % |
"""


def test_figures_replace_the_last_cells_of_their_rows() -> None:
    filled = fill(PAGE, "One", {"mean": ["+4 %", "+5 %"]})
    assert filled == PAGE.replace("| 1 % | - |", "| +4 % | +5 % |")
    assert fill(PAGE, "Two", {"mean": ["6 %"]}) == PAGE.replace("| 3 % |", "| 6 % |")


def test_a_figure_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no row 'peak' under 'Two'"):
        fill(PAGE, "Two", {"mean": ["6 %"], "peak": ["7 %"]})
