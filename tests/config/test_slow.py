"""The settings of the slow reader."""

from __future__ import annotations

import pytest

from ibpulse.config import load
from ibpulse.errors import ConfigError


def test_the_diagnostic_counters_are_the_default_and_the_tick_is_not_known() -> None:
    slow = load({}, {}).slow
    assert (slow.counters, slow.xmit_wait_tick) == ("diagnostic", None)


@pytest.mark.parametrize("which", ["diagnostic", "all", "none"])
def test_counters_are_chosen_by_a_word(which: str) -> None:
    assert load({"slow.counters": [which]}, {}).slow.counters == which


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown value 'some'; choose diagnostic or all or none"):
        load({"slow.counters": ["some"]}, {})


@pytest.mark.parametrize(("text", "tick"), [("8", 8), ("1", 1), ("4096", 4096), ("", None)])
def test_the_tick_is_a_number_of_bytes(text: str, tick: int | None) -> None:
    assert load({}, {"IBPULSE_SLOW__XMIT_WAIT_TICK": text}).slow.xmit_wait_tick == tick


@pytest.mark.parametrize("text", ["0", "4097"])
def test_a_tick_out_of_bounds_is_refused(text: str) -> None:
    sentence = f"{text} is out of bounds; choose 1 to 4096 bytes, or leave it empty if unknown"
    with pytest.raises(ConfigError, match=sentence):
        load({"slow.xmit-wait-tick": [text]}, {})
