"""`/api/v1/events`: what happened on a node and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from ibpulse.base.text import escape_controls
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import (
    MAX_SENTENCE,
    AnswerPart,
    Count,
    Few,
    Milliseconds,
    Name,
    Role,
    Sentence,
    at_most,
)
from ibpulse.core.events.event import MAX_INTEGER, MAX_RATE, MAX_STRIDE, STARTED, Event, started_states
from ibpulse.core.model import PortState

MAX_EVENTS = 10_000
# the event `started` has eight members of each port, at most 1024 of them
MAX_DETAILS, MAX_DETAIL_DEPTH = 20_000, 4


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


Plain = Annotated[dict[str, Any], BeforeValidator(plain_value)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]


class StateAnswer(AnswerPart):
    """The properties of a port that belong to a moment."""

    state: Name = Field(description="State of the link, in the kernel's word.")
    physical: Name = Field(description="State of the physical layer, in the kernel's word.")
    active: bool
    rate_bytes_per_second: Rate | None = Field(
        description="Data rate of one direction while active, otherwise the last one while it was; null if unknown."
    )
    rail: bool = Field(description="Whether the role is compute.")
    stride: Annotated[int, Field(ge=1, le=MAX_STRIDE)] = Field(
        description="Number of sampling intervals between two samples."
    )
    problem: Name = Field(description="no-counters, unreadable, hung, disappeared, or empty.")
    role: Role

    @property
    def value(self) -> PortState:
        """As a value of the program."""
        return PortState(**vars(self))


class EventAnswer(AnswerPart):
    """Something that happened at most `uncertainty_ms` before `time_ms`, when it was noticed."""

    time_ms: Milliseconds
    time: Name = Field(description="The same in RFC 3339, UTC.")
    uncertainty_ms: Milliseconds
    kind: Name
    subject: Name = Field(description="A port, a device, or empty for the node.")
    device: Name
    port: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None
    text: Sentence = Field(description="A sentence.")
    before: StateAnswer | None = Field(description="State of the port before; null if it did not change or exist.")
    after: StateAnswer | None
    details: Plain

    @model_validator(mode="after")
    def _check_states(self) -> EventAnswer:
        if self.kind == STARTED:
            started_states(self.value)
        return self

    @property
    def value(self) -> Event:
        """As a value of the program."""
        return Event(
            time_ns=self.time_ms * MILLISECOND_NS,
            kind=self.kind,
            subject=self.subject,
            text=self.text,
            uncertainty_ns=self.uncertainty_ms * MILLISECOND_NS,
            before=None if self.before is None else self.before.value,
            after=None if self.after is None else self.after.value,
            details=self.details,
        )


class EventsAnswer(AnswerPart):
    """The newest events of a span, by time."""

    from_ms: Milliseconds | None = Field(description="Begin of the span; null for all events.")
    to_ms: Milliseconds
    kinds: Annotated[dict[Name, Count], Few] = Field(description="Number of these events by kind.")
    left_out: Count = Field(description="Number of older events of the span that the limit left out.")
    events: Annotated[list[EventAnswer], at_most(MAX_EVENTS)]

    @property
    def values(self) -> tuple[Event, ...]:
        """The events as values of the program."""
        return tuple(event.value for event in self.events)
