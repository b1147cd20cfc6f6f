"""The traffic of a job on several nodes, whose collectives are a ring over them, with a straggler and a hot rail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.workbench.simulate.fsdp import Fsdp
from ibpulse.workbench.simulate.timeline import NODE_RAILS, Schedule, Step, Workload

STRAGGLER_DELAY_NS = 20 * MILLISECOND_NS
"""How much longer the straggler computes in every step before it first transmits."""
AHEAD_BYTES = 4 * 2**22
"""Bytes that a port of full weight sends before its ring stops at a late member: four channels, buffers of 4 MiB."""
HOT_RAIL = 1
OTHER_RAILS_SHARE = 0.75
"""The traffic of every other rail, as a part of the hot rail's."""


@dataclass(frozen=True, slots=True)
class RingMember:
    """A workload as one member of the ring transmits it; the next member receives the same.

    In each step one member, the straggler, computes `STRAGGLER_DELAY_NS` longer before it first transmits. The others
    begin on time, fill the buffers of their connections and wait for it: the job is as slow as its slowest member.
    All rails of a node are busy until the hot rail has sent its larger share.
    """

    workload: Workload
    rails: int
    straggler: bool = False

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    def step(self, rng: np.random.Generator) -> Step:
        """A step of the workload, with the wait for the straggler in its first burst."""
        step = self.workload.step(rng)
        durations, rates = step.durations_ns, step.rates_bytes_per_second
        busy = rates > 0
        durations = np.where(busy, np.rint(durations * self._slowness()), durations).astype(np.int64)
        # without pauses there is no first burst
        if busy.all() or not busy.any():
            return Step(durations, rates)
        first = int(busy.argmax())
        waits = self._wait(int(durations[first]), float(rates[first]))
        return Step(
            *(
                np.concatenate([old[:first], new, old[first + 1 :]])
                for old, new in zip((durations, rates), waits, strict=True)
            )
        )

    def _wait(self, burst_ns: int, rate: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The first burst and the wait before its end: durations and rates, together equally long on all members."""
        if self.straggler:
            return np.array([STRAGGLER_DELAY_NS, burst_ns]), np.array([0.0, rate])
        # at a low rate the buffers never fill up
        ahead_ns = min(round(AHEAD_BYTES / rate * SECOND_NS), burst_ns // 2, STRAGGLER_DELAY_NS // 2)
        durations = np.array([ahead_ns, STRAGGLER_DELAY_NS - ahead_ns, burst_ns])
        return durations, np.array([rate, 0.0, rate * (burst_ns - ahead_ns) / burst_ns])

    def weights(self, rails: int) -> npt.NDArray[np.float64]:
        """The shares of the workload, full on the hot rail and smaller on the others."""
        shares = np.full(rails, OTHER_RAILS_SHARE)
        shares[HOT_RAIL if rails > HOT_RAIL else 0] = 1.0
        weights: npt.NDArray[np.float64] = self.workload.weights(rails) * shares[:, None]
        return weights

    def _slowness(self) -> float:
        """How many times longer a burst takes than with equal shares, for the same bytes."""
        return float(self.workload.weights(self.rails).sum() / self.weights(self.rails).sum())


class SharedTraffic:
    """The traffic of one node in time of its own clock, which is `offset_ns` ahead: that of a job, in both directions.

    It has the methods of a `Schedule` that a fabric needs.
    """

    def __init__(self, transmit: Schedule, receive: Schedule, offset_ns: int) -> None:
        self.workload, self.seed, self.rails = transmit.workload, transmit.seed, transmit.rails
        self.offset_ns = offset_ns
        self.start_ns = transmit.start_ns + offset_ns
        self._directions = (transmit, receive)

    def cumulative_bytes(self, time_ns: int) -> npt.NDArray[np.int64]:
        """Bytes of each rail since the start, (rails, 2): transmit, receive."""
        true_ns = time_ns - self.offset_ns
        transmit, receive = self._directions
        sent = transmit.cumulative_bytes(true_ns)
        if receive is not transmit:
            sent[:, 1] = receive.cumulative_bytes(true_ns)[:, 1]
        return sent

    def port_bytes(self, time_ns: int, rail: int, direction: int) -> int:
        """Bytes since the start of one rail in one direction."""
        return self._directions[direction].port_bytes(time_ns - self.offset_ns, rail, direction)

    def latest_within(self, begin_ns: int, end_ns: int, most_bytes: float) -> int:
        """The latest instant up to `end_ns` until which no port moves more than `most_bytes` after `begin_ns`."""
        begin_ns, end_ns = begin_ns - self.offset_ns, end_ns - self.offset_ns
        for schedule in self._directions:
            end_ns = schedule.latest_within(begin_ns, end_ns, most_bytes)
        return end_ns + self.offset_ns


Traffic = Schedule | SharedTraffic
"""The traffic of a node: a schedule of its own, or its part of a job on several nodes."""


def share_job(
    workload: Workload, straggler: int, offsets_ns: Sequence[int], seed: int, rails: int, start_ns: int
) -> list[SharedTraffic]:
    """The traffic of nodes with these clock offsets that share a job, which starts at a true time.

    The nodes form a ring in their order; each one receives what the one before it transmits.
    """
    if isinstance(workload, Fsdp):
        workload = replace(workload, ranks=NODE_RAILS * len(offsets_ns))
    late, punctual = (Schedule(RingMember(workload, rails, each), seed, rails, start_ns) for each in (True, False))
    sent = [late if number == straggler else punctual for number in range(len(offsets_ns))]
    return [SharedTraffic(sent[number], sent[number - 1], offset) for number, offset in enumerate(offsets_ns)]
