"""Step period and effective resolution, measured on the last minute of the ring, and phases, second by second."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
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
from ibpulse.core.statistics.steps.phases import CHECKPOINT, FIRST_TRAFFIC, Phase, PhaseRules
from ibpulse.core.statistics.sums import NodeTicks, Seconds

LAST_SECONDS = 60
ROUND_SECONDS = 40
EVERY_SECONDS = 10
"""Time between two searches for the same step period; more than ten of them take turns, one per second."""


def measure_resolution(reader: RingReader, port: RingPort, last_tick: int, threshold: float) -> float:
    """The effective resolution (s) of a port's counters in the minute up to a tick, NaN if unknown."""
    count = LAST_SECONDS * SECOND_NS // reader.interval_ns // port.stride
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


NOTHING = np.zeros(0, dtype=np.int64)
QUIET_SECONDS = 60.0
"""Silence before a first traffic; longer than in reports, because the usual silences of long steps are not known."""


@dataclass(slots=True)
class _StorageBurst:
    """A burst of the storage ports: from tick `first` to `last`, its bytes, and whether all of it was observed.

    `apart` are the bytes sent since the rails became silent; `best` is the largest such number so far, and the ticks of
    that silence. `period` is the step period of the rails before it, in ticks; NaN without regular steps.
    """

    first: int
    last: int
    period: float
    observed: bool = True
    sent: float = 0.0
    received: float = 0.0
    apart: float = 0.0
    best: tuple[float, int] = (0.0, 0)


