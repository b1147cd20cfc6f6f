"""`/api/v1/silences` and `/api/v1/verdicts`: until when jobs moved bytes, by rail, and the verdicts on their stalls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from ibpulse.base.units import whole_ms
from ibpulse.core.answers.members import (
    MAX_JOBS,
    MAX_PORTS,
    MAX_WORDS,
    AnswerPart,
    Milliseconds,
    Name,
    Names,
    Sentence,
    Sentences,
    at_most,
)
from ibpulse.core.statistics.stalls import MAX_STALLS, Stall
from ibpulse.core.statistics.verdict import KINDS, Moment, NodeSilence, Pause, RailSilence

MAX_PAUSES = 20
Bounds = Callable[[int, int], Moment]
"""A time between two wall times of the node in ms, on the clock of the reader in seconds."""


class MomentAnswer(AnswerPart):
    """A moment: at most the uncertainty before the time."""

    ms: Milliseconds
    uncertainty_ms: Milliseconds

    def on(self, bounds: Bounds) -> Moment:
        """Its bounds on another clock."""
        return bounds(self.ms - self.uncertainty_ms, self.ms)


def _on(moment: MomentAnswer | None, bounds: Bounds) -> Moment | None:
    return None if moment is None else moment.on(bounds)


class RailSilenceAnswer(AnswerPart):
    """A rail of a job."""

    port: Name
    active: bool = Field(description="Whether its link is ACTIVE and its counters can be read.")
    sent: MomentAnswer | None = Field(
        description="The last byte transmitted, but not to storage; null if there was none."
    )
    received: MomentAnswer | None = Field(description="The last byte received; null if there was none.")
    lost: MomentAnswer | None = Field(description="When its link or its device was last lost; null if it never was.")
    retried: MomentAnswer | None = Field(description="When a counter of lost packets last grew; null if none did.")
    counted_until_ms: Milliseconds | None = Field(
        description="The last reading of the counters of lost packets; null if there are none."
    )
    connected_until_ms: Milliseconds | None = Field(
        description="The last time at which its device had the job's queue pairs; null if they cannot be counted."
    )
    closed: MomentAnswer | None = Field(
        description="When most of them were destroyed, if no byte has been moved since; or null."
    )


class PauseAnswer(AnswerPart):
    """A silence of a job on the node that ended: the last byte sent before it, its begin and its end."""

    sent: MomentAnswer
    begin_ms: Milliseconds
    end_ms: Milliseconds


class SilenceAnswer(AnswerPart):
    """Until when a job moved bytes on the node."""

    job_id: Name
    scheduler: Name
    since_ms: Milliseconds = Field(description="Since when its traffic has been followed.")
    known_until_ms: Milliseconds | None = Field(description="Time of the newest samples; null before the first.")
    notable: bool = Field(description="Whether it has been silent for longer than its steps explain.")
    regular_ms: Milliseconds | None = Field(
        description="The longest regular silence of its last steps; null before there are any."
    )
    longest_ms: Milliseconds = Field(description="The longest silence so far that ended.")
    storage: MomentAnswer | None = Field(
        description="When storage ports last carried more than usual, or rails sent without an answer; or null."
    )
    pauses: Annotated[list[PauseAnswer], at_most(MAX_PAUSES)] = Field(
        description="Silences that ended, the last regular ones and the longest ones, oldest first."
    )
    rails: Annotated[list[RailSilenceAnswer], at_most(MAX_PORTS)]

    def on(self, bounds: Bounds, ordered: bool = True, problem: str = "") -> NodeSilence | None:
        """The same for a verdict, on another clock; None before the first samples.

        `ordered` is false if the clock of the node is not known, `problem` says why it does not answer any more.
        """
        if self.known_until_ms is None:
            return None
        return NodeSilence(
            rails={rail.port: _rail_on(rail, bounds) for rail in self.rails},
            known_until=bounds(self.known_until_ms, self.known_until_ms)[0],
            regular=None if self.regular_ms is None else self.regular_ms / 1000,
            longest=self.longest_ms / 1000,
            pauses=tuple(
                Pause(
                    each.sent.on(bounds), bounds(each.begin_ms, each.begin_ms)[0], bounds(each.end_ms, each.end_ms)[1]
                )
                for each in self.pauses
            ),
            storage=_on(self.storage, bounds),
            ordered=ordered,
            problem=problem,
        )


def _rail_on(rail: RailSilenceAnswer, bounds: Bounds) -> RailSilence:
    counted_ms, connected_ms = rail.counted_until_ms, rail.connected_until_ms
    return RailSilence(
        sent=_on(rail.sent, bounds),
        received=_on(rail.received, bounds),
        lost=_on(rail.lost, bounds),
        active=rail.active,
        retried=_on(rail.retried, bounds),
        counted_until=None if counted_ms is None else bounds(counted_ms, counted_ms)[0],
        connected_until=None if connected_ms is None else bounds(connected_ms, connected_ms)[0],
        closed=_on(rail.closed, bounds),
    )


class SilencesAnswer(AnswerPart):
    """All jobs that run on the node and share no port."""

    time_ms: Milliseconds = Field(description="Time of this answer by the clock of the node.")
    clock_error_ms: Milliseconds | None = Field(
        description="The largest error of that clock, as the kernel says; null if it is not synchronised or unknown."
    )
    jobs: Annotated[list[SilenceAnswer], at_most(MAX_JOBS)]


class StalledRail(AnswerPart):
    """A rail that a verdict names."""

    node: Name
    port: Name


class StallAnswer(AnswerPart):
    """A silence with its verdict."""

    verdict: Name = Field(description=f"{', '.join(list(KINDS)[:-1])} or {list(KINDS)[-1]}.")
    sentence: Sentence = Field(description="The same in words.")
    nodes: Names = Field(description="The nodes that it names.")
    rails: Annotated[list[StalledRail], at_most(MAX_WORDS)] = Field(description="The rails that it names.")
    since_ms: Milliseconds = Field(description="The last byte of the job passed at most the uncertainty before.")
    since_uncertainty_ms: Milliseconds
    silent_ms: Milliseconds = Field(description="Length of the silence so far, or in all.")
    push_after_ms: Milliseconds = Field(description="The silence after which an alert is due.")
    pushed: bool = Field(description="Whether it was.")
    ended_ms: Milliseconds | None = Field(description="null while it lasts.")
    resumed: bool = Field(description="Whether it ended because the job had traffic again.")
    evidence: Sentences = Field(description="For the verdict.")
    against: Sentences = Field(description="Against the others.")
    not_known: Sentences


class WatchedAnswer(AnswerPart):
    """A job that is watched for silence."""

    job_id: Name
    scheduler: Name
    armed: bool = Field(description="Whether its silence would be noticed: it has had traffic.")
    stalls: Annotated[list[StallAnswer], at_most(MAX_STALLS)] = Field(description="The last one first.")


class VerdictsAnswer(AnswerPart):
    """The jobs that are watched for silence, with the verdicts on their last stalls."""

    jobs: Annotated[list[WatchedAnswer], at_most(MAX_JOBS)]


def describe_watched(scheduler: str, job_id: str, armed: bool, stalls: Sequence[Stall]) -> WatchedAnswer:
    """A watched job with its stalls, the last one first."""
    return WatchedAnswer.model_construct(
        job_id=job_id, scheduler=scheduler, armed=armed, stalls=[describe_stall(each) for each in stalls]
    )


def describe_stall(stall: Stall) -> StallAnswer:
    """A stall for an answer."""
    verdict = stall.verdict
    low, high = verdict.since
    return StallAnswer.model_construct(
        verdict=verdict.kind,
        sentence=verdict.sentence,
        nodes=list(verdict.nodes),
        rails=[StalledRail.model_construct(node=node, port=port) for node, port in verdict.rails],
        since_ms=round(1000 * high),
        since_uncertainty_ms=round(1000 * (high - low)),
        silent_ms=round(1000 * verdict.seconds),
        push_after_ms=round(1000 * verdict.push_after),
        pushed=stall.pushed,
        ended_ms=whole_ms(stall.ended_ns),
        resumed=stall.resumed,
        evidence=list(verdict.evidence),
        against=list(verdict.against),
        not_known=list(verdict.unknown),
    )
