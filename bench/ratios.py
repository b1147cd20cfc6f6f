"""Compares programs in rounds: the ratio of each round, and a confidence interval of their median.

The interval of a median needs no assumption about the distribution: it lies between two of the sorted values, and how
often that holds is a binomial probability (H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed., chapter 7).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf
from statistics import median

LEVEL = 0.95
PRECISION = 0.05
"""Rounds end when each interval reaches no further than this fraction of the ratio to either side, on average."""
MIN_ROUNDS = 6
"""With fewer values, not even the smallest and the largest enclose the median in 95 % of all cases."""

Measured = Mapping[str, float]
"""What a program measured in its turn: values by the name of the quantity."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios of the rounds, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def precision(self) -> float:
        """Half of the interval's width, as a fraction of the ratio."""
        return (self.high - self.low) / 2 / self.value

    def __str__(self) -> str:
        if self.high == inf:
            return f"{self.value:.2f} × (too few rounds for an interval)"
        noisy = "" if self.precision <= PRECISION else ", too noisy"
        return f"{self.value:.2f} × ({self.low:.2f} to {self.high:.2f}{noisy})"


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """The ratio of two quantities, given the values of both for each round.

    Raises:
        ValueError: there is no round, or the numbers of values differ.
    """
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    if not ratios:
        raise ValueError("a ratio needs at least one round")
    rank = _rank(len(ratios))
    if rank is None:
        return Ratio(median(ratios), 0.0, inf)
    return Ratio(median(ratios), ratios[rank], ratios[-1 - rank])


def _rank(count: int) -> int | None:
    """The largest k for which the values k and count-1-k, sorted and counted from 0, enclose the median; or None."""
    tail, rank = 0.0, None
    for below in range(count // 2):
        tail += comb(count, below) / 2**count
        if 1 - 2 * tail < LEVEL:
            break
        rank = below
    return rank


@dataclass(frozen=True, slots=True)
class Watched:
    """A ratio that decides when there are enough rounds: a quantity of one program ÷ a quantity of another."""

    program: str
    quantity: str
    against: str


class Rounds:
    """The values of all programs, round by round."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, Measured]] = []

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, measured: dict[str, Measured]) -> None:
        """One more round: what each program measured in its turn."""
        self._rounds.append(measured)

    def values(self, program: str, quantity: str) -> list[float]:
        """The values of one quantity of one program, one per round."""
        return [one[program][quantity] for one in self._rounds]

    def middle(self, program: str, quantity: str) -> float:
        """The median of one quantity over the rounds."""
        return median(self.values(program, quantity))

    def ratio(self, program: str, against: str, quantity: str) -> Ratio:
        """A quantity of one program ÷ the same of another."""
        return ratio_of(self.values(program, quantity), self.values(against, quantity))

    def precise(self, watched: Sequence[Watched]) -> bool:
        """Whether the intervals of all these ratios are narrow enough."""
        return all(self.ratio(one.program, one.against, one.quantity).precision <= PRECISION for one in watched)


def take_turns(
    programs: Mapping[str, Callable[[], Measured]],
    watched: Sequence[Watched],
    seconds: float,
    least: int = MIN_ROUNDS,
) -> Rounds:
    """Repeat rounds, each of which runs every program once, alone and in a random order; see `repeat`.

    So neither a slow drift of the machine nor what ran before favours one of them.
    """

    def measure() -> dict[str, Measured]:
        return {name: programs[name]() for name in random.sample(list(programs), len(programs))}

    return repeat(measure, watched, seconds, least)


def repeat(
    measure: Callable[[], dict[str, Measured]], watched: Sequence[Watched], seconds: float, least: int = MIN_ROUNDS
) -> Rounds:
    """Repeat a round until the watched ratios are precise, or for about `seconds`; at least `least` times."""
    rounds, begun = Rounds(), time.monotonic()
    while len(rounds) < least or (not rounds.precise(watched) and time.monotonic() - begun < seconds):
        rounds.add(measure())
    return rounds
