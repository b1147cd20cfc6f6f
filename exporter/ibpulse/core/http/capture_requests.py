"""Requests for captures and notifications of alerts: their bodies, who may send them, and what refuses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.captures import Alert, parse_start
from ibpulse.core.http.auth.access import USER
from ibpulse.core.http.parameters import DURATION_PATTERN
from ibpulse.core.http.problems import MEDIA_TYPE as PROBLEM_TYPE
from ibpulse.core.http.problems import ProblemDocument, ProblemError, invalid_parameters
from ibpulse.core.http.schemas import inline_parts

_REASONS = {
    403: "Write access requires a user of the web configuration, or an explicit opt-in.",
    404: "No such capture.",
    413: "Body too long.",
    416: "Range not satisfiable.",
    422: "Invalid body; the detail names the limit and how to fix the request.",
    503: "Captures are unavailable; the detail gives the reason.",
}
MAX_LABELS, MAX_ALERTS = 64, 1000
DEFAULT_REASON = "request"


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {PROBLEM_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def json_response(
    status: int, answer: AnswerPart | Mapping[str, Any], headers: dict[str, str] | None = None
) -> Response:
    """A JSON response with an answer of a daemon, or with the members of another one."""
    return Response(orjson.dumps(answer, default=vars), status, headers, "application/json")


Body = TypeVar("Body", bound=BaseModel)
Labels = dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=1000)]]


class CaptureRequest(BaseModel):
    """The body of a request for a capture; every member is optional."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(DEFAULT_REASON, min_length=1, max_length=200, description="Reason, in a few words.")
    labels: Labels = Field(default_factory=dict, max_length=MAX_LABELS, description="Labels to store in the file.")
    before: str | None = Field(
        None,
        max_length=32,
        description="Time before now to include, like 30s (default: from the settings).",
        json_schema_extra={**DURATION_PATTERN},
    )
    after: str | None = Field(
        None,
        max_length=32,
        description="Time after now to include, like 5s (default: from the settings).",
        json_schema_extra={**DURATION_PATTERN},
    )


class AlertBody(BaseModel):
    """One alert from Alertmanager; other members are ignored."""

    status: Literal["firing", "resolved"]
    labels: Labels = Field(default_factory=dict, max_length=MAX_LABELS)
    starts_at: str = Field("", max_length=64, alias="startsAt")
    fingerprint: str = Field("", max_length=128)


class Notification(BaseModel):
    """A notification of Alertmanager, version 4 of the webhook."""

    version: Literal["4"]
    alerts: list[AlertBody] = Field(max_length=MAX_ALERTS)


def read_body(model: type[Body], raw: bytes) -> Body:
    """Parse the body of a request; an empty body counts as one without members.

    Raises:
        ProblemError: it is not JSON, or does not match the model.
    """
    try:
        return model.model_validate_json(raw or b"{}", strict=True)
    except ValidationError as error:
        # an error of the whole body has no location
        faults = [{**fault, "loc": fault["loc"] or ("body",)} for fault in error.errors()]
        raise invalid_parameters(faults, _member_names(model)) from error


def _member_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def request_schema(model: type[BaseModel], required: bool) -> dict[str, Any]:
    """The body for the OpenAPI document."""
    schema = inline_parts(model.model_json_schema())
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def read_alerts(notification: Notification) -> Sequence[Alert]:
    """The alerts of a notification; an alert without a fingerprint is identified by its labels."""
    return [
        Alert(
            fingerprint=alert.fingerprint or repr(sorted(alert.labels.items())),
            firing=alert.status == "firing",
            labels=alert.labels,
            starts_ns=parse_start(alert.starts_at),
        )
        for alert in notification.alerts
    ]


def may_write(request: Request, *, allow_unauthenticated: bool) -> bool:
    """Whether the client may take and delete captures."""
    return allow_unauthenticated or bool(request.scope.get(USER))


def check_writer(request: Request, *, allow_unauthenticated: bool) -> None:
    """Check that the client may write.

    Raises:
        ProblemError: the request has no user, and anonymous writes are not allowed.
    """
    if not may_write(request, allow_unauthenticated=allow_unauthenticated):
        raise ProblemError(
            "writing-needs-user",
            403,
            "Taking and deleting captures requires a user: set up users or client certificates in --web.config.file, "
            "or allow anyone with --capture.allow-unauthenticated=true.",
        )