class PhaseWatch:
    """Finds first traffic and checkpoints without any doubt; see `find_phases` for what they are.

    Silence is counted again from 0 when a rail goes down or comes up, and when data is missing, unless the counters
    show afterwards that less was moved meanwhile than one active sample moves.
    """

    def __init__(self, active_bytes_per_second: float, interval_ns: int) -> None:
        self._rules = PhaseRules(active_bytes_per_second)
        self._interval = interval_ns / SECOND_NS
        self._found: list[Phase] = []
        self._rails: tuple[int, ...] = ()
        self._counters: Floats | None = None
        # whether missing samples reach to the end, so that the counters show later what was moved meanwhile
        self._open = False
        # whether there was a sample of every rail
        self._known = False
        self._silent = 0
        self._last: int | None = None
        self._saved = 0
        self._start: tuple[int, int] | None = None
        self._burst: _StorageBurst | None = None
        self._period = math.nan

    def add_seconds(
        self,
        first_tick: int,
        node: NodeTicks,
        seconds: Seconds,
        rails: Sequence[int],
        storage: Sequence[int],
        counters: Floats,
    ) -> None:
        """Add whole seconds, of which `node` is the sum over the ACTIVE rails.

        `rails` and `storage` are the rows of the ACTIVE rails and storage ports in `seconds`. `counters`
        (rails, 2) are the last values of the byte counters of these rails, in bytes; 0 for one that was never read.
        """
        if tuple(rails) != self._rails:
            self._rails = tuple(rails)
            self._lose_sight()
            self._counters, self._known = None, False
        nothing_hidden = self._moved_nothing(counters) and self._known
        rows, count = np.array(rails, dtype=np.intp), node.good.shape[1]
        busy = node.bandwidth > self._rules.active_bytes_per_second
        for second in range(len(busy)):
            active = busy[second].nonzero()[0]
            good = seconds.good[rows, second]
            missing = NOTHING if good.all() else np.flatnonzero(~good.all(axis=0))
            if self._open and not nothing_hidden:
                self._lose_sight()
            self._open = nothing_hidden and len(missing) > 0 and int(missing[-1]) == count - 1
            missing = NOTHING if nothing_hidden else missing
            if storage:
                self._follow_storage(first_tick + second * count, active, len(missing) > 0, seconds, storage, second)
            self._follow_rails(first_tick + second * count, active, missing, count)
        self._known = self._known or bool(seconds.good[rows].any(axis=(1, 2)).all())

    def push_holes(self) -> None:
        """Account for seconds that were not read."""
        self._lose_sight()

    def note_period(self, step: StepPeriod | None) -> None:
        """Remember the step period while the rails carry traffic."""
        if self._silent * self._interval < self._rules.least_quiet_seconds:
            self._period = math.nan if step is None else step.seconds / self._interval

    def take(self) -> tuple[Phase, ...]:
        """The phases found since the last call, in ticks."""
        found, self._found = tuple(self._found), []
        return found

    def _moved_nothing(self, counters: Floats) -> bool:
        """Whether the counters show that none of the samples since the last call was active."""
        before, self._counters = self._counters, counters
        least = self._rules.active_bytes_per_second * self._interval
        # a counter that decreased was reset
        return before is not None and bool((counters >= before).all()) and float((counters - before).sum()) <= least

    def _lose_sight(self) -> None:
        self._silent = 0
        if self._burst is not None:
            self._burst.observed = False

    def _ticks(self, seconds: float) -> float:
        return seconds / self._interval

    def _follow_rails(self, first: int, active: Counts, missing: Counts, count: int) -> None:
        hole = int(missing[-1]) if len(missing) else -1
        if not len(active):
            self._silent = self._silent + count if hole < 0 else count - 1 - hole
            return
        lead, end = int(active[0]), int(active[-1])
        hidden = missing[missing < lead]
        silent = lead - 1 - int(hidden[-1]) if len(hidden) else self._silent + lead
        # after a checkpoint, the same job goes on
        silent = min(silent, first + lead - self._saved)
        if silent >= self._ticks(self._rules.start_quiet_seconds):
            self._start = (first + lead, silent) if silent >= self._ticks(QUIET_SECONDS) else None
        self._silent = count - 1 - max(end, hole)
        self._last = first + end
        if self._start and self._last - self._start[0] >= self._ticks(self._rules.lasting_seconds):
            tick, silent = self._start
            self._found.append(Phase(FIRST_TRAFFIC, tick, tick + 1, 1, "", silent * self._interval))
            self._start = None

    def _follow_storage(
        self, first: int, active: Counts, unseen: bool, seconds: Seconds, storage: Sequence[int], second: int
    ) -> None:
        """Follow the storage ports in a second, in which the rails have `active` samples that are not followed yet."""
        burst, sent = self._burst, seconds.bytes_per_second[storage, 0, second].sum(axis=0)
        busy = (sent > self._rules.active_bytes_per_second).nonzero()[0]
        if burst is None and not len(busy):
            return
        pause = self._ticks(self._rules.checkpoint_pause_seconds)
        begin = first + int(busy[0]) if len(busy) else first + len(sent)
        if burst is not None and begin - burst.last - 1 > pause:
            self._judge(burst)
            burst = self._burst = None
        if not len(busy) and burst is None:
            return
        if burst is None:
            fresh = self._last is not None and begin - self._last <= self._ticks(self._rules.start_quiet_seconds)
            burst = self._burst = _StorageBurst(begin, begin, self._period if fresh else math.nan)
        if len(busy):
            burst.last = first + int(busy[-1])
        burst.observed &= not unseen and bool(seconds.good[storage, second].all())
        burst.sent += float(sent.sum()) * self._interval
        burst.received += float(seconds.bytes_per_second[storage, 1, second].sum()) * self._interval
        if not len(active):
            burst.apart += float(sent.sum()) * self._interval
            return
        burst.apart += float(sent[: active[0]].sum()) * self._interval
        burst.best = max(burst.best, (burst.apart, self._silent + int(active[0])))
        burst.apart = float(sent[active[-1] + 1 :].sum()) * self._interval

    def _judge(self, burst: _StorageBurst) -> None:
        """Keep a burst that has ended if it is a checkpoint without doubt."""
        rules = self._rules
        apart, silent = max(burst.best, (burst.apart, self._silent))
        # a silence as long as a step interrupts the steps; without a period, there are none
        long = silent >= self._ticks(rules.least_quiet_seconds) and silent >= burst.period
        large = burst.sent >= max(rules.checkpoint_bytes, burst.received)
        if burst.observed and long and large and apart >= rules.certain_share * burst.sent:
            seconds = min(silent, burst.last + 1 - burst.first) * self._interval
            found = Phase(CHECKPOINT, burst.first, burst.last + 1, 1, "", seconds, burst.sent, burst.received)
            self._found.append(found)
            self._saved = burst.last
