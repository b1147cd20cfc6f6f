"""The kinds of events, one event, and its form as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ibpulse.model import PortState

KINDS: Mapping[str, str] = {
    "started": "the daemon started; details hold the state of every port",
    "link-down": "a port left the state ACTIVE",
    "link-up": "a port became ACTIVE",
    "link-change": "a port that is not ACTIVE changed its state",
    "link-flap": "link_downed rose although the port was ACTIVE before and after: it was down in between",
    "rate-change": "the data rate of an ACTIVE port changed",
    "role-change": "a port became a rail, or ceased to be one",
    "appeared": "a port appeared; a renamed device disappears and appears with the same GUID",
    "disappeared": "a port disappeared",
    "unreadable": "a port's files cannot be read, or a read of its device does not return",
    "readable": "a port can be read again",
    "counter-reset": "a byte counter was lower than before",
    "quarantined": "a device is sampled in a separate process because one of its reads hung",
    "released": "a device is sampled together with the others again",
    "interval-change": "the sampling interval of a device changed because of the time that its reads take",
    "clock-step": "the wall clock was set",
    "capture": "the flight recorder took a capture",
}
"""The kinds and their meanings."""

MAX_TEXT = 1000
MAX_SUBJECT = 256
LATEST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at most `uncertainty_ns` before the wall time `time_ns`, when it was noticed.

    `subject` is a port (`mlx5_0:1`), a device, or empty for the node. `text` is a sentence for people. `before` and
    `after` are the states of a port where the event changed them; None for a port that did not exist. `details` are
    values of JSON. `tick` belongs to the ring that was created at `ring` (wall time in ns); both are 0 if unknown.
    """

    time_ns: int
    kind: str
    subject: str
    text: str
    uncertainty_ns: int = 0
    before: PortState | None = None
    after: PortState | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    tick: int = 0
    ring: int = 0

    @property
    def device(self) -> str:
        """The device, without the number of the port; empty for the node."""
        return self.subject.partition(":")[0]


def concerns(event: Event, subject: str) -> bool:
    """Whether the event is about this port or device, or about the device of this port."""
    return event.subject in (subject, subject.partition(":")[0]) or event.device == subject


def to_json(event: Event) -> dict[str, Any]:
    """The event as values of JSON, without members that have their default."""
    values = {
        field.name: getattr(event, field.name)
        for field in dataclasses.fields(event)
        if field.name not in ("before", "after", "details")
    }
    members = {name: value for name, value in values.items() if value}
    for name in ("before", "after"):
        state = getattr(event, name)
        if state is not None:
            members[name] = state_to_json(state)
    if event.details:
        members["details"] = dict(event.details)
    return members


def state_to_json(state: PortState) -> dict[str, Any]:
    """A state as values of JSON."""
    return dataclasses.asdict(state)


def from_json(members: object) -> Event:
    """The event of `to_json`; kinds of a later version are accepted.

    Raises:
        ValueError: it is not an event; the message says which member is wrong.
    """
    _check(isinstance(members, dict), "an event is not an object")
    assert isinstance(members, dict)
    known = {field.name for field in dataclasses.fields(Event)}
    values = {name: value for name, value in members.items() if name in known}
    for name, longest in (("kind", MAX_SUBJECT), ("subject", MAX_SUBJECT), ("text", MAX_TEXT)):
        text = values.setdefault(name, "")
        short = isinstance(text, str) and len(text) <= longest
        _check(short, f"{name} of an event is not a text of at most {longest} characters")
    for name in ("time_ns", "uncertainty_ns", "tick", "ring"):
        number = values.setdefault(name, 0)
        plain = type(number) is int and 0 <= number <= LATEST_NS
        _check(plain, f"{name} of an event is not a number of nanoseconds or ticks")
    for name in ("before", "after"):
        if name in values:
            values[name] = state_from_json(values[name])
    _check(isinstance(values.setdefault("details", {}), dict), "details of an event are not an object")
    return Event(**values)


def _check(valid: bool, fault: str) -> None:
    if not valid:
        raise ValueError(fault)


_STATE_TYPES: Mapping[str, tuple[type, ...]] = {
    "state": (str,),
    "physical": (str,),
    "active": (bool,),
    "rate_bytes_per_second": (int, float, type(None)),
    "rail": (bool,),
    "stride": (int,),
    "problem": (str,),
}


def state_from_json(members: object) -> PortState | None:
    """The state of `state_to_json`; None stays None.

    Raises:
        ValueError: it is not a state.
    """
    if members is None:
        return None
    _check(isinstance(members, dict), "the state of a port is not an object")
    assert isinstance(members, dict)
    values = {name: value for name, value in members.items() if name in _STATE_TYPES}
    for name, value in values.items():
        short = not isinstance(value, str) or len(value) <= MAX_SUBJECT
        _check(isinstance(value, _STATE_TYPES[name]) and short, f"{name} of a port's state is not valid")
    try:
        return PortState(**values)
    except TypeError as error:
        raise ValueError("the state of a port is incomplete") from error
