"""Every answer model against members that no daemon would send: refused with a sentence, or harmless."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ibpulse.base.errors import DaemonError
from ibpulse.base.text import escape_controls
from ibpulse.core.answers.jobs import CapturesAnswer, JobsAnswer, PendingAnswer
from ibpulse.core.answers.members import MAX_ITEMS, AnswerPart, read_members
from ibpulse.core.answers.node import ClockAnswer, EventsAnswer, PortsAnswer, TopologyAnswer
from ibpulse.core.answers.samples import EVENTS, WindowAnswer, WindowHead
from ibpulse.core.answers.summary import SummaryAnswer
from tests.tables import for_each

MODELS: list[type[AnswerPart]] = [
    *(PortsAnswer, JobsAnswer, ClockAnswer, EventsAnswer, SummaryAnswer, CapturesAnswer, PendingAnswer),
    *(WindowAnswer, WindowHead, TopologyAnswer),
    *EVENTS.values(),
]
# texts that only some members take
TEXTS = ("mlx5_0:1 transmit", "20261123T035447.609Z-release-9485bb39.parquet")
Place = tuple[str | int, ...]


def example(schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    """A value that fits a JSON schema."""
    if "$ref" in schema:
        return example(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], defs)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type", "object"):
        case "array":
            return [example(schema["items"], defs) for _ in range(max(1, schema.get("minItems", 1)))]
        case "string":
            return "a"
        case "boolean":
            return True
        case "integer" | "number":
            return 1
    members = {name: example(each, defs) for name, each in schema.get("properties", {}).items()}
    free = schema.get("additionalProperties")
    return members | ({"a": example(free, defs)} if isinstance(free, dict) else {})


def place_value(document: Any, place: Place, value: Any) -> Any:
    """The document with another value at a place."""
    if not place:
        return value
    changed = copy.copy(document)
    changed[place[0]] = place_value(document[place[0]], place[1:], value)
    return changed


def valid(model: type[AnswerPart]) -> Any:
    """A document that the model accepts, with all of its members."""
    schema = model.model_json_schema()
    document = example(schema, schema.get("$defs", {}))
    for text in TEXTS:
        try:
            model.model_validate_json(json.dumps(document))
        except ValidationError as error:
            for fault in error.errors():
                document = place_value(document, fault["loc"], text)
    model.model_validate_json(json.dumps(document))
    return document


VALID = {model: valid(model) for model in MODELS}


def places(document: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all values."""
    yield place
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, each in items:
        yield from places(each, (*place, name))


# as they are in the text, because no Python value is written so
RAW = {
    "@huge@": "1e400",
    "@nan@": "NaN",
    "@infinity@": "-Infinity",
    "@digits@": "9" * 5000,
    "@whole@": "1" + 400 * "0",
    "@deep@": "[" * 150 + "]" * 150,
    "@objects@": '{"a":' * 150 + "1" + "}" * 150,
    "@deeper@": "[" * 20_000 + "]" * 20_000,
    "@half@": r'"\ud800"',
    "@twice@": '{"a": 1, "a": "\\u001b"}',
    "@cut@": '"',
}
HOSTILE = [
    *(None, True, False, 0, -1, 0.5, 2**63, -(2**63), 10**30, "", "1", "<script>alert(1)</script>", "\x1b[31m\u202e\n"),
    *("x" * 10_000, [], {}, [[]], [{}], ["x"] * 3000, [None] * 3000, [0] * 3000, {"\x1b<b>": "\x1b"}, {"": {}}),
    {f"k{number}": number for number in range(3000)},
    *RAW,
]


def written(document: Any) -> str:
    text = json.dumps(document)
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw)
    return text


def check_harmless(value: Any) -> None:
    """No control characters, and no number that JSON does not have or a browser cannot read."""
    if isinstance(value, str):
        assert escape_controls(value) == value
    elif isinstance(value, dict):
        for name, each in value.items():
            check_harmless(name)
            check_harmless(each)
    elif isinstance(value, list):
        for each in value:
            check_harmless(each)
    elif isinstance(value, float | int):
        assert math.isfinite(value)
        assert abs(value) < 2**63


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_hostile_member_is_refused_with_a_sentence_or_harmless(model: type[AnswerPart], data: st.DataObject) -> None:
    document = VALID[model]
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(places(document))))
        document = place_value(document, place, data.draw(st.sampled_from(HOSTILE)))
    found = read_or_refuse(model, written(document))
    if isinstance(found, DaemonError):
        assert found.kind == "bad-answer"
        assert str(found).isprintable()
        assert len(str(found)) < 500
    else:
        for encoded in (found.encode(), found.model_dump_json(exclude_unset=True)):
            check_harmless(json.loads(encoded))


def read_or_refuse(model: type[AnswerPart], text: str) -> AnswerPart | DaemonError:
    try:
        return read_members(model, text.encode())
    except DaemonError as error:
        return error


LISTS = [
    (model, place)
    for model, document in VALID.items()
    for place in places(document)
    if place and isinstance(place[-1], int) and place[-1] == 0
]


@for_each(LISTS)
def test_many_wrong_items_are_one_fault_in_memory(model: type[AnswerPart], place: Place) -> None:
    right = reduce(getitem, place, VALID[model])
    items = [0 if isinstance(right, bool) else False] * 90
    with pytest.raises(DaemonError) as caught:
        read_members(model, json.dumps(place_value(VALID[model], place[:-1], items)))
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() == 1


@pytest.mark.parametrize(
    ("model", "place"),
    [(EventsAnswer, ("kinds",)), (SummaryAnswer, ("node", "burstiness_cv")), (TopologyAnswer, ("distances",))],
)
def test_many_members_of_any_name_are_one_fault(model: type[AnswerPart], place: Place) -> None:
    members = {f"k{number}": "x" for number in range(1001)}
    with pytest.raises(DaemonError, match="has too many members; use at most 1000") as caught:
        read_members(model, json.dumps(place_value(VALID[model], place, members)))
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() == 1


def test_more_items_than_any_answer_has_are_not_parsed() -> None:
    with pytest.raises(DaemonError, match=f"its answer has more than {MAX_ITEMS} items") as caught:
        read_members(WindowAnswer, b"[" + b"0," * (MAX_ITEMS + 1) + b"0]")
    assert caught.value.__cause__ is None
