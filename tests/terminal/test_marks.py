"""Sparklines, bars and numbers as text."""

from __future__ import annotations

import math

import pytest

from ibpulse.terminal.screen import ASCII, BLOCKS, bar, duration, gigabytes, percent, sparkline


def test_a_sparkline_rises_with_its_values_and_tells_nothing_from_not_known() -> None:
    shares = [0, 1e-9, 0.125, 0.5, 0.94, 1.0, 3.0, -1.0, math.nan]
    assert sparkline(shares, BLOCKS) == " ▁▁▄███ ·"
    assert sparkline(shares, ASCII) == " ..=@@@ ?"


def test_each_level_has_a_character_of_its_own() -> None:
    for marks in (BLOCKS, ASCII):
        steps = len(marks.levels) - 1
        assert sparkline([level / steps for level in range(steps + 1)], marks) == marks.levels


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "    "),
        (1e-6, "▏   "),
        (0.5, "██  "),
        (0.53125, "██▏ "),
        (1, "████"),
        (2, "████"),
        (-1, "    "),
        (math.nan, "·   "),
    ],
)
def test_a_bar_is_filled_to_an_eighth_of_a_cell(share: float, text: str) -> None:
    assert bar(share, 4, BLOCKS) == text


def test_a_bar_without_blocks_is_filled_to_a_cell() -> None:
    assert [bar(share, 4, ASCII) for share in (0, 0.01, 0.5, 1)] == ["    ", "#   ", "##  ", "####"]


def test_numbers_say_when_they_are_not_known() -> None:
    assert [gigabytes(None), percent(None), duration(None)] == ["-"] * 3
    rates = (0.0, 231.44e9, 1326.04e9, 0.95e9, 0.949e9, 0.0123e9, 1e6, 0.9e6, 1.0)
    assert [gigabytes(rate) for rate in rates] == [
        *("0.0", "231.4", "1326.0", "0.9", "0.949", "0.012", "0.001", "<0.001", "<0.001")
    ]
    assert all(len(gigabytes(10.0**power)) <= 6 for power in range(13))
    assert [percent(ratio) for ratio in (0, 0.99999, 1, 1.2)] == ["0.00 %", "99.99 %", "100 %", "100 %"]
    assert [duration(s) for s in (12.34, 1.4, 0.3149, 0.00012)] == ["12.3 s", "1400.0 ms", "314.9 ms", "0.12 ms"]
