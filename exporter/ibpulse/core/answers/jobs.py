"""`/api/v1/{jobs,silences,verdicts,captures}`: jobs with their ports, their silences and verdicts, and captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from ibpulse.base.units import whole_ms
from ibpulse.core.answers.members import (
    MAX_JOBS,
    MAX_NAME,
    MAX_PORTS,
    MAX_WORDS,
    AnswerPart,
    Count,
    Milliseconds,
    Name,
    Names,
    Sentence,
    Sentences,
    at_most,
)
from ibpulse.core.captures import parse_name
from ibpulse.core.model import JOB_BASES, JOB_SOURCES
from ibpulse.core.statistics.silences import MAX_STALLS, Stall
from ibpulse.core.statistics.verdict import KINDS, Moment, NodeSilence, Pause, RailSilence

MAX_CAPTURES, MAX_PENDING, MAX_CAPTURE_JOBS = 10_000, 1000, 100
MAX_PAUSES = 20
Bounds = Callable[[int, int], Moment]
"""A time between two wall times of the node in ms, on the clock of the reader in seconds."""


def _capture_name(text: str) -> str:
    if parse_name(text) is None:
        raise ValueError("is not the name of a capture")
    return text


CaptureFile = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_capture_name)]


class CaptureJobAnswer(AnswerPart):
    """A job that ran on the node within a capture; it began or ended at most the uncertainty before the time."""

    job_id: Name
    scheduler: Name
    name: Name = Field(description="Empty unless jobs.names is set, and the source gives it.")
    namespace: Name
    ports: Names = Field(description="Those that it had first in the capture, at most 64.")
    began_ms: Milliseconds | None = Field(description="null if it was running when it was first seen.")
    began_uncertainty_ms: Milliseconds
    ended_ms: Milliseconds | None = Field(description="null if it was running when the capture was written.")
    ended_uncertainty_ms: Milliseconds


class StoredAnswer(AnswerPart):
    """A finished capture."""

    name: CaptureFile
    trigger_ms: Milliseconds = Field(description="Wall time of its trigger.")
    reason: Name = Field(description="Reason, or name of the alert or rule, as in the file's name.")
    ports: Sentence = Field(
        description="Ports or devices that the alert or rule names; empty without any, or if unknown."
    )
    jobs: Annotated[list[CaptureJobAnswer], at_most(MAX_CAPTURE_JOBS)] | None = Field(
        description="The jobs of its span, the newest 16; null if they are not known."
    )
    size_bytes: Count
    url: Name


class PendingAnswer(AnswerPart):
    """A capture whose window has not ended, or that is being written; it is not among the finished ones."""

    name: CaptureFile
    trigger_ms: Milliseconds
    reason: Name
    ready_ms: Milliseconds = Field(
        description="Wall time at which its window ends; the file is written within seconds after that."
    )
    url: Name


class CapturesAnswer(AnswerPart):
    """All captures of the node."""

    captures: Annotated[list[StoredAnswer], at_most(MAX_CAPTURES)] = Field(
        description="Finished captures, newest first."
    )
    pending: Annotated[list[PendingAnswer], at_most(MAX_PENDING)]
    stored_bytes: Count
    problem: Sentence = Field(description="Reason that no capture can be taken; empty if one can.")


class NotificationAnswer(AnswerPart):
    """The result of a notification."""

    capture: CaptureFile | None = Field(description="Name of the capture that it triggered, or null.")
    alerts: Count = Field(description="Firing alerts of this node that were not captured within the cool-down.")


MAX_HOLDINGS = 100


class JobAnswer(AnswerPart):
    """One job; it began or ended at most the uncertainty before the time, when that was noticed."""

    job_id: Name
    scheduler: Name
    source: Name = Field(description=f"{', '.join(JOB_SOURCES[:-1])} or {JOB_SOURCES[-1]}.")
    name: Name = Field(description="Empty unless jobs.names is set, and the source gives it.")
    namespace: Name
    ports: Annotated[list[Name], at_most(MAX_PORTS)] = Field(
        description="Ports whose traffic is the job's; the last ones of a job that ended."
    )
    basis: Name = Field(description=f"How the ports are known: {', '.join(JOB_BASES)}; empty if they are not.")
    gpus: Names = Field(description="PCI addresses or indexes, as the source gives them; empty for a past job.")
    devices: Names = Field(description="RDMA devices, as the source gives them; empty for a past job.")
    running: bool
    began: Name | None = Field(description="In RFC 3339; null if it was running when it was first seen.")
    began_ms: Milliseconds | None
    began_uncertainty_ms: Milliseconds
    ended: Name | None = Field(description="In RFC 3339; null while it is running.")
    ended_ms: Milliseconds | None
    ended_uncertainty_ms: Milliseconds


class JobsAnswer(AnswerPart):
    """The jobs that run, then those that ended within the history, the last one first."""

    known: bool = Field(description="Whether `jobs` has all jobs that run: the sources can list them.")
    sources: Names = Field(description="The sources that exist on this node.")
    jobs: Annotated[list[JobAnswer], at_most(MAX_JOBS)]
    pods: Names = Field(description="UIDs of the pods on this node; jobs are those that hold an RDMA device.")
    notices: Sentences


class HoldingAnswer(AnswerPart):
    """Ports that a job had from one time to another, each noticed at most the uncertainty later."""

    ports: Names
    from_ms: Milliseconds | None = Field(description="null if it had them since before the events go back.")
    from_uncertainty_ms: Milliseconds
    to_ms: Milliseconds | None = Field(description="null while it has them.")
    to_uncertainty_ms: Milliseconds


class JobPortsAnswer(AnswerPart):
    """A job, and the ports that it had in the span."""

    job_id: Name
    scheduler: Name
    running: bool
    had: Annotated[list[HoldingAnswer], at_most(MAX_HOLDINGS)] = Field(
        description="Oldest first; the newest 32, with at most 512 ports."
    )


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
