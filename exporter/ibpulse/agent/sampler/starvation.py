"""Tells a sampler that did not get the processor from a device that answers slowly.

Both make reads long and use no CPU. A read that waits for its device sleeps; one that was preempted, or woken and not
run, is in a queue of the scheduler, which measures that time. Nothing is read in the hot loop.
"""

from __future__ import annotations

from typing import NamedTuple

from ibpulse.agent.sampler import kernel
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

# A lane is starved if its reads spent more than this fraction of their time waiting for the processor. On mlx5 a worker
# of the kernel, which starves like the sampler, sends the command of each read, so their waits are about equal.
STARVED_SHARE = 1 / 3


class _Times(NamedTuple):
    """Times of a sampler process since its start (ns): waiting for the processor, waking late, and reading."""

    process: int
    waited: int
    late: int
    reading: int


class Starvation:
    """Compares what each lane's process has waited with the time that its reads took, from one look to the next."""

    def __init__(self, ring: RingFile) -> None:
        self._ring = ring
        self._last: dict[int, _Times] = {}

    def look(self) -> frozenset[int]:
        """The lanes whose reads waited for the processor since the last look."""
        found = {lane: times for lane in range(at.LANE_COUNT) if (times := self._read(lane)) is not None}
        starved = {lane for lane, times in found.items() if _is_starved(self._last.get(lane), times)}
        self._last = found
        return frozenset(starved)

    def _read(self, lane: int) -> _Times | None:
        begin, words = at.lane_at(lane), self._ring.words
        process = words[begin + at.L_PID]
        waited = kernel.runqueue_wait_ns(process) if process else None
        if waited is None:
            return None
        late = words[begin + at.L_LATENESS_SUM_NS] + words[begin + at.L_OVERSLEPT_NS]
        return _Times(process, waited, late, words[begin + at.L_DURATION_SUM_NS])


def _is_starved(before: _Times | None, now: _Times) -> bool:
    if before is None or before.process != now.process:
        return False
    # late wake-ups are waiting, too, but delay no read
    in_reads = now.waited - before.waited - (now.late - before.late)
    return in_reads > STARVED_SHARE * (now.reading - before.reading)
