"""Request and response bodies of the capture API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from ibpulse.base.values import SOME_TIME
from ibpulse.flightrecorder.alertmanager import Alert, parse_start
from ibpulse.flightrecorder.recorder import Pending
from ibpulse.flightrecorder.rules import API, Trigger
from ibpulse.flightrecorder.store import Stored
from ibpulse.jobs.job_history import JobRecord
from ibpulse.units import MILLISECOND_NS, format_duration
from ibpulse.web.job_choice import describe_moment
from ibpulse.web.parameters import DURATION_PATTERN, read_parameter
from ibpulse.web.problems import MEDIA_TYPE as PROBLEM_TYPE
from ibpulse.web.problems import ProblemDocument, bad_parameter, invalid_parameters
from ibpulse.web.schemas import inline_parts

PATH = "/api/v1/captures"

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


class CaptureJobAnswer(BaseModel):
    """A job that ran on the node within a capture; it began or ended at most the uncertainty before the time."""

    job_id: str
    scheduler: str
    name: str = Field(description="Empty unless jobs.names is set, and the source gives it.")
    namespace: str
    ports: list[str] = Field(description="Those that it had first in the capture, at most 64.")
    began_ms: int | None = Field(description="null if it was running when it was first seen.")
    began_uncertainty_ms: int
    ended_ms: int | None = Field(description="null if it was running when the capture was written.")
    ended_uncertainty_ms: int


class StoredAnswer(BaseModel):
    """A finished capture."""

    name: str
    trigger_ms: int = Field(description="Wall time of its trigger.")
    reason: str = Field(description="Reason, or name of the alert or rule, as in the file's name.")
    ports: str = Field(description="Ports or devices that the alert or rule names; empty without any, or if unknown.")
    jobs: list[CaptureJobAnswer] | None = Field(
        description="The jobs of its span, the newest 16; null if they are not known."
    )
    size_bytes: int
    url: str


class PendingAnswer(BaseModel):
    """A capture whose window has not ended, or that is being written; it is not among the finished ones."""

    name: str
    trigger_ms: int
    reason: str
    ready_ms: int = Field(
        description="Wall time at which its window ends; the file is written within seconds after that."
    )
    url: str


class CapturesAnswer(BaseModel):
    """All captures of the node."""

    captures: list[StoredAnswer] = Field(description="Finished captures, newest first.")
    pending: list[PendingAnswer]
    stored_bytes: int
    problem: str = Field(description="Reason that no capture can be taken; empty if one can.")


class NotificationAnswer(BaseModel):
    """The result of a notification."""

    capture: str | None = Field(description="Name of the capture that it triggered, or null.")
    alerts: int = Field(description="Firing alerts of this node that were not captured within the cool-down.")


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {PROBLEM_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def list_members(
    stored: Sequence[Stored],
    pending: Sequence[Pending],
    problem: str,
    jobs: Mapping[str, Sequence[JobRecord]] = MappingProxyType({}),
    ports: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The members of a `CapturesAnswer`; `stored` is oldest first. `jobs` and `ports` are those of each capture, as
    far as known.

    A file that is complete remains pending until its event is in the event log, so whoever finds it listed finds the
    event as well.
    """
    unfinished = {each.name for each in pending}
    finished = [each for each in stored if each.name not in unfinished]
    return {
        "captures": [
            {
                "name": str(each.name),
                "trigger_ms": each.name.trigger_ms,
                "reason": each.name.reason,
                "ports": ports.get(str(each.name), ""),
                "jobs": _jobs(jobs.get(str(each.name))),
                "size_bytes": each.size_bytes,
                "url": f"{PATH}/{each.name}",
            }
            for each in reversed(finished)
        ],
        "pending": [pending_members(each) for each in pending],
        "stored_bytes": sum(each.size_bytes for each in finished),
        "problem": problem,
    }


def _jobs(records: Sequence[JobRecord] | None) -> list[dict[str, Any]] | None:
    return None if records is None else [_job(record) for record in records]


def _job(record: JobRecord) -> dict[str, Any]:
    claim = record.job.claim
    return {
        "job_id": claim.id,
        "scheduler": claim.scheduler,
        "name": claim.name,
        "namespace": claim.namespace,
        "ports": [str(port) for port in record.job.ports],
        **describe_moment("began", record.began_ns, record.began_uncertainty_ns),
        **describe_moment("ended", record.ended_ns, record.ended_uncertainty_ns),
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
    """A JSON response with these members."""
    return Response(orjson.dumps(members), status, headers, "application/json")


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


def make_request_trigger(
    body: CaptureRequest, now_ns: int, default_span_ns: tuple[int, int], history_ns: int
) -> Trigger:
    """The trigger of a request; `default_span_ns` is the default time before and after.

    Raises:
        ProblemError: a duration is invalid, or both together exceed the history.
    """
    before_ns = None if body.before is None else read_parameter("before", body.before, SOME_TIME)
    after_ns = None if body.after is None else read_parameter("after", body.after, SOME_TIME)
    whole_ns = (before_ns or default_span_ns[0]) + (after_ns or default_span_ns[1])
    if whole_ns > history_ns:
        raise bad_parameter(
            "before",
            f"{format_duration(whole_ns)} together with after exceeds the history, "
            f"{format_duration(history_ns)}; shorten one of them",
        )
    return Trigger(API, body.reason, now_ns, body.labels, before_ns, after_ns)


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
