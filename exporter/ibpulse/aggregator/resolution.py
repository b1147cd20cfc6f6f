"""The effective resolution of each port, measured on the last minute of the ring, one port at a time."""

from __future__ import annotations

import math

import numpy as np

from ibpulse.aggregator.samples import RingPort
from ibpulse.analysis.plateaus import effective_resolution
from ibpulse.ring.reader import RingReader

SPAN_SECONDS = 60
# a gap of up to this many samples is that of a counter that moves at every sample
SAME = 1.5


class Resolutions:
    """Measures one port per call, in turn, so that the cost of a second does not grow with the ports."""

    def __init__(self, reader: RingReader, threshold_bytes_per_second: float) -> None:
        self._reader = reader
        self._threshold = threshold_bytes_per_second
        self._turn = 0
        self._found: dict[tuple[str, int], float] = {}

    def measure_next(self, ports: list[RingPort], last_tick: int) -> None:
        """Measure the port whose turn it is, up to a tick."""
        keys = {_key(port) for port in ports}
        self._found = {key: value for key, value in self._found.items() if key in keys}
        if ports:
            self._turn = (self._turn + 1) % len(ports)
            port = ports[self._turn]
            self._found[_key(port)] = self._measure(port, last_tick)

    def _measure(self, port: RingPort, last_tick: int) -> float:
        # samples stand at multiples of the stride; what lies between them was never meant to be read
        last_tick -= last_tick % port.stride
        count = SPAN_SECONDS * 1_000_000_000 // self._reader.interval_ns // port.stride
        first_tick = max(port.stride, last_tick - count * port.stride)
        block = self._reader.read([port.slot], first_tick, last_tick)
        planned = slice(None, None, port.stride)
        return effective_resolution(
            np.ascontiguousarray(block.time_ns()[0][:, planned]),
            np.ascontiguousarray(block.counters()[0][:, planned]),
            block.valid()[0][:, planned],
            int(block.scale[0]),
            self._threshold,
        )

    def seconds_of(self, port: RingPort) -> float | None:
        """The effective resolution last measured, None while it is not known."""
        value = self._found.get(_key(port), float("nan"))
        return None if math.isnan(value) else value

    def ticks_of(self, port: RingPort) -> int:
        """Ticks of the finest statistic that the port's counters can tell: 1, unless they were seen to stand still."""
        measured = self.seconds_of(port)
        ticks = 0.0 if measured is None else measured * 1e9 / self._reader.interval_ns
        return math.ceil(ticks) if ticks > SAME * port.stride else 1


def _key(port: RingPort) -> tuple[str, int]:
    """What was measured at one stride says nothing of another."""
    return str(port.port.id), port.stride
