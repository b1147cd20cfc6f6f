"""What is new for the stream, as finished events: encoded once for all viewers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.model import Fabric, Port
from ibpulse.ring.reader import GUARD_TICKS
from ibpulse.ring.window import TickRun, complete_tick, read_rates, runs_of_ticks, widest_stride
from ibpulse.units import SECOND_NS
from ibpulse.web.parts import WebParts
from ibpulse.web.stream.events import batch_event, describe_second, gap_event, ports_event, summary_event

# The longest break of a connection that is made up for; more is what /api/v1/window is for.
RESUME_SECONDS = 60


class Feed:
    """Goes through the ticks of a ring as they become complete. `next_tick` is the first that no batch held yet."""

    def __init__(self, parts: WebParts, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._parts, self._reader, self._monotonic_ns = parts, parts.reader, monotonic_ns
        self._ticks_per_second = SECOND_NS // self._reader.interval_ns
        self._fabric: Fabric | None = None
        self._snapshot: Snapshot | None = None
        self._slots: tuple[int, ...] = ()
        self.ports = b""
        self.summary = b""
        self.refresh_ports()
        self.next_tick = self._end()
        self._advanced_ns = monotonic_ns()

    def refresh_ports(self) -> bool:
        """Whether other ports are sampled than at the last call, or one of them changed; `ports` is then new."""
        fabric = self._parts.fabric()
        slots = self._parts.slots()
        ports = [port for port in fabric.ports if port.source and str(port.id) in slots]
        numbers = tuple(slots[str(port.id)] for port in ports)
        if fabric is self._fabric and numbers == self._slots:
            return False
        self._fabric, self._slots = fabric, numbers
        before, self.ports = self.ports, self._describe(ports)
        return before != self.ports

    def advance(self) -> list[bytes]:
        """The events since the last call: batches of the ticks that are complete, and the summary of a new second."""
        now_ns = self._monotonic_ns()
        passed = (now_ns - self._advanced_ns) // self._reader.interval_ns
        # ticks follow the monotonic clock: a wall clock that was stepped an instant ago must not lead us astray
        end = min(self._end(), self.next_tick + passed + self._ticks_per_second)
        self._advanced_ns = now_ns
        events = list(self.batches(self.next_tick, end))
        self.next_tick = max(self.next_tick, end)
        snapshot = self._parts.snapshot()
        if snapshot is not None and snapshot is not self._snapshot:
            self._snapshot = snapshot
            self.summary = summary_event(describe_second(snapshot))
            events.append(self.summary)
        return events

    def batches(self, first_tick: int, end_tick: int) -> Iterator[bytes]:
        """The batches of ticks from `first_tick` to before `end_tick`; none without ports."""
        if self._slots and first_tick < end_tick:
            for run in runs_of_ticks(self._reader, first_tick, end_tick):
                yield self._batch(run)

    def _batch(self, run: TickRun) -> bytes:
        last_tick = run.tick + run.count - 1
        # a batch is short: padding all ports by the widest stride costs less than a read for each stride
        widest = [widest_stride(self._reader.strides(self._slots))] * len(self._slots)
        found = read_rates(self._reader, self._slots, widest, run.tick, last_tick).bytes_per_second
        # each port's transmit before its receive
        values = found.reshape(2 * len(self._slots), run.count)
        return batch_event(last_tick, run.wall_tick * self._reader.interval_ns, values)

    def resume(self, first_tick: int, end_tick: int) -> Iterator[bytes]:
        """The batches of a break in pieces of a second, and before them the gap that is too long ago."""
        kept = min(RESUME_SECONDS * self._ticks_per_second, self._reader.capacity - 2 * GUARD_TICKS)
        oldest = end_tick - kept
        if first_tick < oldest:
            yield gap_event(*self._reader.wall_ns(np.array([first_tick, oldest])).tolist())
        for first in range(max(first_tick, oldest), end_tick, self._ticks_per_second):
            yield from self.batches(first, min(first + self._ticks_per_second, end_tick))

    def _end(self) -> int:
        """The tick behind the newest of which every port has its value."""
        widest = widest_stride(self._reader.strides(self._slots))
        return complete_tick(self._reader, widest, self._parts.wall_clock_ns()) + 1

    def _describe(self, ports: list[Port]) -> bytes:
        history_ns = self._reader.capacity * self._reader.interval_ns
        return ports_event(ports, self._reader.interval_ns, history_ns, self._parts.version)
