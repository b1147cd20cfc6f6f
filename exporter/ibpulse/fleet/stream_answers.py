"""The stream of a daemon: server-sent events of bounded length, checked like those of `ibpulse.answers`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from time import monotonic
from typing import Annotated

from pydantic import Field

from ibpulse.answers.events import MAX_EVENTS, Plain
from ibpulse.answers.jobs import JobPortsAnswer
from ibpulse.answers.members import (
    MAX_JOBS,
    MAX_PORTS,
    MAX_WORDS,
    NOT_OURS,
    Amount,
    AnswerPart,
    Count,
    Name,
    Names,
    Role,
    Score,
    Sentence,
    at_most,
    read_members,
)
from ibpulse.errors import DaemonError
from ibpulse.events.event import MAX_INTEGER
from ibpulse.model import UNKNOWN_ROLE

STREAM_TYPE = "text/event-stream"
MAX_EVENT_BYTES = 4_000_000
# what a stream may take of the time that all nodes share: an event counts as so many bytes in addition to its own
BYTES_PER_SECOND, EVENT_BYTES, BURST_SECONDS = 8_000_000, 4_000, 1.0
MAX_STATES, MAX_SAMPLES, MAX_MERGED = 10_000, 100_000, 10_000

Flag = bool | None


class StreamState(AnswerPart):
    """A state of a port, and when it began; one that disappeared has no other members."""

    from_ms: Count
    state: Name
    physical: Name = ""
    active: bool = False
    rate_bytes_per_second: Amount | None = None
    rail: bool = False
    role: Role = UNKNOWN_ROLE
    problem: Name = ""


class StreamPort(AnswerPart):
    """A port of the event `ports`."""

    port: Name
    rail: bool
    role: Role = UNKNOWN_ROLE
    active: bool
    state: Name
    rate_bytes_per_second: Amount | None
    problem: Name = ""
    problem_text: Sentence = ""
    since_ms: Count | None = None
    states: Annotated[list[StreamState], at_most(MAX_STATES)] = Field(default_factory=list)


class StreamJobSpan(AnswerPart):
    """A time in which a job had ports."""

    job_id: Name
    scheduler: Name
    name: Name = ""
    ports: Names
    from_ms: Count | None
    to_ms: Count | None


class StreamPorts(AnswerPart):
    """The event `ports`; `gateway_version` is not of the daemon."""

    version: Name
    interval_ms: Annotated[int, Field(ge=1, le=60_000)]
    history_ms: Count
    simulated: bool = False
    ports: Annotated[list[StreamPort], at_most(MAX_PORTS)]
    jobs: Annotated[list[StreamJobSpan], at_most(MAX_JOBS)] = Field(default_factory=list)
    job: JobPortsAnswer | None = None


class StreamBatch(AnswerPart):
    """The event `batch`: rates in whole MB/s, two series per port."""

    start_ms: Count
    megabytes_per_second: Annotated[list[Annotated[list[Count | None], at_most(MAX_SAMPLES)]], at_most(2 * MAX_PORTS)]
    merged: Annotated[list[Annotated[list[Count], Field(min_length=3, max_length=3)]], at_most(MAX_MERGED)] = Field(
        default_factory=list
    )


class StreamEntry(AnswerPart):
    """An event of the log."""

    time_ms: Count
    uncertainty_ms: Count
    kind: Name
    subject: Name
    text: Sentence
    details: Plain = Field(default_factory=dict)


class StreamEvents(AnswerPart):
    """The event `events`."""

    events: Annotated[list[StreamEntry], at_most(MAX_EVENTS)]


class StreamTraffic(AnswerPart):
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


class StreamJob(AnswerPart):
    """The statistics of a job."""

    job_id: Name
    duty_cycle_ratio: Amount | None
    active_bytes_per_second: Amount | None
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    last_traffic_ms: Count | None


class StreamDirections(AnswerPart):
    """A rate in each direction."""

    transmit: Amount | None
    receive: Amount | None


class StreamPortTraffic(AnswerPart):
    """The statistics of a port."""

    port: Name
    peak_window: Name
    peak_bytes_per_second: StreamDirections
    rail_share_ratio: Amount | None
    rail_idle: Flag
    rail_slow: Flag
    left_alone: Flag = None
    effective_resolution_seconds: Amount | None = None


class StreamSummary(AnswerPart):
    """The event `summary`: of the node, or of a job if one was asked for."""

    end_ms: Count | None
    node: StreamTraffic | None = None
    job: StreamJob | None = None
    ports: Annotated[list[StreamPortTraffic], at_most(MAX_PORTS)]
    sampler: Plain
    notices: Annotated[list[Sentence], at_most(MAX_WORDS)] = Field(default_factory=list)


class StreamGap(AnswerPart):
    """The event `gap`: a span that is not sent."""

    start_ms: Count
    end_ms: Count


class StreamDropped(AnswerPart):
    """The event `dropped`."""

    events: Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class StreamEnd(AnswerPart):
    """The event `end`."""


EVENTS: Mapping[str, type[AnswerPart]] = {
    "ports": StreamPorts,
    "batch": StreamBatch,
    "events": StreamEvents,
    "summary": StreamSummary,
    "gap": StreamGap,
    "dropped": StreamDropped,
    "end": StreamEnd,
}


class Throttle:
    """Lets bytes pass at a limited rate, and those of a burst at once."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free_at = 0.0

    def delay(self, size: int) -> float:
        """Let this many bytes pass; the seconds to wait before any others."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / BYTES_PER_SECOND
        return max(0.0, self._free_at - now - BURST_SECONDS)


async def read_events(
    content: AsyncIterator[bytes],
) -> AsyncGenerator[tuple[str, int | None, AnswerPart] | None, None]:
    """Name, id and checked data of each event in the body of a stream; None for a comment. Unknown events are dropped.

    A stream that is faster than any that a daemon sends is read no faster than `BYTES_PER_SECOND`.

    Raises:
        DaemonError: an event is too long, or its data is not as expected.
    """
    rest, throttle = bytearray(), Throttle()
    async for part in content:
        # the mark may begin in the part before
        looked = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", looked)) >= 0:
            text, looked = bytes(rest[:end]), 0
            del rest[: end + 2]
            if seconds := throttle.delay(end + EVENT_BYTES):
                await asyncio.sleep(seconds)
            found = _read_event(text)
            if found is not None or text.startswith(b":"):
                yield found
        if len(rest) > MAX_EVENT_BYTES:
            raise DaemonError(f"an event of its stream is longer than {MAX_EVENT_BYTES} bytes", kind="bad-answer")


def _read_event(text: bytes) -> tuple[str, int | None, AnswerPart] | None:
    fields = {name: value for name, _, value in (line.partition(b": ") for line in text.split(b"\n"))}
    name = fields.get(b"event", b"").decode("ascii", "replace")
    model = EVENTS.get(name)
    if model is None:
        return None
    identity = fields.get(b"id")
    if identity is not None and not (identity.isdigit() and len(identity) <= 18):
        raise DaemonError(f"the id of an event of its stream is not a number; {NOT_OURS}", kind="bad-answer")
    return name, None if identity is None else int(identity), read_members(model, fields.get(b"data", b""))
