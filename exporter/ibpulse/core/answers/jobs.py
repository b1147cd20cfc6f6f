"""`/api/v1/jobs`: the jobs of a node; and the ports of one job, as a window, a summary or a stream of it has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.core.answers.members import (
    MAX_JOBS,
    MAX_PORTS,
    Amount,
    AnswerPart,
    Milliseconds,
    Name,
    Names,
    Sentences,
    at_most,
)
from ibpulse.core.model import JOB_BASES, JOB_SOURCES

MAX_HOLDINGS = 100


class JobTrafficAnswer(AnswerPart):
    """Until when a job moved bytes on this node. Traffic ended at most the uncertainty before each time, if at all."""

    since_ms: Milliseconds = Field(description="Since when its traffic has been followed.")
    known_until_ms: Milliseconds | None = Field(description="Time of the newest sample; null before the first.")
    step_period_seconds: Amount | None = Field(description="While the job is silent, that of its last steps.")
    last_ms: Milliseconds | None = Field(description="Last traffic in either direction; null if there was none.")
    last_uncertainty_ms: Milliseconds
    last_transmit_ms: Milliseconds | None
    last_transmit_uncertainty_ms: Milliseconds
    last_receive_ms: Milliseconds | None
    last_receive_uncertainty_ms: Milliseconds

    @property
    def instants(self) -> tuple[int | None, ...]:
        """The last traffic of either direction, of transmit and of receive."""
        return self.last_ms, self.last_transmit_ms, self.last_receive_ms

    @property
    def silent_seconds(self) -> float:
        """For how long it has certainly been silent, 0 if it is not."""
        if self.last_ms is None or self.known_until_ms is None:
            return 0.0
        return max(0, self.known_until_ms - self.last_ms) / 1000


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
    traffic: JobTrafficAnswer | None = Field(
        description="Null for a job that ended, shares a port, or is beyond the first 8."
    )


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
