"""Sparklines, bars and numbers as text."""

from __future__ import annotations

import math

import pytest

from ibpulse.workbench.top.styled_text import ASCII, BLOCKS, bar, fit, sparkline


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


def test_each_kind_of_nothing_has_a_character_of_its_own() -> None:
    for marks in (BLOCKS, ASCII):
        signs = [*marks.levels, marks.unknown, marks.down]
        assert len(set(signs)) == len(signs)


def test_the_first_choice_that_fits_is_taken_and_the_last_one_shortened() -> None:
    assert [fit(columns, ["long", "words"], ["a", "b", "c"]) for columns in (11, 10, 7, 6, 1)] == [
        "long  words",
        "a  b  c",
        "a  b  c",
        "a  b",
        "a",
    ]
