"""Bodies of requests for captures, checked, and the bodies of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from ibpulse.flightrecorder.alertmanager import Alert, parse_start
from ibpulse.flightrecorder.recorder import Pending
from ibpulse.flightrecorder.rules import API, Trigger
from ibpulse.flightrecorder.store import Stored
from ibpulse.units import MILLISECOND_NS, format_duration
from ibpulse.web.parameters import DURATION_PATTERN, read_duration
from ibpulse.web.problems import MEDIA_TYPE as PROBLEM_TYPE
from ibpulse.web.problems import ProblemDocument, bad_parameter, invalid_parameters

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


Body = TypeVar("Body", bound=BaseModel)
Labels = dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=1000)]]
MAX_LABELS, MAX_ALERTS = 64, 1000
DEFAULT_REASON = "request"


class CaptureRequest(BaseModel):
    """The body of a request for a capture; all of it may be left out."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(DEFAULT_REASON, min_length=1, max_length=200, description="Why, in a few words.")
    labels: Labels = Field(default_factory=dict, max_length=MAX_LABELS, description="Kept in the file.")
    before: str | None = Field(
        None,
        max_length=32,
        description="What of the time before now is in it, like 30s; as the settings say by default.",
        json_schema_extra={**DURATION_PATTERN},
    )
    after: str | None = Field(
        None,
        max_length=32,
        description="What of the time after now is in it, like 5s; as the settings say by default.",
        json_schema_extra={**DURATION_PATTERN},
    )


class AlertBody(BaseModel):
    """One alert as Alertmanager sends it; what else it sends is passed over."""

    status: Literal["firing", "resolved"]
    labels: Labels = Field(default_factory=dict, max_length=MAX_LABELS)
    starts_at: str = Field("", max_length=64, alias="startsAt")
    fingerprint: str = Field("", max_length=128)


class Notification(BaseModel):
    """A notification of Alertmanager, version 4 of the webhook."""

    version: Literal["4"]
    alerts: list[AlertBody] = Field(max_length=MAX_ALERTS)


def read_body(model: type[Body], raw: bytes) -> Body:
    """The body of a request; an empty one is one without members.

    Raises:
        ProblemError: it is no JSON, or not of this shape.
    """
    try:
        return model.model_validate_json(raw or b"{}", strict=True)
    except ValidationError as error:
        # a fault of the whole has no place
        faults = [{**fault, "loc": fault["loc"] or ("body",)} for fault in error.errors()]
        raise invalid_parameters(faults, _member_names(model)) from error


def _member_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def request_schema(model: type[BaseModel], required: bool) -> dict[str, Any]:
    """The body for the OpenAPI document."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, part in schema.pop("$defs", {}).items():
        schema = _inlined(schema, name, part)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def _inlined(schema: Any, name: str, part: dict[str, Any]) -> Any:
    """The schema with `part` in place of every reference to it."""
    if isinstance(schema, dict):
        if schema.get("$ref") == f"#/components/schemas/{name}":
            return part
        return {key: _inlined(value, name, part) for key, value in schema.items()}
    return [_inlined(item, name, part) for item in schema] if isinstance(schema, list) else schema


def make_request_trigger(
    body: CaptureRequest, now_ns: int, default_span_ns: tuple[int, int], history_ns: int
) -> Trigger:
    """The trigger of a request; `default_span_ns` is before and after where it gives none.

    Raises:
        ProblemError: a duration is none, or both together are longer than the history.
    """
    before_ns = None if body.before is None else read_duration("before", body.before)
    after_ns = None if body.after is None else read_duration("after", body.after)
    whole_ns = (before_ns or default_span_ns[0]) + (after_ns or default_span_ns[1])
    if whole_ns > history_ns:
        raise bad_parameter(
            "before",
            f"with after it makes {format_duration(whole_ns)}, and the ring holds {format_duration(history_ns)}; "
            "ask for less",
        )
    return Trigger(API, body.reason, now_ns, body.labels, before_ns, after_ns)


def read_alerts(notification: Notification) -> Sequence[Alert]:
    """The alerts of a notification; one without a fingerprint is told by its labels."""
    return [
        Alert(
            fingerprint=alert.fingerprint or repr(sorted(alert.labels.items())),
            firing=alert.status == "firing",
            labels=alert.labels,
            starts_ns=parse_start(alert.starts_at),
        )
        for alert in notification.alerts
    ]
