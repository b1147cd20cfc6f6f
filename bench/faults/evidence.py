"""The evidence of an episode: what was sampled, answered and injected in its time, and which spans are excused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.faults.load import Load
from bench.faults.plan import START_SECONDS, Happened
from bench.faults.testbed import Testbed
from ibpulse.base.errors import RingError
from ibpulse.core.ring.reader import RingReader

# single samples are lost on any machine, and more on a busy one
GAP_SECONDS = 0.3
# time to answer again after a fault that silences the daemon
SILENCE_SECONDS = 5.0

Span = tuple[float, float]


@dataclass(frozen=True)
class Evidence:
    """The evidence for the time from `begin` to `end`; `happened` has all faults since the campaign began."""

    testbed: Testbed
    load: Load
    happened: Sequence[Happened]
    begin: float
    end: float

    def within(self, at: float) -> bool:
        """Whether a moment belongs to that time."""
        return self.begin <= at < self.end

    @cached_property
    def control_gaps(self) -> list[Span]:
        """The times in which the machine did not let the control daemon sample."""
        try:
            return [*gaps(_times(self.testbed.control_ring(), "mlx5_0", 0.0), self, ())]
        except RingError:
            return []

    @property
    def stalls(self) -> list[Span]:
        """The times in which the machine ran this process or the sampler of the control daemon too late."""
        return [*self.load.stalls, *self.control_gaps]

    @property
    def silent(self) -> list[Span]:
        """The times in which the daemon may give no answer, or the machine gave it no time."""
        return [
            *self.stalls,
            *((one.begin, self._restarted(one.end)) for one in self.happened if one.effect.ends_daemon),
            *((one.begin, one.end + SILENCE_SECONDS) for one in self.happened if one.effect.silences),
        ]

    @property
    def hidden(self) -> list[Span]:
        """The times in which the jobs that last throughout may not be listed."""
        hides = (one for one in self.happened if one.effect.hides_jobs)
        return [*self.silent, *((one.begin, one.end + SILENCE_SECONDS) for one in hides)]

    def _restarted(self, ended: float) -> float:
        """When the daemon had restarted and had time to aggregate, after the end of a fault that ended it."""
        answered = (probe.at for probe in self.load.probes if probe.at >= ended and probe.answer == 200)
        return next(answered, ended + START_SECONDS) + SILENCE_SECONDS

    def suffering(self, device: str) -> list[Span]:
        """The times in which a device may go unsampled, because of itself or of the machine."""
        first = self.testbed.devices[0]
        mine = [
            one
            for one in self.happened
            if one.occurrence.device == device or (one.effect.hits_others and device != first)
        ]
        return [*self.stalls, *((one.begin, one.end + one.effect.recovery_seconds) for one in mine)]

    @cached_property
    def unsampled(self) -> dict[str, list[Span]]:
        """The times in which each device went unsampled, except while it suffered a fault itself."""
        return {device: [*gaps(self._samples(device), self, self.suffering(device))] for device in self.testbed.devices}

    def _samples(self, device: str) -> list[float]:
        """The times of the device's samples in the ring; none without a ring."""
        try:
            return _times(self.testbed.ring(), device, self.testbed.ahead_seconds)
        except RingError:
            return []


def _times(reader: RingReader, device: str, ahead_seconds: float) -> list[float]:
    slot = reader.ring.slots().get(f"{device}:1")
    if slot is None:
        return []
    last = reader.ring.latest_tick()
    block = reader.read([slot], max(1, last - reader.readable_ticks + 1), last)
    good = block.valid()[0].all(axis=0)
    times: list[float] = (block.stamps()[0, good, 2] / 1e9 - ahead_seconds).tolist()
    return times


def gaps(times: Iterable[float], evidence: Evidence, excused: Sequence[Span]) -> Iterator[Span]:
    """The spans longer than a short gap between these times, without the parts that are excused."""
    edges = [evidence.begin, *(at for at in times if evidence.within(at)), evidence.end]
    for place in np.flatnonzero(np.diff(edges) > GAP_SECONDS).tolist():
        yield from without((edges[place], edges[place + 1]), excused)


def without(span: Span, excused: Sequence[Span]) -> Iterator[Span]:
    """The parts of a span that no excused one covers."""
    begin, end = span
    for from_, to in sorted(excused):
        if from_ < end and to > begin:
            if from_ > begin:
                yield begin, from_
            begin = max(begin, to)
    if begin < end:
        yield begin, end


def seconds_of(spans: Iterable[Span]) -> float:
    """The length of all of them together."""
    return sum(end - begin for begin, end in spans)


def excuses(spans: Sequence[Span], at: float) -> bool:
    """Whether one of the spans covers a moment."""
    return any(begin <= at <= end for begin, end in spans)
