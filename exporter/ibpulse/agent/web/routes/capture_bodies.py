"""Request and response bodies of the capture API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from ibpulse.agent.flightrecorder.alertmanager import Alert, parse_start
from ibpulse.agent.flightrecorder.recorder import Pending
from ibpulse.agent.flightrecorder.rules import API, Trigger
from ibpulse.agent.flightrecorder.store import Stored
from ibpulse.base.units import MILLISECOND_NS, format_duration
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.captures import CaptureJobAnswer, CapturesAnswer, PendingAnswer, StoredAnswer
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.http.parameters import DURATION_PATTERN, read_parameter
from ibpulse.core.http.problems import MEDIA_TYPE as PROBLEM_TYPE
from ibpulse.core.http.problems import ProblemDocument, bad_parameter, invalid_parameters
from ibpulse.core.http.schemas import inline_parts
from ibpulse.core.jobs.job_history import JobRecord

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


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {PROBLEM_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def list_captures(
    stored: Sequence[Stored],
    pending: Sequence[Pending],
    problem: str,
    jobs: Mapping[str, Sequence[JobRecord]] = MappingProxyType({}),
    ports: Mapping[str, str] = MappingProxyType({}),
) -> CapturesAnswer:
    """The answer with all captures; `stored` is oldest first. `jobs` and `ports` are those of each capture, as far as
    known.

    A file that is complete remains pending until its event is in the event log, so whoever finds it listed finds the
    event as well.
    """
    unfinished = {each.name for each in pending}
    finished = [each for each in stored if each.name not in unfinished]
    return CapturesAnswer.model_construct(
        captures=[
            StoredAnswer.model_construct(
                name=str(each.name),
                trigger_ms=each.name.trigger_ms,
                reason=each.name.reason,
                ports=ports.get(str(each.name), ""),
                jobs=_jobs(jobs.get(str(each.name))),
                size_bytes=each.size_bytes,
                url=f"{PATH}/{each.name}",
            )
            for each in reversed(finished)
        ],
        pending=[describe_pending(each) for each in pending],
        stored_bytes=sum(each.size_bytes for each in finished),
        problem=problem,
    )


def _jobs(records: Sequence[JobRecord] | None) -> list[CaptureJobAnswer] | None:
    return None if records is None else [_job(record) for record in records]


def _job(record: JobRecord) -> CaptureJobAnswer:
    claim = record.job.claim
    return CaptureJobAnswer.model_construct(
        job_id=claim.id,
        scheduler=claim.scheduler,
        name=claim.name,
        namespace=claim.namespace,
        ports=[str(port) for port in record.job.ports],
        began_ms=None if record.began_ns is None else record.began_ns // MILLISECOND_NS,
        began_uncertainty_ms=-(-record.began_uncertainty_ns // MILLISECOND_NS),
        ended_ms=None if record.ended_ns is None else record.ended_ns // MILLISECOND_NS,
        ended_uncertainty_ms=-(-record.ended_uncertainty_ns // MILLISECOND_NS),
    )


def describe_pending(pending: Pending) -> PendingAnswer:
    """The answer about a capture that is not finished."""
    return PendingAnswer.model_construct(
        name=str(pending.name),
        trigger_ms=pending.name.trigger_ms,
        reason=pending.name.reason,
        ready_ms=pending.ready_ns // MILLISECOND_NS,
        url=f"{PATH}/{pending.name}",
    )


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
