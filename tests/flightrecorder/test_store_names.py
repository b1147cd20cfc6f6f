"""Only what is a capture's name is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.captures import make_name, parse_name


@given(st.integers(0, 250 * 10**9 * 10**9 // 30), st.text(max_size=80))
def test_a_name_that_was_made_is_read_back(trigger_ns: int, reason: str) -> None:
    name = make_name(trigger_ns, reason)
    assert parse_name(str(name)) == name
    assert name.trigger_ms == trigger_ns // 10**6


def test_a_name_says_when_and_why() -> None:
    name = str(make_name(1_763_683_203_030 * 10**6, "Before the Update: v2!"))
    assert name.startswith("20251121T000003.030Z-Before-the-Update-v2-")
    assert str(make_name(0, "!!!")).startswith("19700101T000000.000Z-capture-")


def test_names_are_sorted_by_time_and_are_each_another() -> None:
    early, late = make_name(10**18, "z"), make_name(10**18 + 10**6, "a")
    assert sorted([late, early]) == [early, late]
    assert make_name(0, "a") != make_name(0, "a")


GOOD = "20251121T000003.030Z-rail-lost-1f6c0a2e.parquet"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "../" + GOOD,
        "a/" + GOOD,
        GOOD + ".tmp",
        GOOD + "\n",
        GOOD.upper(),
        GOOD.replace("rail", "rail/../.."),
        GOOD.replace("rail-lost", "-lost"),
        GOOD.replace("1f6c0a2e", "1f6c0a2"),
        GOOD.replace("20251121", "20251321"),
        GOOD.replace("20251121", "２０２５1121"),
        GOOD.replace("rail-lost", "x" * 65),
        "..%2f" + GOOD,
        GOOD.replace("rail", "\0"),
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    assert parse_name(GOOD) is not None
    assert parse_name(text) is None
