"""The stream of a daemon: server-sent events of bounded length, checked like the answers of `node_answers`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ibpulse.errors import DaemonError
from ibpulse.events.event import MAX_INTEGER
from ibpulse.fleet.node_answers import (
    MAX_JOBS,
    MAX_PORTS,
    MAX_WORDS,
    NOT_OURS,
    Amount,
    Count,
    Name,
    Names,
    NodeMember,
    Role,
    Sentence,
    read_members,
)
from ibpulse.fleet.span_answers import MAX_EVENTS, NodeJobPorts, plain_value
from ibpulse.model import UNKNOWN_ROLE

STREAM_TYPE = "text/event-stream"
MAX_EVENT_BYTES = 4_000_000
MAX_STATES, MAX_SAMPLES, MAX_MERGED = 10_000, 100_000, 10_000

Flag = bool | None
Score = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Plain = Annotated[dict[str, Any], BeforeValidator(plain_value)]


class StreamState(NodeMember):
    """A state of a port, and when it began; one that disappeared has no other members."""

    from_ms: Count
    state: Name
    physical: Name = ""
    active: bool = False
    rate_bytes_per_second: Amount | None = None
    rail: bool = False
    role: Role = UNKNOWN_ROLE
    problem: Name = ""


class StreamPort(NodeMember):
    """A port of the event `ports`; 0.1 gives neither `role` nor `states`."""

    port: Name
    rail: bool
    role: Role = UNKNOWN_ROLE
    active: bool
    state: Name
    rate_bytes_per_second: Amount | None
    problem: Name = ""
    problem_text: Sentence = ""
    since_ms: Count | None = None
    states: Annotated[list[StreamState], Field(max_length=MAX_STATES)] = Field(default_factory=list)


class StreamJobSpan(NodeMember):
    """A time in which a job had ports."""

    job_id: Name
    scheduler: Name
    name: Name = ""
    ports: Names
    from_ms: Count | None
    to_ms: Count | None


class StreamPorts(NodeMember):
    """The event `ports`; `gateway_version` is not of the daemon."""

    version: Name
    interval_ms: Annotated[int, Field(ge=1, le=60_000)]
    history_ms: Count
    simulated: bool = False
    ports: Annotated[list[StreamPort], Field(max_length=MAX_PORTS)]
    jobs: Annotated[list[StreamJobSpan], Field(max_length=MAX_JOBS)] = Field(default_factory=list)
    job: NodeJobPorts | None = None


class StreamBatch(NodeMember):
    """The event `batch`: rates in whole MB/s, two series per port."""

    start_ms: Count
    megabytes_per_second: Annotated[
        list[Annotated[list[Count | None], Field(max_length=MAX_SAMPLES)]], Field(max_length=2 * MAX_PORTS)
    ]
    merged: Annotated[list[Annotated[list[Count], Field(min_length=3, max_length=3)]], Field(max_length=MAX_MERGED)] = (
        Field(default_factory=list)
    )


class StreamEntry(NodeMember):
    """An event of the log."""

    time_ms: Count
    uncertainty_ms: Count
    kind: Name
    subject: Name
    text: Sentence
    details: Plain = Field(default_factory=dict)


class StreamEvents(NodeMember):
    """The event `events`."""

    events: Annotated[list[StreamEntry], Field(max_length=MAX_EVENTS)]


class StreamTraffic(NodeMember):
    """The statistics of the node; `windows` are by the length of a window."""

    rails: Count
    active_rails: Count
    line_rate_bytes_per_second: Amount | None = None
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    step_period_score: Score
    workload_signature: Name
    workload_signature_confidence: Amount
    bandwidth_saturated: Flag = None
    moe_saturated: Flag = None
    windows: Plain


class StreamJob(NodeMember):
    """The statistics of a job."""

    job_id: Name
    duty_cycle_ratio: Amount | None
    active_bytes_per_second: Amount | None
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    last_traffic_ms: Count | None


class StreamDirections(NodeMember):
    """A rate in each direction."""

    transmit: Amount | None
    receive: Amount | None


class StreamPortTraffic(NodeMember):
    """The statistics of a port."""

    port: Name
    peak_window: Name
    peak_bytes_per_second: StreamDirections
    rail_share_ratio: Amount | None
    rail_idle: Flag
    rail_slow: Flag
    left_alone: Flag = None
    effective_resolution_seconds: Amount | None = None


class StreamSummary(NodeMember):
    """The event `summary`: of the node, or of a job if one was asked for."""

    end_ms: Count | None
    node: StreamTraffic | None = None
    job: StreamJob | None = None
    ports: Annotated[list[StreamPortTraffic], Field(max_length=MAX_PORTS)]
    sampler: Plain
    notices: Annotated[list[Sentence], Field(max_length=MAX_WORDS)] = Field(default_factory=list)


class StreamGap(NodeMember):
    """The event `gap`: a span that is not sent."""

    start_ms: Count
    end_ms: Count


class StreamDropped(NodeMember):
    """The event `dropped`."""

    events: Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class StreamEnd(NodeMember):
    """The event `end`."""


EVENTS: Mapping[str, type[NodeMember]] = {
    "ports": StreamPorts,
    "batch": StreamBatch,
    "events": StreamEvents,
    "summary": StreamSummary,
    "gap": StreamGap,
    "dropped": StreamDropped,
    "end": StreamEnd,
}


async def read_events(
    content: AsyncIterator[bytes],
) -> AsyncGenerator[tuple[str, int | None, NodeMember] | None, None]:
    """Name, id and checked data of each event in the body of a stream; None for a comment. Unknown events are dropped.

    Raises:
        DaemonError: an event is too long, or its data is not as expected.
    """
    rest = bytearray()
    async for part in content:
        # the mark may begin in the part before
        looked = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", looked)) >= 0:
            text, looked = bytes(rest[:end]), 0
            del rest[: end + 2]
            found = _read_event(text)
            if found is not None or text.startswith(b":"):
                yield found
        if len(rest) > MAX_EVENT_BYTES:
            raise DaemonError(f"an event of its stream is longer than {MAX_EVENT_BYTES} bytes", kind="bad-answer")


def _read_event(text: bytes) -> tuple[str, int | None, NodeMember] | None:
    fields = {name: value for name, _, value in (line.partition(b": ") for line in text.split(b"\n"))}
    name = fields.get(b"event", b"").decode("ascii", "replace")
    model = EVENTS.get(name)
    if model is None:
        return None
    identity = fields.get(b"id")
    if identity is not None and not (identity.isdigit() and len(identity) <= 18):
        raise DaemonError(f"the id of an event of its stream is not a number; {NOT_OURS}", kind="bad-answer")
    return name, None if identity is None else int(identity), read_members(model, fields.get(b"data", b""))
