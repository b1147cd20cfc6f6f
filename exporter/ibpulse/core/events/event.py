"""The kinds of events, one event, and its form as JSON."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ibpulse.core.model import PortState

KINDS: Mapping[str, str] = {
    "started": "the daemon started; details hold the state of every port",
    "link-down": "a port left the state ACTIVE",
    "link-up": "a port became ACTIVE",
    "link-change": "a port that is not ACTIVE changed its state",
    "link-flap": "link_downed rose although the port was ACTIVE before and after: it was down in between",
    "rate-change": "the data rate of an ACTIVE port changed",
    "role-change": "the role of a port changed, such as from unknown to compute, which makes it a rail",
    "appeared": "a port appeared; a renamed device disappears and appears with the same GUID",
    "disappeared": "a port disappeared",
    "unreadable": "a port's files cannot be read, or a read of its device does not return",
    "readable": "a port can be read again",
    "replaced": "another device has the name of a device; the samples and totals of its ports begin anew",
    "counter-reset": "a byte counter was lower than before",
    "counter-jump": "a byte counter increased by more than the line can carry",
    "quarantined": "a device is sampled in a separate process because one of its reads hung",
    "released": "a device is sampled together with the others again",
    "interval-change": "the sampling interval of a device changed because of the time that its reads take",
    "starved": "reads took long because the sampler did not get the processor; no device is blamed for that",
    "first-traffic": "the rails carry traffic, for at least 10 s, after at least a minute of silence",
    "checkpoint": "storage ports transmitted a burst while the rails, in regular steps before, were silent; at its end",
    "job-began": "a job began on this node; details say which one, and which ports carry its traffic",
    "job-change": "the ports of a running job changed, for example because another job began or ended",
    "job-ended": "a job ended on this node",
    "job-stalled": "a job is silent for longer than its steps explain; details hold the verdict of this node",
    "job-resumed": "a job that was silent moves bytes again",
    "clock-step": "the wall clock was set",
    "capture": "the flight recorder took a capture",
}
"""The kinds and their meanings."""

STARTED = "started"
JOB_STALLED, JOB_RESUMED = "job-stalled", "job-resumed"
JOB_BEGAN, JOB_CHANGED, JOB_ENDED = JOB_KINDS = ("job-began", "job-change", "job-ended")
LOST_LINKS = frozenset({"link-down", "link-flap", "disappeared"})
MAX_TEXT = 1000
MAX_SUBJECT = 256
MAX_DEPTH = 8
MAX_INTEGER = 2**63 - 1
# the fastest port known is below 1e12 bytes per second
MAX_RATE = 1e15
MAX_STRIDE = 10**9
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# half a character, which UTF-8 cannot hold
SURROGATE = re.compile("[\ud800-\udfff]")
_PORT_NAME = re.compile("[^:]+:[0-9]{1,9}")


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


def is_port_name(text: str) -> bool:
    """Whether a text has the form of a port, like `mlx5_0:1`."""
    return _PORT_NAME.fullmatch(text) is not None


def job_of(event: Event) -> str:
    """The scheduler and the id of the job that an event is about; empty for any other event."""
    if event.kind not in JOB_KINDS:
        return ""
    return f"{event.details.get('scheduler', '')}/{event.details.get('job_id', '')}"


def concerns(event: Event, subject: str) -> bool:
    """Whether the event is about this port or device, or about the device of this port."""
    return event.subject in (subject, subject.partition(":")[0]) or event.device == subject


def to_json(event: Event) -> dict[str, Any]:
    """The event as values of JSON: its time and kind, and the other members unless they are empty or 0.

    Text that `from_json` would refuse is shortened, or replaced in part.
    """
    members: dict[str, Any] = {"time_ns": event.time_ns, "kind": _readable(event.kind, MAX_SUBJECT)}
    optional = {
        "subject": _readable(event.subject, MAX_SUBJECT),
        "text": _readable(event.text, MAX_TEXT),
        "uncertainty_ns": event.uncertainty_ns,
        "before": event.before and state_to_json(event.before),
        "after": event.after and state_to_json(event.after),
        "details": dict(event.details),
        "tick": event.tick,
        "ring": event.ring,
    }
    members.update((name, value) for name, value in optional.items() if value)
    return members


def _readable(text: str, longest: int) -> str:
    return SURROGATE.sub(REPLACEMENT, text[:longest])


def state_to_json(state: PortState) -> dict[str, Any]:
    """A state as values of JSON."""
    return dataclasses.asdict(state)


def from_json(members: object) -> Event:
    """The event of `to_json`; kinds and members of a later version are accepted.

    Raises:
        ValueError: it is not an event; the message says which member is wrong.
    """
    _check(isinstance(members, dict), "an event is not an object")
    assert isinstance(members, dict)
    for name in ("time_ns", "uncertainty_ns", "tick", "ring"):
        number = members.get(name, None if name == "time_ns" else 0)
        plain = type(number) is int and 0 <= number <= MAX_INTEGER
        _check(plain, f"{name} of an event is not a number of nanoseconds or ticks")
    details = members.get("details", {})
    _check(isinstance(details, dict) and _is_json(details, MAX_DEPTH), "details of an event are not a plain object")
    states = {name: state_from_json(members.get(name)) for name in ("before", "after")}
    for name, longest in (("kind", MAX_SUBJECT), ("subject", MAX_SUBJECT), ("text", MAX_TEXT)):
        text = members.get(name, None if name == "kind" else "")
        _check(_is_text(text, longest), f"{name} of an event is not a text of at most {longest} characters")
    known = {field.name for field in dataclasses.fields(Event)}
    values = {"subject": "", "text": "", **{name: value for name, value in members.items() if name in known}}
    event = Event(**{**values, **states})
    started_states(event)
    return event


def started_states(event: Event) -> dict[str, PortState] | None:
    """The state of every port by name, for an event of the kind `started` that holds them; None for any other.

    Raises:
        ValueError: the details do not hold states.
    """
    if event.kind != STARTED or "ports" not in event.details:
        return None
    ports = event.details["ports"]
    _check(isinstance(ports, dict), "ports in the details of an event are not an object")
    states = {name: state_from_json(members) for name, members in ports.items()}
    return {name: state for name, state in states.items() if state is not None}


def _check(valid: bool, fault: str) -> None:
    if not valid:
        raise ValueError(fault)


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and len(value) <= longest and SURROGATE.search(value) is None


def _is_json(value: object, depth: int) -> bool:
    """Whether every reader of JSON can take the value: finite, in 64 bits, in UTF-8, and not nested too deeply."""
    if isinstance(value, str):
        return SURROGATE.search(value) is None
    if isinstance(value, dict):
        return depth > 0 and all(_is_json(name, 0) and _is_json(each, depth - 1) for name, each in value.items())
    if isinstance(value, list):
        return depth > 0 and all(_is_json(each, depth - 1) for each in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) <= MAX_INTEGER)


def state_from_json(members: object) -> PortState | None:
    """The state of `state_to_json`; None stays None.

    Raises:
        ValueError: it is not a state.
    """
    if members is None:
        return None
    _check(isinstance(members, dict), "the state of a port is not an object")
    assert isinstance(members, dict)
    values = {name: value for name, value in members.items() if name in _STATE_MEMBERS}
    for name, value in values.items():
        _check(_STATE_MEMBERS[name](value), f"{name} of a port's state is not valid")
    return PortState(**values)


def _is_word(value: object) -> bool:
    return _is_text(value, MAX_SUBJECT)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_rate(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not _is_switch(value) and 0 <= value <= MAX_RATE)


def _is_stride(value: object) -> bool:
    return isinstance(value, int) and not _is_switch(value) and 1 <= value <= MAX_STRIDE


_STATE_MEMBERS: Mapping[str, Callable[[object], bool]] = {
    "state": _is_word,
    "physical": _is_word,
    "active": _is_switch,
    "rate_bytes_per_second": _is_rate,
    "rail": _is_switch,
    "stride": _is_stride,
    "problem": _is_word,
    "role": _is_word,
}
