"""Follows the stalls of a job over time by its verdicts: each begins, keeps its words, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ibpulse.core.statistics.verdict import Kind, Moment, Verdict

# of a job, newest first
MAX_STALLS = 10
# judgements of the same silence differ by less in the moment of the last byte
SAME_SECONDS = 1.0


@dataclass(slots=True)
class Stall:
    """A silence with its verdict; `ended_ns` is None while it lasts, and `resumed` says that traffic ended it.

    It is `pushed` once it has lasted for `push_after` of its verdict. `said` are the kinds that were logged and
    counted, each once, because verdicts may alternate.
    """

    verdict: Verdict
    pushed: bool = False
    ended_ns: int | None = None
    resumed: bool = False
    said: set[Kind] = field(default_factory=set)

    def update(self, verdict: Verdict) -> None:
        """Take over a new verdict on the same silence; its words change only with the names, or if more is known.

        Nodes that forget their past, such as restarted daemons, do not take a verdict back.
        """
        old = self.verdict
        # the end of a job is told after all
        facts = [(each.kind, each.nodes, each.rails, len(each.evidence)) for each in (verdict, old)]
        same = facts[0] == facts[1]
        known = len(verdict.unknown) >= len(old.unknown)
        if verdict.kind == "unknown" and old.kind != "unknown":
            verdict = replace(old, seconds=verdict.seconds)
        elif same and known:
            verdict = replace(old, seconds=verdict.seconds, push_after=verdict.push_after)
        self.verdict = verdict
        self.pushed |= verdict.stalled

    def move(self, seconds: float) -> None:
        """Move its begin by the seconds by which the clock was set forward."""
        low, high = self.verdict.since
        self.verdict = replace(self.verdict, since=(low + seconds, high + seconds))


def lasting(stalls: Sequence[Stall]) -> Stall | None:
    """The stall that lasts, None without one; `stalls` are those of a job, newest first."""
    return stalls[0] if stalls and stalls[0].ended_ns is None else None


def follow(
    stalls: list[Stall], verdict: Verdict | None, last: Moment | None, now_ns: int, *, over: bool = False
) -> tuple[Stall | None, Stall | None]:
    """Take over a new judgement of a job; the stall that began, and the one that ended.

    `stalls` are those so far, newest first; the last byte of the job passed at `last`, None if that is not known.
    The job is `over` if no node has it any more.
    """
    old, ended = lasting(stalls), None
    if old and not verdict and not over and not (last and last[1] > old.verdict.since[1] + SAME_SECONDS):
        # nobody answers, or storage explains it: no traffic has refuted it
        return None, None
    if old and not (verdict and verdict.since[0] <= old.verdict.since[1] + SAME_SECONDS):
        old.ended_ns, old.resumed, ended = now_ns, not over, old
    if verdict is None:
        return None, ended
    if old and not ended:
        old.update(verdict)
        return None, None
    begun = Stall(verdict, pushed=verdict.stalled)
    stalls[:] = [begun, *stalls][:MAX_STALLS]
    return begun, ended
