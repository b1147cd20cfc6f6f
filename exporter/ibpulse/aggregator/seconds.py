"""Whole seconds of the ring as rates of all ports, and rolling values per second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.node_statistics import Seconds
from ibpulse.analysis.rates import rates
from ibpulse.arrays import Floats
from ibpulse.model import Port
from ibpulse.ring import layout as at
from ibpulse.ring.reader import Block, RingReader


@dataclass(frozen=True, slots=True)
class RingPort:
    """A port with its place in the ring."""

    port: Port
    slot: int
    stride: int


@dataclass(frozen=True, slots=True)
class PortGroup:
    """The ports of one stride: their rows among all ports, and their records from `history` ticks before a span on."""

    rows: npt.NDArray[np.intp]
    block: Block
    history: int


def place_ports(reader: RingReader, ports: tuple[Port, ...], slots: dict[str, int]) -> list[RingPort]:
    """The ports that have a slot in the ring."""
    placed = []
    for port in ports:
        slot = slots.get(str(port.id))
        if port.source is not None and slot is not None:
            placed.append(RingPort(port, slot, max(1, reader.ring.slot_word(slot, at.S_STRIDE))))
    return placed


def read_groups(reader: RingReader, ports: list[RingPort], first_tick: int, last_tick: int) -> Iterator[PortGroup]:
    """Records of the ports, stride by stride, with a stride of history before the span and the rest of one after it."""
    for stride in sorted({port.stride for port in ports}):
        rows = [row for row, port in enumerate(ports) if port.stride == stride]
        slots = [ports[row].slot for row in rows]
        block = reader.read(slots, first_tick - stride, last_tick + stride - 1)
        yield PortGroup(np.array(rows), block, stride)


def whole_seconds(groups: list[PortGroup], ports: int, seconds: int, ticks_per_second: int) -> Seconds:
    """Rates of `ports` ports over `seconds` whole seconds from the groups' records."""
    ticks = seconds * ticks_per_second
    rate = np.full((ports, 2, ticks), np.nan)
    measured = np.zeros((ports, 2, ticks))
    for group in groups:
        block = group.block
        found = rates(block.time_ns(), block.counters(), block.valid(), block.scale, block.taken_every())
        span = slice(group.history, group.history + ticks)
        rate[group.rows] = found.bytes_per_second[:, :, span]
        measured[group.rows] = found.seconds[:, :, span]
    known = ~np.isnan(rate)
    good = known[:, 0] & known[:, 1]
    both = good[:, None]
    shape = (ports, 2, seconds, ticks_per_second)
    return Seconds(
        np.where(both, rate, 0.0).reshape(shape),
        np.where(both, measured, 0.0).reshape(shape),
        good.reshape(ports, seconds, ticks_per_second),
    )


class RollingSeconds:
    """The last `length` seconds of an array of values, one row of the first axis per port or per node.

    A window of W seconds covers exactly the last W values pushed; a second that was never pushed counts as zeros.
    """

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        self._values = np.zeros((length, *shape))
        self._next = 0

    @property
    def length(self) -> int:
        """Seconds that are kept."""
        return len(self._values)

    def push(self, seconds: Floats) -> None:
        """Take the values of further seconds, (seconds, *shape)."""
        for values in seconds:
            self._values[self._next] = values
            self._next = (self._next + 1) % len(self._values)

    def push_holes(self, seconds: int) -> None:
        """Take so many seconds in which nothing was seen."""
        for _ in range(min(seconds, len(self._values))):
            self._values[self._next] = 0.0
            self._next = (self._next + 1) % len(self._values)

    def sum(self, seconds: int) -> Floats:
        """Sum over the last seconds."""
        return np.asarray(np.add.reduce([part.sum(axis=0) for part in self._last(seconds)]))

    def max(self, seconds: int) -> Floats:
        """Maximum over the last seconds."""
        return np.asarray(np.maximum.reduce([part.max(axis=0) for part in self._last(seconds)]))

    def values(self, seconds: int) -> Floats:
        """The values of the last seconds, oldest first: (seconds, *shape)."""
        return np.concatenate(self._last(seconds))

    def _last(self, seconds: int) -> list[Floats]:
        """Views on the last seconds: one, or two where the ring wraps."""
        begin = self._next - seconds
        if begin >= 0:
            return [self._values[begin : self._next]]
        parts = [self._values[begin:], self._values[: self._next]]
        return [part for part in parts if len(part)]

    def add_row(self) -> None:
        """Make room for one more port."""
        length, _, *rest = self._values.shape
        self._values = np.concatenate([self._values, np.zeros((length, 1, *rest))], axis=1)

    def clear_row(self, row: int) -> None:
        """Forget the values of one port."""
        self._values[:, row] = 0.0
