"""Watches for the phases that the daemon can know for certain, second by second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.steps.phase import CHECKPOINT, FIRST_TRAFFIC, Phase, PhaseRules
from ibpulse.core.statistics.sums import NodeTicks, Seconds

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
