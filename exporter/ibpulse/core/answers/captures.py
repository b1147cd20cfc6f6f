"""`/api/v1/captures`: the captures of a node, finished and pending, and what becomes of a request for one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ibpulse.core.answers.members import MAX_NAME, AnswerPart, Count, Milliseconds, Name, Names, Sentence, at_most
from ibpulse.core.captures import parse_name

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
