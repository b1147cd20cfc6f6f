"""Runs a sampler and the C program at the same time, so that both see the same load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from bench import reference
from bench.bench import MILLISECOND_NS, PORTS
from bench.sampler import SamplerRun, SamplerWatch
from ibpulse.core.ring.reader import RingReader

# The C program wakes this much later than the sampler: never at the same time and, at 10 ms, in the same phase of a
# 250 Hz scheduler tick.
PHASE_NS = {10: 6 * MILLISECOND_NS, 1: MILLISECOND_NS // 2}
PARTS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Pair:
    """The results of both programs over the same seconds."""

    sampler: SamplerRun
    c: reference.ReferenceRun


def measure(program: Path, reader: RingReader, interval_ms: int, seconds: float) -> Pair:
    """One run of the C program alongside the sampler of a ring with eight ports."""
    watching = SamplerWatch(reader)
    c_run = reference.run(program, interval_ms * MILLISECOND_NS, seconds, PORTS, PHASE_NS[interval_ms])
    return Pair(watching.stop(), c_run)


class Pairs:
    """Several rounds and their combined results."""

    def __init__(self, rounds: Sequence[Pair]) -> None:
        self.rounds = rounds

    def late_ratios(self) -> list[float]:
        """The sampler's p99 lateness ÷ that of the C program, for each round, sorted."""
        return sorted(pair.sampler.late_ns(PARTS["p99"]) / pair.c.lateness_ns["p99"] for pair in self.rounds)

    def kept(self) -> tuple[float, float]:
        """Fraction of samples captured by the sampler and by the C program."""
        return fmean(pair.sampler.kept for pair in self.rounds), fmean(pair.c.kept for pair in self.rounds)

    def late_ns(self, part: str) -> tuple[float, float]:
        """A percentile of the wake-up delay, such as p99, of the sampler and of the C program."""
        sampler = median(pair.sampler.late_ns(PARTS[part]) for pair in self.rounds)
        return sampler, median(pair.c.lateness_ns[part] for pair in self.rounds)
