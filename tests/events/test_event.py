"""Events as JSON: what is written is read again, and what is not an event is refused; docs/events.md says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.core.events.event import KINDS, MAX_TEXT, Event, concerns, from_json, started_states, to_json
from ibpulse.core.events.log import HEAD, MAX_PER_KIND, MAX_STARTED, NAME, VERSION
from ibpulse.core.model import ROLES, PortState
from tests.events.making import DOWN, UP, moved, numbered, started
from tests.tables import for_each

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
STATES = st.none() | st.builds(
    PortState,
    state=WORDS,
    physical=WORDS,
    active=st.booleans(),
    rate_bytes_per_second=st.none() | st.floats(0, 1e15),
    rail=st.booleans(),
    role=st.sampled_from(ROLES),
    stride=st.integers(1, 10**9),
    problem=WORDS,
)
DETAILS = st.dictionaries(WORDS.filter(lambda name: name != "ports"), st.integers(-(2**63) + 1, 2**63 - 1) | WORDS)
EVENTS = st.builds(
    Event,
    time_ns=NUMBERS,
    kind=st.sampled_from(list(KINDS)),
    subject=WORDS,
    text=WORDS,
    uncertainty_ns=NUMBERS,
    before=STATES,
    after=STATES,
    details=DETAILS,
    tick=NUMBERS,
    ring=NUMBERS,
)


@given(EVENTS)
def test_an_event_survives_json(event: Event) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_empty_members_are_left_out() -> None:
    assert to_json(Event(0, "clock-step", "", "")) == {"time_ns": 0, "kind": "clock-step"}


def test_members_and_kinds_of_a_later_version_are_accepted() -> None:
    members = {**to_json(numbered(5)), "kind": "teleported", "colour": "red", "after": {"state": "ACTIVE", "spin": 1}}
    event = from_json(members)
    assert (event.kind, event.after) == ("teleported", PortState("ACTIVE"))


def test_an_invalid_text_is_shortened_and_repaired() -> None:
    members = to_json(Event(1, "capture", "\udc80_0:1", "x" * MAX_TEXT + "y"))
    assert (members["subject"], members["text"]) == ("\ufffd_0:1", "x" * MAX_TEXT)
    assert to_json(from_json(members)) == members


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


MISSING = object()


@for_each(
    [
        ([], "an event is not an object"),
        ({"kind": MISSING}, "kind of an event is not a text"),
        ({"time_ns": MISSING}, "time_ns of an event is not a number"),
        ({"kind": 5}, "kind of an event is not a text"),
        ({"kind": "x" * 257}, "kind of an event is not a text of at most 256 characters"),
        ({"text": "x" * 1001}, "text of an event is not a text of at most 1000 characters"),
        ({"text": "\ud800"}, "text of an event is not a text"),
        ({"time_ns": -1}, "time_ns of an event is not a number"),
        ({"time_ns": 2**63}, "time_ns of an event is not a number"),
        ({"time_ns": 1.5}, "time_ns of an event is not a number"),
        ({"time_ns": True}, "time_ns of an event is not a number"),
        ({"tick": 10**4000}, "tick of an event is not a number"),
        ({"details": []}, "details of an event are not a plain object"),
        ({"details": {"x": float("nan")}}, "details of an event are not a plain object"),
        ({"details": {"x": 2**64}}, "details of an event are not a plain object"),
        ({"details": {"x": "\udfff"}}, "details of an event are not a plain object"),
        ({"details": {"\ud800": 1}}, "details of an event are not a plain object"),
        ({"details": {"x": nested(8)}}, "details of an event are not a plain object"),
        ({"before": "ACTIVE"}, "the state of a port is not an object"),
        ({"after": {"active": 1}}, "active of a port's state is not valid"),
        ({"after": {"stride": 0}}, "stride of a port's state is not valid"),
        ({"after": {"stride": True}}, "stride of a port's state is not valid"),
        ({"after": {"state": "x" * 257}}, "state of a port's state is not valid"),
        ({"after": {"rate_bytes_per_second": float("nan")}}, "rate_bytes_per_second of a port's state is not valid"),
        ({"after": {"rate_bytes_per_second": -1}}, "rate_bytes_per_second of a port's state is not valid"),
        ({"after": {"rate_bytes_per_second": 10**400}}, "rate_bytes_per_second of a port's state is not valid"),
        ({"after": {"rate_bytes_per_second": False}}, "rate_bytes_per_second of a port's state is not valid"),
        ({"kind": "started", "details": {"ports": []}}, "ports in the details of an event are not an object"),
        ({"kind": "started", "details": {"ports": {"a:1": 5}}}, "the state of a port is not an object"),
    ]
)
def test_an_invalid_event_names_the_wrong_member(members: Any, fault: str) -> None:
    if isinstance(members, dict):
        members = {**to_json(numbered(5)), **members}
        members = {name: value for name, value in members.items() if value is not MISSING}
    with pytest.raises(ValueError, match=fault):
        from_json(members)


def test_details_may_be_nested_to_a_depth() -> None:
    assert from_json({**to_json(numbered(5)), "details": {"x": nested(7)}}).details == {"x": nested(7)}


def test_a_start_holds_the_states_of_the_ports() -> None:
    event = from_json(to_json(started(3, mlx5_0=UP, mlx5_1=DOWN)))
    assert started_states(event) == {"mlx5_0:1": UP, "mlx5_1:1": DOWN}
    assert started_states(Event(3, "started", "", "")) is None
    assert started_states(numbered(3)) is None


@pytest.mark.parametrize(
    ("subject", "asked", "expected"),
    [
        ("mlx5_0:1", "mlx5_0:1", True),
        ("mlx5_0:1", "mlx5_0", True),
        ("mlx5_0", "mlx5_0:1", True),
        ("mlx5_0:2", "mlx5_0:1", False),
        ("mlx5_01:1", "mlx5_0", False),
        ("", "mlx5_0:1", False),
    ],
)
def test_an_event_of_a_device_concerns_its_ports(subject: str, asked: str, expected: bool) -> None:
    assert concerns(numbered(1, subject), asked) is expected


PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()


def test_the_file_is_described_as_it_is_written() -> None:
    assert f"are in the file `{NAME}` in" in PAGE
    assert f"\n{HEAD.decode()}{VERSION}\n" in PAGE
    section = PAGE.partition("| member | content |")[2].partition("\n\n")[0]
    described = re.findall("`([a-z_]+)`", "".join(line.split("|")[1] for line in section.splitlines() if "|" in line))
    event = moved(5, "mlx5_0:1", UP, DOWN)
    members = to_json(event) | {"text": "", "uncertainty_ns": 1, "details": {}}
    assert set(described) == set(members)
    assert all(f"`{name}`" in section for name in members["before"])


def test_the_bounds_are_those_of_the_program() -> None:
    assert f"At most {MAX_PER_KIND:,} events of each kind are kept, and {MAX_STARTED} of `started`" in PAGE
    assert f"a sentence, at most {MAX_TEXT:,} characters" in PAGE
