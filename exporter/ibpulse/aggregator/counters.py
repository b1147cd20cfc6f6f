"""Error counters summed over resets, and the time that a port was stalled. It must not read any file.

A total begins at the counter's own value, as other exporters show it, and grows by every difference. When a counter is
lower than before, it was cleared or wrapped; what it counted in between is lost, and what it shows now is added. So a
total never falls, and is never more than what happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.aggregator.snapshot import CounterTotal, PortCounters
from ibpulse.model import CounterReading, Fabric, Port, PortId, PortReadings

NS_PER_SECOND = 1_000_000_000
WAIT_FILE = "port_xmit_wait"
INFINIBAND = "InfiniBand"


@dataclass(frozen=True, slots=True)
class _Wait:
    """The stall counter as it was last read, the port's data rate then if it could tell, and the ratio since before."""

    last: CounterReading
    rate_bytes_per_second: float | None
    ratio: float | None


class CounterTotals:
    """The totals of every port that was ever seen; a port that is away keeps its own.

    `tick_bytes` is how many bytes could have been sent in one count of the stall counter, None when that is not known.
    """

    def __init__(self, tick_bytes: int | None = None) -> None:
        self._tick_bytes = tick_bytes
        self._counts: dict[tuple[PortId, str], tuple[int, int]] = {}
        self._waits: dict[PortId, _Wait] = {}

    def update(self, fabric: Fabric) -> tuple[PortCounters, ...]:
        """The totals of the counters that the fabric has; the same readings may come again."""
        ports = {port.id: port for port in fabric.ports}
        # a device that was away may have begun anew without its counter being lower
        here = {readings.port for readings in fabric.counters}
        self._waits = {port: wait for port, wait in self._waits.items() if port in here}
        return tuple(self._count_port(ports.get(readings.port), readings) for readings in fabric.counters)

    def _count_port(self, port: Port | None, readings: PortReadings) -> PortCounters:
        totals = tuple(
            CounterTotal(reading.name, reading.file, self._count(readings.port, reading), reading.saturated)
            for reading in readings.readings
        )
        wait = next((reading for reading in readings.readings if reading.file == WAIT_FILE), None)
        if port is None or wait is None or self._tick_bytes is None:
            self._waits.pop(readings.port, None)
            return PortCounters(readings.port, totals)
        return PortCounters(readings.port, totals, self._measure_stall(port, wait, self._tick_bytes))

    def _count(self, port: PortId, reading: CounterReading) -> int:
        key = (port, reading.name)
        last, total = self._counts.get(key, (0, 0))
        grown = reading.value - last
        total += grown if grown >= 0 else reading.value
        self._counts[key] = (reading.value, total)
        return total

    def _measure_stall(self, port: Port, reading: CounterReading, tick_bytes: int) -> float | None:
        """The share of the time since the last read in which the port could not send, None when that cannot be told."""
        before = self._waits.get(port.id)
        rate = port.rate_bytes_per_second if port.active and port.identity.link_layer == INFINIBAND else None
        if before is not None and reading.taken_ns <= before.last.taken_ns:
            return before.ratio if rate == before.rate_bytes_per_second else None
        ratio = None
        if before is not None and rate is not None and rate == before.rate_bytes_per_second:
            ratio = _find_ratio(before.last, reading, rate / tick_bytes)
        self._waits[port.id] = _Wait(reading, rate, ratio)
        return ratio


def _find_ratio(before: CounterReading, now: CounterReading, ticks_per_second: float) -> float | None:
    grown = now.value - before.value
    # a counter that has stopped, or began anew, says nothing about the time between
    if before.saturated or now.saturated or grown < 0:
        return None
    return grown * NS_PER_SECOND / (ticks_per_second * (now.taken_ns - before.taken_ns))
