"""The state of every port at every tick of a ring."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from ibpulse.base.text import natural_key
from ibpulse.core.model import PortState
from ibpulse.core.statistics.plausible import UNLIMITED, LineRate


@dataclass(frozen=True, slots=True)
class _Timeline:
    """The states of one port: `states[0]` before `ticks[0]`, then `states[n]` from `ticks[n - 1]` on.

    Each change may have happened at any tick from `earliest` on. `line` follows from the others.
    """

    states: tuple[PortState | None, ...]
    ticks: tuple[int, ...] = ()
    earliest: tuple[int, ...] = ()
    line: LineRate = UNLIMITED

    @classmethod
    def of(
        cls, states: tuple[PortState | None, ...], ticks: tuple[int, ...] = (), earliest: tuple[int, ...] = ()
    ) -> _Timeline:
        """A timeline with its line rate: the largest one wherever the tick of a change is uncertain."""
        rates = [(state and state.rate_bytes_per_second) or inf for state in states]
        changes = [n for n, (before, after) in enumerate(pairwise(rates)) if before != after]
        rates = [rates[0], *(rates[n + 1] for n in changes)]
        # the sample at the tick of a change covers the time before it
        begins = [-inf, *accumulate((earliest[n] for n in changes), max)]
        ends = [ticks[n] + 1 for n in changes]
        edges = sorted({*begins, *ends})
        highest = [max(rates[bisect.bisect_right(ends, at) : bisect.bisect_right(begins, at)]) for at in edges]
        return cls(states, ticks, earliest, LineRate(tuple(highest), tuple(int(at) for at in edges[1:])))

    def at(self, tick: int) -> PortState | None:
        return self.states[bisect.bisect_right(self.ticks, tick)]


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state and the ticks from `first` up to `end`, exclusive, in which a port was in it; None: it did not exist."""

    first: int
    end: int
    state: PortState | None


class PortHistory:
    """The states of the ports. Ticks are those of one ring; what was before the first change is assumed unchanged.

    One thread changes it; others may ask at the same time, because a timeline is replaced and never changed.
    """

    def __init__(self) -> None:
        self._ports: dict[str, _Timeline] = {}

    def begin(self, name: str, state: PortState | None) -> None:
        """Set the state before the first change of a port that is not known yet."""
        self._ports.setdefault(name, _Timeline.of((state,)))

    def change(
        self, name: str, tick: int | None, before: PortState | None, after: PortState | None, earlier: int = 0
    ) -> None:
        """A port is in another state from `tick` on, or already from up to `earlier` ticks before.

        A tick that is older than the last change, or unknown (None), counts as the last change; if there was none, the
        state of an unknown tick is that before the first change. `before` is only used for a port that is not known
        yet.
        """
        line = self._ports.setdefault(name, _Timeline.of((before,)))
        states, ticks, earliest = line.states, line.ticks, line.earliest
        first = 0 if tick is None else tick - earlier
        if ticks and (tick is None or tick <= ticks[-1]):
            first = earliest[-1] if tick is None else min(first, earliest[-1])
            tick, ticks, earliest, states = ticks[-1], ticks[:-1], earliest[:-1], states[:-1]
        if tick is None:
            states = (*states[:-1], after)
        elif after != states[-1]:
            states, ticks, earliest = (*states, after), (*ticks, tick), (*earliest, first)
        self._ports[name] = _Timeline.of(states, ticks, earliest)

    def forget_before(self, tick: int) -> None:
        """Forget changes before a tick, and ports that did not exist since."""
        for name in list(self._ports):
            line = self._ports[name]
            if line.ticks and line.ticks[0] <= tick:
                old = bisect.bisect_right(line.ticks, tick)
                line = self._ports[name] = _Timeline.of(line.states[old:], line.ticks[old:], line.earliest[old:])
            if line.states == (None,):
                del self._ports[name]

    def __contains__(self, name: str) -> bool:
        """Whether anything is known of a port."""
        return name in self._ports

    def names(self) -> list[str]:
        """The ports that existed at any time, in natural order."""
        return sorted((name for name, line in list(self._ports.items()) if line.states != (None,)), key=natural_key)

    def existing(self) -> set[str]:
        """The ports that exist now."""
        return {name for name, line in list(self._ports.items()) if line.states[-1] is not None}

    def now(self, name: str) -> PortState | None:
        """The newest state of a port; None if it does not exist."""
        line = self._ports.get(name)
        return None if line is None else line.states[-1]

    def at(self, name: str, tick: int) -> PortState | None:
        """The state of a port at a tick; None if it did not exist."""
        line = self._ports.get(name)
        return None if line is None else line.at(tick)

    def line_rate(self, name: str, otherwise: float | None) -> LineRate:
        """The highest line rate that a port may have had at each tick; `otherwise` if nothing is known of it."""
        line = self._ports.get(name)
        return LineRate.of(otherwise) if line is None else line.line

    def spans(self, name: str, first: int, end: int) -> list[StateSpan]:
        """The states of a port from tick `first` up to `end`, exclusive, oldest first, without gaps."""
        line = self._ports.get(name)
        if line is None or first >= end:
            return []
        low, high = bisect.bisect_right(line.ticks, first), bisect.bisect_left(line.ticks, end)
        edges = [first, *line.ticks[low:high], end]
        return [StateSpan(a, b, line.states[low + n]) for n, (a, b) in enumerate(pairwise(edges))]

    def during(self, first: int, end: int) -> dict[str, PortState]:
        """The ports that existed at any time from tick `first` up to `end`, in natural order, each with its last state.

        For a port that disappeared within the span it is the state before that.
        """
        found = {}
        for name in self.names():
            states = [span.state for span in self.spans(name, first, end) if span.state is not None]
            if states:
                found[name] = states[-1]
        return found

    def edges(self, names: Iterable[str], first: int, end: int) -> list[int]:
        """The ticks within a span at which any of these ports changes its state."""
        found: set[int] = set()
        for name in names:
            line = self._ports.get(name)
            # most ports never change
            if line is not None and line.ticks:
                found.update(line.ticks[bisect.bisect_right(line.ticks, first) : bisect.bisect_left(line.ticks, end)])
        return sorted(found)
