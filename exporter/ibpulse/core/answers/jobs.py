"""`/api/v1/jobs` and `/api/v1/captures`: the jobs of a node with their ports, and its captures."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ibpulse.core.answers.members import (
    MAX_JOBS,
    MAX_NAME,
    MAX_PORTS,
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

MAX_CAPTURES, MAX_PENDING, MAX_CAPTURE_JOBS = 10_000, 1000, 100


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
