"""The findings of a campaign, and the table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.faults.fault_table import KINDS
from bench.faults.invariants import Violation
from bench.faults.load import Life
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
    lives: Sequence[Life] = ()
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
        """The lines of the table: each fault, each kind, and the whole campaign."""
        names = dict.fromkeys(name for episode in self.episodes for name in episode.names)
        width = max(map(len, [*names, *KINDS]), default=0)
        yield f"{'fault':{width}}  {'times':>5}  {'violations':>10}  {'lost beyond its device':>22}"
        for name in sorted(names):
            mine = [episode for episode in self.episodes if name in episode.names]
            violations, lost = sum(len(one.violations) for one in mine), sum(one.lost_seconds for one in mine)
            yield f"{name:{width}}  {len(mine):>5}  {violations:>10}  {lost:>20.2f} s"
        for name, reason in self.impossible.items():
            yield f"skipped: {name}: {reason}"
        yield f"{'kind':{width}}  {'times':>5}"
        happened = [one.occurrence.fault.name for one in self.happened]
        for kind, faults in KINDS.items():
            yield f"{kind:{width}}  {sum(happened.count(fault.name) for fault in faults):>5}"

    def line(self) -> str:
        """The whole campaign in one line."""
        lost = sum(episode.lost_seconds for episode in self.episodes)
        seconds, skipped = sum(life.seconds for life in self.lives), sum(life.skipped_seconds for life in self.lives)
        costs = f", {self.costs[0]} at the start and {self.costs[-1]} at the end" if self.costs else ""
        return (
            f"seed {self.seed}: {len(self.happened)} faults, {len(self.violations)} violations; {lost:.2f} s lost "
            f"beyond the faulty devices, {seconds - skipped:.0f} of {seconds:.0f} s aggregated in {len(self.lives)} "
            f"lives, ended within {self.stop_seconds:.1f} s{costs}"
        )

    def records(self, release: str) -> Iterator[str]:
        """A row of the track record for each invariant that was violated, with the first faults that did it."""
        found: dict[str, tuple[str, Violation]] = {}
        for episode in self.episodes:
            for violation in episode.violations:
                found.setdefault(violation.invariant, (", ".join(episode.names), violation))
        for violation in self.final:
            found.setdefault(violation.invariant, ("the whole campaign", violation))
        for names, violation in found.values():
            value = violation.value.replace("|", "\\|")
            bug = f"Violation of *{violation.invariant}* by {names}: {value[:200]}"
            yield f"| {bug} | campaign | `make campaign-faults SEED={self.seed}` | {release} |"
