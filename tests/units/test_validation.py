"""Why a value was refused, in the project's own words: never in those of the validation library."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ibpulse.base.values import explain
from tests.tables import for_each

KNOWN = ("from", "to", "format")


def refuse(kind: Any, value: object, **bounds: Any) -> dict[str, Any]:
    """The fault that pydantic finds in a value of a type with bounds."""
    with pytest.raises(ValidationError) as refusal:
        TypeAdapter(Annotated[kind, Field(**bounds)] if bounds else kind).validate_python(value)
    (fault,) = refusal.value.errors()
    return dict(fault)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    needed: int = 1


class Needing(BaseModel):
    needed: int


@for_each(
    [
        (refuse(int, "1e99"), "'1e99' is not a whole number"),
        (refuse(int, 1.5), "'1.5' is not a whole number"),
        (refuse(int, "9" * 5000), f"'{'9' * 39}…' is not a whole number"),
        (refuse(float, "x"), "'x' is not a number"),
        (refuse(bool, "maybe"), "'maybe' is not true or false"),
        (refuse(str, 1), "'1' is not a text"),
        (refuse(dict, [1]), "'[1]' is not an object"),
        (refuse(list, 3), "'3' is not a list"),
        (refuse(Closed, [1]), "'[1]' is not an object"),
        (refuse(int, 1, ge=2), "'1' is too small; use at least 2"),
        (refuse(int, 2, gt=2), "'2' is too small; use more than 2"),
        (refuse(int, 9, le=8), "'9' is too large; use at most 8"),
        (refuse(int, 8, lt=8), "'8' is too large; use less than 8"),
        (refuse(str, "abc", max_length=2), "'abc' is too long; use at most 2 characters"),
        (refuse(str, "", min_length=1), "'' is too short; use 1 or more characters"),
        (refuse(list, [1, 2], max_length=1), "has too many items; use at most 1"),
        (refuse(Literal["csv", "json"], "jsn"), "unknown value 'jsn'; did you mean json?"),
        (refuse(Literal["csv", "json", "npy"], "xml"), "unknown value 'xml'; choose csv, json or npy"),
        (refuse(Literal["4"], "3"), "unknown value '3'; choose 4"),
        (refuse(Needing, {}), "is required"),
        (refuse(bytes, 3), "'3' cannot be used"),
    ]
)
def test_a_fault_is_explained(fault: dict[str, Any], sentence: str) -> None:
    assert explain(fault) == sentence


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("formt", KNOWN, "no such name; did you mean format?"),
        ("xyz", KNOWN, "no such name; use from, to or format"),
        ("xyz", (), "no such name"),
    ],
)
def test_an_unknown_name_gets_the_nearest_or_all_that_are_known(
    name: str, known: tuple[str, ...], sentence: str
) -> None:
    assert explain(refuse(Closed, {name: 1}), known) == sentence
