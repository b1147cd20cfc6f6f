"""Query parameters, spans and bodies of requests, with the checks that FastAPI and pydantic do not offer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.responses import Response

from ibpulse.base.text import first_names
from ibpulse.base.units import format_duration
from ibpulse.base.values import INSTANT, SOME_TIME, Kind
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.node import MAX_EVENTS
from ibpulse.core.captures import Alert, parse_start
from ibpulse.core.events import KINDS
from ibpulse.core.http.access import USER
from ibpulse.core.http.problems import ProblemError, bad_parameter, inline_parts, invalid_parameters
from ibpulse.core.jobs import Key
from ibpulse.core.window_values import Bins, bins_between, newest_bins

T = TypeVar("T")

# The patterns are only for the OpenAPI document: the parsers give better messages than a failed pattern.
DURATION_PATTERN = {"pattern": r"^([0-9]{1,19}(\.[0-9]{1,19})?(ns|us|µs|ms|s|m|h|d))+$"}
INSTANT_PATTERN = {"pattern": r"^([0-9]{12,18}|[0-9]{1,12}\.[0-9]{1,20}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+)$"}
INSTANT_FORMS = "Epoch milliseconds (1763683200000), epoch seconds with a fraction (1763683200.5) or RFC 3339. "

_DURATION_SCHEMA = {"type": "string", "maxLength": 32, **DURATION_PATTERN}
_INSTANT_SCHEMA = {"type": "string", "maxLength": 64, **INSTANT_PATTERN}

# Optional types have their own schemas, because a query cannot contain null.
Duration = Annotated[str, Field(max_length=32), WithJsonSchema(_DURATION_SCHEMA)]
OptionalDuration = Annotated[str | None, Field(max_length=32), WithJsonSchema(_DURATION_SCHEMA)]
OptionalInstant = Annotated[str | None, Field(max_length=64), WithJsonSchema(_INSTANT_SCHEMA)]
DEFAULT_LIMIT = 1000
NAMED_JOBS, MAX_KNOWN_JOBS = 20, 256


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Wall times in ns since the epoch from `from_ns` up to `to_ns`, exclusive.

    `newest` spans were asked for by their length and end now.
    """

    from_ns: int
    to_ns: int
    newest: bool = False

    @property
    def length_ns(self) -> int:
        """Length of the span."""
        return self.to_ns - self.from_ns


class SpanQuery(BaseModel):
    """The query parameters that choose a span, unparsed: `last`, or `from` and `to`."""

    model_config = ConfigDict(extra="forbid")

    last: OptionalDuration = Field(None, description="Length of the newest span, like 5s or 1m.")
    from_: OptionalInstant = Field(None, alias="from", description=INSTANT_FORMS + "Included.")
    to: OptionalInstant = Field(None, description=INSTANT_FORMS + "Exclusive (default: now).")

    def span(self, now_ns: int, default_last: str = "") -> TimeSpan:
        """The span. Without `last` and `from` it is the newest `default_last`, or all before `to` if that is empty.

        Raises:
            ProblemError: a parameter is invalid, the combination is, `from` is in the future, or later than `to`.
        """
        if self.last is not None and (self.from_, self.to) != (None, None):
            raise bad_parameter("last", "cannot be combined with from and to")
        if self.last is not None or (self.from_ is None and default_last):
            if self.to is not None:
                raise bad_parameter("to", f"requires from; for the most recent data, use last={default_last}")
            last_ns = read_parameter("last", default_last if self.last is None else self.last, SOME_TIME)
            return TimeSpan(now_ns - last_ns, now_ns, newest=True)
        to_ns = now_ns if self.to is None else read_parameter("to", self.to, INSTANT)
        if self.from_ is None:
            return TimeSpan(min(0, to_ns), to_ns)
        from_ns = read_parameter("from", self.from_, INSTANT)
        if from_ns > now_ns:
            raise bad_parameter("from", f"{self.from_} is in the future; check both clocks")
        if from_ns > to_ns:
            raise bad_parameter("from", f"{self.from_} is later than to={self.to}; swap them")
        return TimeSpan(from_ns, to_ns)


def read_parameter(parameter: str, text: str, kind: Kind[T]) -> T:
    """The value of a parameter."""
    try:
        return kind.parse(text)
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error


# Of queries for a grid of samples.
RESOLUTION: Any = Field(None, description="Width of a bin: a multiple of the interval.")
MAX_POINTS: Any = Field(None, description="Maximum number of bins; they are widened to fit.")
STATISTIC: Any = Field("max", description="Statistic of the valid samples in a bin.")
MaxPoints = Annotated[
    int | None, Field(ge=2, le=10_000_000), WithJsonSchema({"type": "integer", "minimum": 2, "maximum": 10_000_000})
]


