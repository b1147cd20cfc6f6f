"""The ports as they were at a moment of the past, and spans of seconds in which no port changed its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ibpulse.core.arrays import Floats
from ibpulse.core.events import PortHistory
from ibpulse.core.model import Port, PortState
from ibpulse.core.ring.spans import RingPort


def ports_during(ports: Sequence[RingPort], history: PortHistory, first_tick: int, end_tick: int) -> list[RingPort]:
    """The ports as they were from `first_tick` up to `end_tick`, exclusive.

    A port counts as active if it was ACTIVE at any of these ticks; its rate and its role are the last ones. A port that
    the history does not know stays as it is; one that did not exist is neither active nor a rail.
    """
    return [_port_during(port, history, first_tick, end_tick) for port in ports]


def _port_during(port: RingPort, history: PortHistory, first_tick: int, end_tick: int) -> RingPort:
    spans = history.spans(str(port.port.id), first_tick, end_tick)
    if not spans:
        return port
    states = [span.state for span in spans if span.state is not None]
    if not states:
        return _with(port, port.port.rate_bytes_per_second, port.stride, active=False, rail=False)
    last = states[-1]
    active, stride = any(state.active for state in states), max(state.stride for state in states)
    return _with(port, last.rate_bytes_per_second, stride, active=active, rail=last.rail)


def rail_rates(ports: Sequence[RingPort], history: PortHistory, first_tick: int, end_tick: int) -> Floats:
    """The data rates of the rails as in `line_rate`: (ports, ticks), or (ports, 1) if none of them changes.

    A port that the history does not know is as it is now.
    """
    parts = [
        [(span.first, _rate_as_rail(span.state)) for span in history.spans(str(port.port.id), first_tick, end_tick)]
        or [(first_tick, _rate_as_rail(port.port))]
        for port in ports
    ]
    if all(len(each) == 1 for each in parts):
        return np.array([each[0][1] for each in parts]).reshape(-1, 1)
    found = np.empty((len(parts), end_tick - first_tick))
    for row, each in zip(found, parts, strict=True):
        for begin, rate in each:
            row[begin - first_tick :] = rate
    return found


def _rate_as_rail(state: Port | PortState | None) -> float:
    """The data rate of a rail, 0 of anything else; NaN if it is unknown."""
    if state is None or not state.rail:
        return 0.0
    return state.rate_bytes_per_second or np.nan


def _with(port: RingPort, rate: float | None, stride: int, *, active: bool, rail: bool) -> RingPort:
    """The same object if nothing differs, which is nearly always so."""
    old = port.port
    if (old.active, old.rail, old.rate_bytes_per_second) != (active, rail, rate):
        port = replace(port, port=replace(old, active=active, rail=rail, rate_bytes_per_second=rate))
    return port if port.stride == stride else replace(port, stride=stride)


def split_seconds(
    ports: Sequence[RingPort], history: PortHistory, first: int, end: int, ticks_per_second: int, at_once: int
) -> Iterator[tuple[int, int, list[RingPort]]]:
    """Spans of the seconds `first` to `end`, exclusive, of at most `at_once`, with the ports as they were in each.

    The state of a port may only change within a span of one second.
    """
    names = [str(port.port.id) for port in ports]
    edges = history.edges(names, first * ticks_per_second + 1, end * ticks_per_second + 1)
    changing = {(tick - 1) // ticks_per_second for tick in edges}
    while first < end:
        stop = first + 1
        while stop < min(end, first + at_once) and first not in changing and stop not in changing:
            stop += 1
        yield first, stop, ports_during(ports, history, first * ticks_per_second + 1, stop * ticks_per_second + 1)
        first = stop
