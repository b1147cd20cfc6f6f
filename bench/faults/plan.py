"""The shape of a fault, and the plan of a campaign: faults, devices, times and lengths from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.faults.testbed import Testbed

MIN_SECONDS = 1.0
# the faults of an episode begin within this time
SPREAD_SECONDS = 2.0
MAX_TOGETHER = 3
# the resource of a fault that excludes all others
ALONE = "everything"
# the time that a daemon may take to start, on a slow machine
START_SECONDS = 30.0


@dataclass(frozen=True)
class Effect:
    """The permitted effects of a fault; everything else is a violation.

    `lost_seconds` is the most time for which other devices may go unsampled. With `silences` the daemon may give no
    answer and aggregate nothing until the fault ends, and with `ends_daemon` its process ends, to be restarted. With
    `lies` the counters of its device count what never flowed, and with `hides_jobs` nothing says that the jobs run that
    last throughout. With `hits_others` the effect on the device holds for all but the first. The device itself may go
    unsampled until `recovery_seconds` after the end. Until `settle_seconds` after the end, the newest second may have a
    wall time that was wrong when it was sampled.
    """

    lost_seconds: float = 0.0
    silences: bool = False
    ends_daemon: bool = False
    lies: bool = False
    hides_jobs: bool = False
    hits_others: bool = False
    recovery_seconds: float = 30.0
    settle_seconds: float = 0.0


def always_possible(_: Testbed) -> str:
    """For faults without requirements."""
    return ""


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    `suffer` gets the testbed and the device, which is empty unless the fault `hits_device`; the fault begins with the
    block of the context manager that it returns, and ends with it. `why_not` returns a sentence if the fault cannot
    happen on this machine. Faults of one `resource` exclude each other.
    """

    name: str
    suffer: Callable[[Testbed, str], AbstractContextManager[None]]
    effect: Effect = Effect()
    hits_device: bool = False
    resource: str = ""
    why_not: Callable[[Testbed], str] = always_possible


@dataclass(frozen=True)
class Occurrence:
    """A planned fault: its device, and its begin and end in seconds since the beginning of the episode."""

    fault: Fault
    device: str
    begin: float
    end: float

    def __str__(self) -> str:
        return f"{self.fault.name} on {self.device}" if self.device else self.fault.name


Episode = tuple[Occurrence, ...]


@dataclass
class Happened:
    """A fault that happened, with its begin and end in seconds of the monotonic clock."""

    occurrence: Occurrence
    begin: float
    end: float = float("inf")

    @property
    def effect(self) -> Effect:
        """Its permitted effects."""
        return self.occurrence.fault.effect


def plan_episodes(
    faults: Sequence[Fault], devices: Sequence[str], seed: int, longest_seconds: float
) -> Callable[[], Episode]:
    """A function that returns one episode after another. Every fault comes once before any comes again.

    The first device is never hit, so that one is always healthy.
    """
    rng = random.Random(seed)
    waiting: list[Fault] = []

    def next_episode() -> Episode:
        if not waiting:
            waiting.extend(rng.sample(faults, len(faults)))
        chosen = [waiting.pop(0)]
        free = rng.sample(devices[1:], len(devices) - 1)
        for _ in range(rng.randrange(MAX_TOGETHER)):
            if fitting := [fault for fault in waiting if _fits(fault, chosen, len(free))]:
                chosen.append(fitting[0])
                waiting.remove(fitting[0])
        return tuple(_place(fault, free, rng, longest_seconds) for fault in chosen)

    return next_episode


def _fits(fault: Fault, chosen: Sequence[Fault], devices: int) -> bool:
    taken = {other.resource for other in chosen if other.resource}
    hit = sum(other.hits_device for other in chosen)
    return (
        ALONE not in taken | {fault.resource}
        and fault.resource not in taken
        and not (fault.hits_device and hit == devices)
    )


def _place(fault: Fault, free: list[str], rng: random.Random, longest_seconds: float) -> Occurrence:
    begin = rng.uniform(0.0, SPREAD_SECONDS)
    length = rng.uniform(min(MIN_SECONDS, longest_seconds), longest_seconds)
    return Occurrence(fault, free.pop() if fault.hits_device else "", begin, begin + length)
