"""The answers of a daemon about a span: events, the summary, and captures; checked like those of `node_answers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ibpulse.answers.members import (
    MAX_NAME,
    MAX_PORTS,
    MAX_SENTENCE,
    Amount,
    AnswerPart,
    Count,
    Few,
    Name,
    Names,
    Role,
    Score,
    Sentence,
    at_most,
)
from ibpulse.events.event import MAX_INTEGER
from ibpulse.flightrecorder.store import parse_name
from ibpulse.model import UNKNOWN_ROLE
from ibpulse.text import escape_controls

MAX_EVENTS, MAX_CAPTURES = 10_000, 10_000
MAX_DETAILS, MAX_DETAIL_DEPTH = 2000, 4


def _capture_name(text: str) -> str:
    if parse_name(text) is None:
        raise ValueError("is not the name of a capture")
    return text


CaptureFile = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_capture_name)]


class NodePortState(AnswerPart):
    """The state of a port before or after an event."""

    state: Name = ""
    physical: Name = ""
    active: bool = False
    rate_bytes_per_second: Amount | None = None
    rail: bool = False
    stride: Annotated[int, Field(ge=1, le=10**9)] = 1
    problem: Name = ""
    role: Role = UNKNOWN_ROLE


def plain_value(value: Any, depth: int = MAX_DETAIL_DEPTH, left: list[int] | None = None) -> Any:
    """Free values of JSON, in bounds, with escaped texts; `left` counts how many more there may be."""
    left = [MAX_DETAILS] if left is None else left
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise ValueError("has too many details")
    if isinstance(value, str):
        return escape_controls(value[:MAX_SENTENCE])
    if isinstance(value, Mapping):
        return {plain_value(name, 0, left): plain_value(each, depth - 1, left) for name, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each, depth - 1, left) for each in value]
    if value is None or isinstance(value, bool):
        return value
    # false for NaN, and unlike math.isfinite without an error of its own for whole numbers of any length
    if not abs(value) <= MAX_INTEGER:
        raise ValueError("has a number that is too large or not finite")
    return value


class NodeEvent(AnswerPart):
    """One event of `/api/v1/events`."""

    time_ms: Count
    time: Name
    uncertainty_ms: Count
    kind: Name
    subject: Name
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None
    text: Sentence
    before: NodePortState | None = None
    after: NodePortState | None = None
    details: Annotated[dict[str, Any], BeforeValidator(plain_value)]


class NodeEvents(AnswerPart):
    """`/api/v1/events`."""

    from_ms: Count | None
    to_ms: Count
    kinds: Annotated[dict[Name, Count], Few]
    left_out: Count
    events: Annotated[list[NodeEvent], at_most(MAX_EVENTS)]


class NodeHolding(AnswerPart):
    """Ports that a job had from one time to another."""

    ports: Names
    from_ms: Count | None
    from_uncertainty_ms: Count
    to_ms: Count | None
    to_uncertainty_ms: Count


class NodeJobPorts(AnswerPart):
    """The job of a window or summary, and what it had."""

    job_id: Name
    scheduler: Name
    running: bool
    had: Annotated[list[NodeHolding], at_most(100)]


class NodeRuns(AnswerPart):
    """Bursts or gaps of a summary."""

    count: Count
    mean_seconds: Amount | None
    mean_bytes: Amount | None


class NodeRailTraffic(AnswerPart):
    """The sum over the rails in a summary."""

    rails: Count
    active_rails: Count
    line_rate_bytes_per_second: Amount | None
    observed_seconds: Amount
    transmit_bytes_per_second: Amount | None
    receive_bytes_per_second: Amount | None
    bandwidth_peak_bytes_per_second: Amount | None
    bandwidth_active_mean_bytes_per_second: Amount | None
    bandwidth_peak_utilization_ratio: Amount | None
    peak_to_mean_ratio: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Annotated[dict[Name, Amount | None], Few]
    bursts: NodeRuns
    gaps: NodeRuns
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    step_period_score: Score
    workload_signature: Name
    workload_signature_confidence: Amount


class NodeDirectionTraffic(AnswerPart):
    """One direction of a port in a summary."""

    mean_bytes_per_second: Amount | None
    peak_bytes_per_second: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Amount | None


class NodePortTraffic(AnswerPart):
    """One port in a summary."""

    port: Name
    state: Name
    rail: bool
    observed_seconds: Amount
    transmit: NodeDirectionTraffic
    receive: NodeDirectionTraffic
    bursts: Count
    burst_seconds: Amount
    rail_share_ratio: Amount | None
    rail_idle: bool | None
    rail_slow: bool | None


class NodeSpanSummary(AnswerPart):
    """`/api/v1/summary`."""

    window_seconds: Count
    start_ms: Count
    end_ms: Count
    node: NodeRailTraffic
    ports: Annotated[list[NodePortTraffic], at_most(MAX_PORTS)]
    job: NodeJobPorts | None = None


class NodeCaptureJob(AnswerPart):
    """A job of a capture."""

    job_id: Name
    scheduler: Name
    name: Name = ""
    namespace: Name = ""
    ports: Names
    began_ms: Count | None
    began_uncertainty_ms: Count = 0
    ended_ms: Count | None
    ended_uncertainty_ms: Count = 0


class NodeCapture(AnswerPart):
    """A finished capture; `jobs` is null if they are not known."""

    name: CaptureFile
    trigger_ms: Count
    reason: Name
    ports: Sentence = ""
    jobs: Annotated[list[NodeCaptureJob], at_most(100)] | None = None
    size_bytes: Count


class NodePendingCapture(AnswerPart):
    """A capture that is not complete."""

    name: CaptureFile
    trigger_ms: Count
    reason: Name
    ready_ms: Count


class NodeCaptures(AnswerPart):
    """`/api/v1/captures`, without the addresses of the files."""

    captures: Annotated[list[NodeCapture], at_most(MAX_CAPTURES)]
    pending: Annotated[list[NodePendingCapture], at_most(1000)]
    stored_bytes: Count
    problem: Sentence = ""
