"""Whole seconds of the ring as rates of all ports side by side. It must not keep anything between two calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.analysis.rates import rates
from ibpulse.model import Port
from ibpulse.ring import layout as at
from ibpulse.ring.reader import Block, RingReader

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RingPort:
    """A port with its place in the ring."""

    port: Port
    slot: int
    stride: int


@dataclass(frozen=True, slots=True)
class Seconds:
    """Rates over whole seconds.

    `bytes_per_second` and `seconds` are (ports, 2, seconds, ticks): 0 and 0 wherever `good` is false. `good` is
    (ports, seconds, ticks): both directions have a rate at that tick.
    """

    bytes_per_second: Floats
    seconds: Floats
    good: Bools


@dataclass(frozen=True, slots=True)
class Group:
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


def read_groups(reader: RingReader, ports: list[RingPort], first_tick: int, last_tick: int) -> Iterator[Group]:
    """Records of the ports, stride by stride, with a stride of history before the span and the rest of one after it."""
    for stride in sorted({port.stride for port in ports}):
        rows = [row for row, port in enumerate(ports) if port.stride == stride]
        slots = [ports[row].slot for row in rows]
        block = reader.read(slots, first_tick - stride, last_tick + stride - 1)
        yield Group(np.array(rows), block, stride)


def whole_seconds(groups: list[Group], ports: int, seconds: int, ticks_per_second: int) -> Seconds:
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
