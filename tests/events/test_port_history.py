"""The port history against a list with the state at every single tick."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.core.events import PortHistory
from ibpulse.core.events.log import StateSpan
from ibpulse.core.model import PortState
from ibpulse.core.statistics.plausible import LineRate
from tests.events.making import DOWN, SLOW, UP

TICKS = 30
NAMES = ("mlx5_2:1", "mlx5_10:1")

State = PortState | None


@dataclass
class EveryTick:
    """The state of each port at every tick from 0 on."""

    ports: dict[str, list[State]] = field(default_factory=dict)

    def begin(self, name: str, state: State) -> None:
        self.ports.setdefault(name, [state] * TICKS)

    def change(self, name: str, tick: int | None, before: State, after: State) -> None:
        line = self.ports.setdefault(name, [before] * TICKS)
        begin = max(tick or 0, self.last_change(name) or 0)
        line[begin:] = [after] * (TICKS - begin)

    def forget_before(self, tick: int) -> None:
        for line in self.ports.values():
            line[:tick] = [line[tick]] * tick
        self.ports = {name: line for name, line in self.ports.items() if any(line)}

    def last_change(self, name: str) -> int | None:
        line = self.ports.get(name, [None] * TICKS)
        return max((tick for tick in range(1, TICKS) if line[tick] != line[tick - 1]), default=None)

    def spans(self, name: str, first: int, end: int) -> list[StateSpan]:
        if name not in self.ports:
            return []
        found, tick = [], first
        for state, run in groupby(self.ports[name][first:end]):
            length = len(list(run))
            found.append(StateSpan(tick, tick + length, state))
            tick += length
        return found


STATES = st.sampled_from([None, UP, DOWN, SLOW])
# often those of a change, and of the one before
COMMON = st.sampled_from((9, 10))
CHANGED = st.none() | COMMON | st.integers(1, TICKS - 1)
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(NAMES), STATES),
    st.tuples(st.just("change"), st.sampled_from(NAMES), CHANGED, STATES, STATES),
    st.tuples(st.just("forget_before"), st.integers(0, TICKS - 1)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=25), COMMON | st.integers(0, TICKS), st.integers(0, TICKS))
def test_the_history_agrees_with_a_list_of_all_ticks(steps: list[tuple[Any, ...]], first: int, end: int) -> None:
    history, every = PortHistory(), EveryTick()
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
        getattr(every, name)(*arguments)
    assert history.names() == [name for name in NAMES if any(every.ports.get(name, ()))]
    for name in NAMES:
        line = every.ports.get(name, [None] * TICKS)
        assert [history.at(name, tick) for tick in range(TICKS)] == line
        assert history.now(name) == line[-1]
        assert history.spans(name, first, end) == every.spans(name, first, end)
    seen = {name: [state for state in every.ports.get(name, [])[first:end] if state] for name in NAMES}
    assert list(history.during(first, end).items()) == [(name, states[-1]) for name, states in seen.items() if states]
    edges = {tick for line in every.ports.values() for tick in range(first + 1, end) if line[tick] != line[tick - 1]}
    assert history.edges(NAMES, first, end) == sorted(edges)


def test_a_long_history_that_is_forgotten_takes_no_memory() -> None:
    history = PortHistory()
    for tick in range(1, 10_000):
        history.change("mlx5_0:1", tick, None, UP if tick % 2 else DOWN)
        history.forget_before(tick - 10)
    assert len(history.spans("mlx5_0:1", 0, 10_000)) == 11


def test_an_uncertain_change_has_the_higher_rate() -> None:
    history, low, high = PortHistory(), replace(UP, rate_bytes_per_second=25e9), replace(UP, rate_bytes_per_second=50e9)
    history.change("mlx5_0:1", 100, low, high, 30)
    history.change("mlx5_0:1", 200, high, low, 40)
    # it may be up from 70 on; the sample that ends at 200 is of the time before
    line = history.line_rate("mlx5_0:1", None)
    assert [line.over(tick, 1)[0] / 1e9 for tick in (0, 69, 70, 99, 100, 200, 201)] == [25, 25, 50, 50, 50, 50, 25]
    assert line.lowest == 25e9


def test_line_rate_of_down_and_unknown_links() -> None:
    history = PortHistory()
    history.change("mlx5_0:1", 100, UP, DOWN, 50)
    assert history.line_rate("mlx5_0:1", None) == LineRate((UP.rate_bytes_per_second or 0.0,))
    assert history.line_rate("mlx5_1:1", 7.0) == LineRate((7.0,))
    history.change("mlx5_0:1", 200, DOWN, replace(DOWN, rate_bytes_per_second=None))
    assert history.line_rate("mlx5_0:1", None).over(201, 1)[0] == float("inf")


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 12), st.integers(0, 30), st.sampled_from([1.0, 2.0, 3.0, None])), max_size=12
    )
)
def test_the_line_rate_is_the_highest_possible(changes: list[tuple[int, int, float | None]]) -> None:
    history, tick = PortHistory(), 50
    history.begin("mlx5_0:1", replace(UP, rate_bytes_per_second=2.0))
    # first and last tick of each rate
    spans = [[0, 10**6, 2.0]]
    for later, earlier, rate in changes:
        tick += later
        history.change("mlx5_0:1", tick, None, replace(UP, rate_bytes_per_second=rate), earlier)
        if (rate or float("inf")) != spans[-1][2]:
            spans[-1][1] = tick
            # changes come in the order in which they were noticed
            spans.append([max(tick - earlier, spans[-1][0]), 10**6, rate or float("inf")])
    expected = [max(rate for first, last, rate in spans if first <= at <= last) for at in range(200)]
    assert history.line_rate("mlx5_0:1", None).over(0, 200).tolist() == expected
