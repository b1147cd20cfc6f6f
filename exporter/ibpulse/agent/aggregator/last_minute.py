"""Measures step period and effective resolution on the last minute of the ring, every few seconds."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort, read_planned
from ibpulse.core.statistics.moments import or_none
from ibpulse.core.statistics.rates import effective_resolution, finest_ticks
from ibpulse.core.statistics.steps.period import (
    NONE,
    StepPeriod,
    bandwidth_bins,
    choose_bin_seconds,
    choose_edges,
    find_rails_period,
)

SPAN_SECONDS = 60
ROUND_SECONDS = 40
EVERY_SECONDS = 10
"""Time between two searches for the same step period; more than ten of them take turns, one per second."""


def measure_resolution(reader: RingReader, port: RingPort, last_tick: int, threshold: float) -> float:
    """The effective resolution (s) of a port's counters in the minute up to a tick, NaN if unknown."""
    count = SPAN_SECONDS * SECOND_NS // reader.interval_ns // port.stride
    block = read_planned(reader, [port.slot], port.stride, count + 1, last_tick)
    return effective_resolution(
        block.time_ns()[0], block.counters()[0], block.valid()[0], int(block.scale[0]), threshold
    )


class Resolutions:
    """Measures the ports in turn, so that the cost does not grow with their number."""

    def __init__(self, reader: RingReader, threshold_bytes_per_second: float) -> None:
        self._reader = reader
        self._threshold = threshold_bytes_per_second
        self._turn = 0
        self._found: dict[tuple[str, int, int], float] = {}

    def measure_next(self, ports: Sequence[RingPort], moving: Collection[str], seconds: int, last_tick: int) -> None:
        """Measure some ports up to a tick, `seconds` after the last call.

        These are as many unknown ones of those that are `moving` bytes, by name, as seconds have passed; and the next
        in turn, so that all are measured within `ROUND_SECONDS`.
        """
        keys = {_key(port) for port in ports}
        self._found = {key: value for key, value in self._found.items() if key in keys}
        unknown = [port for port in ports if self.seconds_of(port) is None and str(port.port.id) in moving]
        chosen = {_key(port): port for port in unknown[:seconds]}
        for _ in range(min(len(ports), -(-len(ports) * seconds // ROUND_SECONDS))):
            self._turn = (self._turn + 1) % len(ports)
            chosen[_key(ports[self._turn])] = ports[self._turn]
        for key, port in chosen.items():
            self._found[key] = measure_resolution(self._reader, port, last_tick, self._threshold)

    def seconds_of(self, port: RingPort) -> float | None:
        """The last measured effective resolution, None while it is unknown."""
        return or_none(self._found.get(_key(port), math.nan))

    def ticks_of(self, port: RingPort) -> int:
        """Ticks of the finest statistic that the port's counters resolve: 1 if they change at every sample."""
        return finest_ticks(self.seconds_of(port), self._reader.interval_ns, port.stride)


def _key(port: RingPort) -> tuple[str, int, int]:
    """The key of a measurement, which is only valid for one device and one stride."""
    return str(port.port.id), port.slot, port.stride


@dataclass(frozen=True, slots=True)
class StepSearch:
    """Where to search for a step period: rails, the ticks between changes of each rail's counters, and the window."""

    rails: tuple[RingPort, ...]
    resolutions: tuple[int, ...]
    window_ns: int


def plan_search(ports: Sequence[RingPort], resolutions: Sequence[int], window_ns: int, quiet_ns: int = 0) -> StepSearch:
    """A search in the ACTIVE rails of some ports; in none if there has been no traffic for longer than the window."""
    up = (
        []
        if quiet_ns >= window_ns
        else [index for index, port in enumerate(ports) if port.port.rail and port.port.active]
    )
    return StepSearch(tuple(ports[index] for index in up), tuple(resolutions[index] for index in up), window_ns)


@dataclass(slots=True)
class StepWatch:
    """The step period that was last found in the rails of the node or of a job, and the second of the search."""

    found: StepPeriod | None = None
    second: float = -math.inf


def search_next(reader: RingReader, searches: Sequence[tuple[StepWatch, StepSearch]], end_second: int) -> None:
    """Search for the step period that was searched for the longest time ago, if that is `EVERY_SECONDS` or more.

    There is only one search per second, because it costs more than all other work of that second. Its result is that of
    all equal searches: the only job of a node has the step of the node. Without rails, nothing is found at once.
    """
    waiting = []
    for watch, search in searches:
        if search.rails:
            waiting.append((watch, search))
        else:
            watch.found, watch.second = NONE, -math.inf
    if not waiting:
        return
    watch, chosen = min(waiting, key=lambda each: each[0].second)
    if end_second - watch.second < EVERY_SECONDS:
        return
    last_tick = end_second * (SECOND_NS // reader.interval_ns)
    found = measure_step(reader, chosen.rails, chosen.resolutions, last_tick, chosen.window_ns)
    for watch, search in searches:
        if search == chosen:
            watch.found, watch.second = found, end_second


def measure_step(
    reader: RingReader, rails: Sequence[RingPort], resolutions: Sequence[int], last_tick: int, window_ns: int
) -> StepPeriod:
    """The step period of the sum over the rails in the window that ends at a tick."""
    count = window_ns // reader.interval_ns
    coarsest = max((max(port.stride, ticks) for port, ticks in zip(rails, resolutions, strict=True)), default=1)
    bin_seconds = choose_bin_seconds(coarsest, reader.interval_ns / SECOND_NS)
    first_tick = max(1, last_tick - count)
    found: list[Floats] = []
    edges = np.zeros(0, dtype=np.int64)
    for port in rails:
        block = reader.read([port.slot], first_tick, last_tick)
        valid = block.valid()
        if not valid.any():
            continue
        times = block.time_ns()
        if not found:
            edges = choose_edges(times[valid], window_ns, bin_seconds)
        found.append(bandwidth_bins(times, block.counters(), valid, block.scale, edges))
    return find_rails_period(found, bin_seconds)
