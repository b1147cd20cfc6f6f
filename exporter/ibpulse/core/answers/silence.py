"""`/api/v1/silences`: until when each running job moved bytes on a node, by rail, and what its links did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from ibpulse.core.answers.members import MAX_JOBS, MAX_PORTS, AnswerPart, Milliseconds, Name, at_most
from ibpulse.core.statistics.verdict import Moment, NodeSilence, Pause, RailSilence

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
    counted_ms = rail.counted_until_ms
    return RailSilence(
        sent=_on(rail.sent, bounds),
        received=_on(rail.received, bounds),
        lost=_on(rail.lost, bounds),
        active=rail.active,
        retried=_on(rail.retried, bounds),
        counted_until=None if counted_ms is None else bounds(counted_ms, counted_ms)[0],
    )


class SilencesAnswer(AnswerPart):
    """All jobs that run on the node and share no port."""

    time_ms: Milliseconds = Field(description="Time of this answer by the clock of the node.")
    clock_error_ms: Milliseconds | None = Field(
        description="The largest error of that clock, as the kernel says; null if it is not synchronised or unknown."
    )
    jobs: Annotated[list[SilenceAnswer], at_most(MAX_JOBS)]
