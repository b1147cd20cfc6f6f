"""The jobs that are watched for silence, what their nodes last said, and the verdicts on their stalls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ibpulse.core.answers.jobs import SilenceAnswer, WatchedAnswer, describe_stall, describe_watched
from ibpulse.core.jobs import Key
from ibpulse.core.statistics.lateness import MeasuredOffset
from ibpulse.core.statistics.silences import Stall, follow, lasting
from ibpulse.core.statistics.verdict import KINDS, Moment, NodeSilence, Verdict, judge, latest
from ibpulse.gateway.push import PushedAlert


@dataclass(slots=True)
class Heard:
    """What a node last said of a job, with its clock when its last bytes became known, and why it answers no more."""

    answer: SilenceAnswer
    clock: MeasuredOffset | None = None
    problem: str = ""

    def silence(self) -> NodeSilence | None:
        """The same on the clock of the gateway; None before the first samples."""
        return self.answer.on(self._bounds, ordered=self.clock is not None, problem=self.problem)

    def _bounds(self, low_ms: int, high_ms: int) -> Moment:
        return self.clock.bounds(low_ms, high_ms) if self.clock else (low_ms / 1000, high_ms / 1000)


def _instants(answer: SilenceAnswer, later_ms: int = 0) -> list[tuple[int, int] | None]:
    """The last bytes of all rails, this much later."""
    moments = [moment for rail in answer.rails for moment in (rail.sent, rail.received)]
    return [(moment.ms + later_ms, moment.uncertainty_ms) if moment else None for moment in moments]


@dataclass(slots=True)
class WatchedJob:
    """A job with what its nodes say of it, and its stalls, the last one first."""

    key: Key
    nodes: dict[str, Heard] = field(default_factory=dict)
    stalls: list[Stall] = field(default_factory=list)
    asked: bool = False
    judged_at: float = 0.0

    @property
    def armed(self) -> bool:
        """Whether its silence would be noticed: it has had traffic."""
        return any(rail.sent or rail.received for each in self.nodes.values() for rail in each.answer.rails)

    @property
    def stall(self) -> Stall | None:
        """The stall that lasts."""
        return lasting(self.stalls)

    def hear(self, node: str, answer: SilenceAnswer, clock: MeasuredOffset | None) -> None:
        """Take over an answer of a node. The order of nodes is the same however long ago they stopped.

        A wall clock that was set, as after the machine was suspended, moves all times of the node, and no last byte.
        """
        old = self.nodes.get(node)
        if old and old.clock:
            for moved_ms in {0, answer.since_ms - old.answer.since_ms}:
                if _instants(old.answer, moved_ms) == _instants(answer):
                    clock = old.clock.set_forward(moved_ms)
        self.nodes[node] = Heard(answer, clock)

    def review(
        self, now_ns: int, unexplained_seconds: float, strangers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[Stall | None, Stall | None]:
        """Judge it by what is known now; the stall that began, and the one that ended.

        `strangers` are nodes of the job that never answered, with the reason.
        """
        silences = {name: silence for name, each in self.nodes.items() if (silence := each.silence())}
        silences |= {name: NodeSilence({}, 0.0, problem=problem) for name, problem in strangers.items()}
        last = latest(each.last for each in silences.values())
        return follow(self.stalls, judge(silences, unexplained_seconds), last, now_ns, over=not self.nodes)

    def describe(self) -> WatchedAnswer:
        """The job with its stalls, the last one first."""
        return describe_watched(*self.key, self.armed, self.stalls)


class Verdicts:
    """All watched jobs by scheduler and id, and the number of verdicts and of those that traffic refuted, by kind."""

    def __init__(self) -> None:
        self.jobs: dict[Key, WatchedJob] = {}
        self.given: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.withdrawn: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    def __iter__(self) -> Iterator[WatchedJob]:
        return iter(list(self.jobs.values()))

    def job(self, key: Key) -> WatchedJob:
        """A job, watched from now on."""
        return self.jobs.setdefault(key, WatchedJob(key))

    def keep(self, known: Iterable[Key]) -> None:
        """Forget jobs that no node knows any more."""
        for key in self.jobs.keys() - set(known):
            del self.jobs[key]

    def of(self, key: Key) -> dict[str, Any]:
        """Whether a job is armed, and its last stall, None without any, as plain values."""
        job = self.jobs.get(key, WatchedJob(key))
        return {"armed": job.armed, "verdict": describe_stall(job.stalls[0]).model_dump() if job.stalls else None}

    def alerts(self) -> list[PushedAlert]:
        """An alert for each stall that is pushed and lasts."""
        stalls = [(job.key[1], job.stall) for job in self if job.stall and job.stall.pushed]
        return [
            PushedAlert(job_id, annotate(stall.verdict), round(1e9 * stall.verdict.since[1]))
            for job_id, stall in stalls
        ]


def annotate(verdict: Verdict) -> Mapping[str, str]:
    """The annotations of an alert."""
    return {
        "summary": f"The job is silent ({verdict.kind}): {verdict.sentence}.",
        "description": describe(verdict),
        "verdict": verdict.kind,
        "node": ", ".join(verdict.nodes),
    }


def describe(verdict: Verdict) -> str:
    """The evidence, what speaks against other verdicts, and what is not known, as text."""
    parts = {"Evidence": verdict.evidence, "Against other verdicts": verdict.against, "Not known": verdict.unknown}
    return " ".join(f"{name}: {'; '.join(texts)}." for name, texts in parts.items() if texts)
