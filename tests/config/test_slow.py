"""The settings of the slow reader."""

from __future__ import annotations

from ibpulse.agent.config import load


def test_the_diagnostic_counters_are_the_default_and_the_tick_is_not_known() -> None:
    slow = load({}, {}).slow
    assert (slow.counters, slow.xmit_wait_tick) == ("diagnostic", None)
