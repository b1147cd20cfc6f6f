"""The findings of a campaign, and the table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.faults.invariants import Violation
from bench.faults.plan import Happened

CALM = "none (calm)"
# allocators keep memory after many clients, and the load has a few connections open at any time
MORE_MEMORY_BYTES = 20e6
MORE_DESCRIPTORS = 8


@dataclass(frozen=True)
class Cost:
    """Memory of both processes in bytes, and open descriptors of the main one, in one life of the daemon."""

    memory: int
    descriptors: int
    life: int

    def exceeds(self, first: Cost) -> bool:
        """Whether it has grown by more than the allowance."""
        more_memory, more_descriptors = self.memory - first.memory, self.descriptors - first.descriptors
        return more_memory > MORE_MEMORY_BYTES or more_descriptors > MORE_DESCRIPTORS

    def __str__(self) -> str:
        return f"{self.memory / 1e6:.1f} MB, {self.descriptors} descriptors"


@dataclass(frozen=True)
class Judged:
    """An episode: its faults, the violations, and the most seconds that another device lost."""

    happened: Sequence[Happened]
    violations: Sequence[Violation]
    lost_seconds: float

    @property
    def names(self) -> list[str]:
        """The names of its faults."""
        return [one.occurrence.fault.name for one in self.happened] or [CALM]


@dataclass
class Outcome:
    """All episodes, and the findings at the end."""

    seed: int
    episodes: list[Judged] = field(default_factory=list)
    final: list[Violation] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    impossible: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = float("nan")

    @property
    def happened(self) -> list[Happened]:
        """All faults so far."""
        return [one for episode in self.episodes for one in episode.happened]

    @property
    def violations(self) -> list[Violation]:
        """All violations, in the order in which they were found."""
        return [*(one for episode in self.episodes for one in episode.violations), *self.final]

    def table(self) -> Iterator[str]:
        """The lines of the table."""
        names = dict.fromkeys(name for episode in self.episodes for name in episode.names)
        width = max(map(len, names), default=0)
        yield f"{'fault':{width}}  {'times':>5}  {'violations':>10}  {'lost beyond its device':>22}"
        for name in sorted(names):
            mine = [episode for episode in self.episodes if name in episode.names]
            violations, lost = sum(len(one.violations) for one in mine), sum(one.lost_seconds for one in mine)
            yield f"{name:{width}}  {len(mine):>5}  {violations:>10}  {lost:>20.2f} s"
        for name, reason in self.impossible.items():
            yield f"skipped: {name}: {reason}"
        if self.costs:
            yield f"at the start: {self.costs[0]}; at the end: {self.costs[-1]}"
        yield f"the daemon ended within {self.stop_seconds:.1f} s; {len(self.violations)} violations"
