"""Courses over time: a fault from `BEGIN` to `END`, a value that changes once, a counter that jumps."""

from __future__ import annotations

from tests.grafana.rule_engine import SCRAPE_SECONDS, Value
from tests.grafana.rule_fleet import Course

BEGIN, END, LAST = 25 * 60, 65 * 60, 90 * 60
"""Seconds at which every fault begins and ends, and of the last sample. A fault begins just after a scrape."""


def during(value: Value, otherwise: Value = 0.0, minutes: float = (END - BEGIN) / 60) -> Course:
    """A value from the scrape after `BEGIN` on, for some minutes, and another one before and after."""
    return lambda second: value if BEGIN < second <= BEGIN + minutes * 60 else otherwise


def always(value: Value) -> Course:
    return lambda _: value


def jumps(amount: float, times: int = 1, every: float = 60.0) -> Course:
    """A counter that is higher by an amount at the scrape after `BEGIN`, and again some times."""
    starts = [BEGIN + number * every for number in range(times)]
    return lambda second: (
        amount / SCRAPE_SECONDS if any(0 < second - start <= SCRAPE_SECONDS for start in starts) else 0.0
    )


def stopped(early: float = 0.0, minutes: float = (END - BEGIN) / 60) -> Course:
    """A clock that stands still during the fault, as that of the last traffic; it stopped some seconds early."""
    return lambda second: float(BEGIN) - early if BEGIN < second <= BEGIN + minutes * 60 else float(second)


def until(last: float) -> Course:
    """A clock that stops for good."""
    return lambda second: float(min(second, last))