def choose_bins(
    span: TimeSpan,
    resolution: str | None,
    max_points: int | None,
    now_ns: int,
    interval_ns: int,
    *,
    whose: str = "the sampling interval",
    widest: int = 1,
) -> Bins:
    """The bins of a query; `whose` interval it is, for an error, and `widest` is the widest stride of the ports."""
    width = 1
    if resolution is not None:
        width, rest = divmod(read_parameter("resolution", resolution, SOME_TIME), interval_ns)
        if rest or not width:
            reason = f"{resolution} is not a multiple of {whose}, {format_duration(interval_ns)}"
            raise bad_parameter("resolution", reason)
    if span.newest:
        return newest_bins(span.length_ns, now_ns, interval_ns, width, max_points, widest)
    return bins_between(span.from_ns, span.to_ns, now_ns, interval_ns, width, max_points, widest)


# Of queries for a stream.
RESUME_FROM: Any = Field(
    None,
    alias="from",
    description=INSTANT_FORMS + "Start there, at most a minute ago (default: now). Last-Event-ID takes precedence.",
)


def read_resume(identity: str | None, begin: str | None, now_ns: int) -> tuple[int | None, int | None]:
    """Where a stream resumes: after the batch with an id, or at a wall time in ns; None for what is not given."""
    if identity:
        if not re.fullmatch("[0-9]{1,18}", identity):
            raise bad_parameter("Last-Event-ID", f"{identity[:64]!r} is not an id of this stream; remove it")
        return int(identity), None
    begin_ns = None if begin is None else read_parameter("from", begin, INSTANT)
    if begin_ns is not None and begin_ns > now_ns:
        raise bad_parameter("from", f"{begin} is in the future; check both clocks")
    return None, begin_ns


def choose_key(keys: Iterable[Key], text: str) -> Key:
    """The job with an id, or with a scheduler and an id (`slurm:42`).

    Raises:
        ProblemError: there is no such job, or several schedulers have one.
    """
    known = list(dict.fromkeys(keys))
    found = [key for key in known if text in (key[1], ":".join(key))]
    if not found:
        ids = list(dict.fromkeys(identity for _, identity in known))
        reason = f"No such job: {text[:64]!r}. Known jobs: {first_names(ids, NAMED_JOBS) or 'none'}."
        raise ProblemError("unknown-job", 404, reason, known_jobs=ids[:MAX_KNOWN_JOBS])
    if len(found) > 1:
        names = sorted(map(":".join, found))
        raise bad_parameter("job", f"{text[:64]!r} is the id of several jobs; use {' or '.join(names[:NAMED_JOBS])}")
    return found[0]


class EventsQuery(SpanQuery):
    """The query parameters of `/api/v1/events`, unparsed."""

    last: OptionalDuration = Field(None, description="Length of the newest span, like 5m (default: all events).")
    kind: Annotated[
        list[str], WithJsonSchema({"type": "array", "items": {"type": "string", "enum": list(KINDS)}, "default": []})
    ] = Field(default_factory=list, description="Kind of event; repeatable (default: all kinds).")
    port: Annotated[str | None, WithJsonSchema({"type": "string"})] = Field(
        None, description="A port (mlx5_0:1) with the events of its device, or a device (mlx5_0) (default: all)."
    )
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_EVENTS, description="Maximum number of events; the newest are kept.")


REFUSALS = {
    403: "Write access requires a user of the web configuration, or an explicit opt-in.",
    404: "No such capture.",
    413: "Body too long.",
    416: "Range not satisfiable.",
    422: "Invalid body; the detail names the limit and how to fix the request.",
    503: "Captures are unavailable; the detail gives the reason.",
}
"""Of the routes of captures, by status."""
MAX_LABELS, MAX_ALERTS = 64, 1000
DEFAULT_REASON = "request"


def json_response(
    status: int, answer: AnswerPart | Mapping[str, Any], headers: dict[str, str] | None = None
) -> Response:
    """A JSON response with an answer of a daemon, or with the members of another one."""
    return Response(orjson.dumps(answer, default=vars), status, headers, "application/json")


Body = TypeVar("Body", bound=BaseModel)
Labels = dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=1000)]]


def _time(description: str) -> Any:
    return Field(None, max_length=32, description=description, json_schema_extra={**DURATION_PATTERN})


class CaptureRequest(BaseModel):
    """The body of a request for a capture; every member is optional."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(DEFAULT_REASON, min_length=1, max_length=200, description="Reason, in a few words.")
    labels: Labels = Field(default_factory=dict, max_length=MAX_LABELS, description="Labels to store in the file.")
    before: str | None = _time("Time before now to include, like 30s (default: from the settings).")
    after: str | None = _time("Time after now to include, like 5s (default: from the settings).")


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
    """Parse the body of a request; an empty body counts as one without members."""
    try:
        return model.model_validate_json(raw or b"{}", strict=True)
    except ValidationError as error:
        # an error of the whole body has no location
        faults = [{**fault, "loc": fault["loc"] or ("body",)} for fault in error.errors()]
        names = [field.alias or name for name, field in model.model_fields.items()]
        raise invalid_parameters(faults, names) from error


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
    """Check that the client may write."""
    if not may_write(request, allow_unauthenticated=allow_unauthenticated):
        raise ProblemError(
            "writing-needs-user",
            403,
            "Taking and deleting captures requires a user: set up users or client certificates in --web.config.file, "
            "or allow anyone with --capture.allow-unauthenticated=true.",
        )
