"""What the routes of captures answer: the shapes, and the values in them. It must not take a capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from ibpulse.capture.recorder import Pending
from ibpulse.capture.store import Stored
from ibpulse.units import MILLISECOND_NS
from ibpulse.web.problems import MEDIA_TYPE as PROBLEM_TYPE
from ibpulse.web.problems import ProblemDocument

PATH = "/api/v1/captures"

_REASONS = {
    401: "A user and a password are needed.",
    403: "Writing needs a user that the web configuration knows, or an explicit opt-in.",
    404: "No such capture.",
    413: "The body is too long.",
    414: "The query is too long.",
    416: "The file has none of the range asked for.",
    422: "The body cannot be used; the detail names the bound and the way out.",
    503: "No capture can be taken or read now; the detail says why.",
}


class StoredAnswer(BaseModel):
    """A whole capture."""

    name: str
    trigger_ms: int = Field(description="Wall time of its trigger.")
    reason: str
    size_bytes: int
    url: str


class PendingAnswer(BaseModel):
    """A capture whose window is not over, or that is being written."""

    name: str
    trigger_ms: int
    reason: str
    ready_ms: int = Field(description="Wall time at which its window ends; it is written within seconds after that.")
    url: str


class CapturesAnswer(BaseModel):
    """All captures of the node."""

    captures: list[StoredAnswer] = Field(description="Whole captures, the newest first.")
    pending: list[PendingAnswer]
    stored_bytes: int
    problem: str = Field(description="Why no capture can be taken now; empty if it can.")


class NotificationAnswer(BaseModel):
    """What became of a notification."""

    capture: str | None = Field(description="The name of the capture that it takes, or null.")
    alerts: int = Field(description="Firing alerts of this node that were not captured within the cool-down.")


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of refusals with these statuses."""
    content = {PROBLEM_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def list_members(stored: Sequence[Stored], pending: Sequence[Pending], problem: str) -> dict[str, Any]:
    """The members of a `CapturesAnswer`; `stored` is oldest first."""
    return {
        "captures": [
            {
                "name": str(each.name),
                "trigger_ms": each.name.trigger_ms,
                "reason": each.name.reason,
                "size_bytes": each.size_bytes,
                "url": f"{PATH}/{each.name}",
            }
            for each in reversed(stored)
        ],
        "pending": [pending_members(each) for each in pending],
        "stored_bytes": sum(each.size_bytes for each in stored),
        "problem": problem,
    }


def pending_members(pending: Pending) -> dict[str, Any]:
    """The members of a `PendingAnswer`."""
    return {
        "name": str(pending.name),
        "trigger_ms": pending.name.trigger_ms,
        "reason": pending.name.reason,
        "ready_ms": pending.ready_ns // MILLISECOND_NS,
        "url": f"{PATH}/{pending.name}",
    }


def json_response(status: int, members: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """A response of these members as JSON."""
    return Response(orjson.dumps(members), status, headers, "application/json")
