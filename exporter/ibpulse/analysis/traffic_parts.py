"""Splits the traffic of a node at its long pauses, and finds the regular steps of each part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.analysis.period import StepPeriod
from ibpulse.analysis.phase import PhaseRules, PhaseTraffic
from ibpulse.analysis.regular_steps import LEAST_STEPS, NO_STEPS, RegularSteps, find_pauses, find_regular_steps
from ibpulse.analysis.steps import find_steps

PeriodFinder = Callable[[int, int], StepPeriod]
"""Finds the step period in the samples from the first number to before the second."""

# steps before and after a silence lie within so many step lengths of it; a few next to it are not found
NEAR_STEPS = 6


@dataclass(frozen=True, slots=True)
class Stretch:
    """Traffic between two long pauses, from its first active sample to after its last one, and its regular steps.

    `lead` is the index of the pause before it, None if the samples begin with it.
    """

    first: int
    end: int
    lead: int | None
    steps: RegularSteps


class TrafficParts:
    """The pauses of the rails, and the stretches of traffic between pauses that are long enough for a new start."""

    def __init__(self, traffic: PhaseTraffic, find_period: PeriodFinder, rules: PhaseRules) -> None:
        self.traffic, self.rules = traffic, rules
        self.pauses = find_pauses(traffic.rails, rules.active_bytes_per_second)
        self._find_period = find_period
        active = len(traffic.rails) > self.pauses.samples.sum()
        whole = self._steps(0, len(traffic.rails)) if active else NO_STEPS
        self.start_quiet = max(self.samples(rules.start_quiet_seconds), self.long_pause(whole))
        self.stretches = tuple(self._split(whole))

    def samples(self, seconds: float) -> int:
        """The number of samples in a time."""
        return math.ceil(seconds / self.traffic.interval_seconds - 1e-9)

    def seconds(self, samples: float) -> float:
        """The time of a number of samples."""
        return float(samples) * self.traffic.interval_seconds

    def missing_text(self, samples: int) -> str:
        """A doubt about that many missing samples."""
        return f"data is missing for {self.seconds(samples):.2f} s"

    def long_pause(self, steps: RegularSteps) -> int:
        """The samples of a silence that is much longer than the usual ones of these steps; 0 without steps."""
        if not len(steps.begin):
            return 0
        usual = max(self.rules.barrier_gaps * steps.gap, self.rules.barrier_periods * steps.length)
        return math.ceil(max(usual, 3 * self.traffic.resolution))

    def near(self, steps: RegularSteps, sample: int, way: int) -> bool:
        """Whether regular steps come before (`way` -1) or after (1) a sample."""
        far, close = sample + way * NEAR_STEPS * steps.length, sample - way * steps.length / 2
        return steps.between(min(far, close), max(far, close)) >= LEAST_STEPS

    def _steps(self, first: int, end: int) -> RegularSteps:
        period = self._find_period(first, end)
        if math.isnan(period.seconds):
            # a barrier can hide the rhythm of the steps around it
            parts = self._parts(first, end, self.samples(self.rules.least_quiet_seconds))
            period = self._find_period(*max(parts, key=lambda part: part[1] - part[0], default=(first, end)))
        if math.isnan(period.seconds):
            return NO_STEPS
        steps = self._steps_of(period.seconds / self.traffic.interval_seconds, first, end)
        # steps after a long silence may have another phase, which hides them for a while
        for low, high in self._parts(first, end, self.long_pause(steps)):
            if high - low < end - first and steps.between(low, high) < LEAST_STEPS:
                steps = steps.join(self._steps_of(steps.length, low, high))
        return steps

    def _steps_of(self, period: float, first: int, end: int) -> RegularSteps:
        found = find_steps(self.traffic.rails[first:end], period)
        return find_regular_steps(replace(found, bounds=found.bounds + first), self.pauses, first)

    def _parts(self, first: int, end: int, pause: int) -> list[tuple[int, int]]:
        """The parts of some samples between pauses of at least this length; none for a length of 0."""
        if not pause:
            return []
        pauses = self.pauses
        cuts = (pauses.samples >= pause) & (pauses.end > first) & (pauses.first < end)
        begins = np.maximum(first, np.append(first, pauses.end[cuts]))
        ends = np.append(pauses.first[cuts], end)
        return [(low, high) for low, high in zip(begins.tolist(), ends.tolist(), strict=True) if low < high]

    def _split(self, whole: RegularSteps) -> Iterator[Stretch]:
        pauses, samples = self.pauses, len(self.traffic.rails)
        cuts = np.flatnonzero((pauses.samples >= self.start_quiet) | (pauses.first == 0) | (pauses.end == samples))
        firsts, ends = [0, *pauses.end[cuts].tolist()], [*pauses.first[cuts].tolist(), samples]
        for first, end, lead in zip(firsts, ends, [None, *cuts.tolist()], strict=True):
            if first < end:
                most = end - first > samples - self.start_quiet
                yield Stretch(first, end, lead, whole if most else self._steps(first, end))
