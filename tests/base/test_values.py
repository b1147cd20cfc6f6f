"""Kinds of values, and why a value was refused, in the project's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ibpulse.base import values
from ibpulse.base.values import (
    Kind,
    Moment,
    choice,
    duration,
    explain,
    many,
    matching,
    number,
    optional,
    seconds,
    some_of,
    whole,
)
from tests.tables import for_each

COUNT = whole(1, 64)
SHARE = number(0.5, 8, "N", "1.03")
WORD = choice("debug", "warning", warn="warning")
RULES = some_of("RULE", "one", "two")
HOST = matching("HOST", "[a-z]+", "a host", "write it like node")
EXACTLY = "unknown value {!r}; choose true or false"

TAKEN: dict[str, tuple[Kind[Any], values.Given, object]] = {
    "whole": (COUNT, "064", 64),
    "number": (SHARE, "1.03", 1.03),
    "number with exponent": (number(0, 1e30, "N", "7.6e9"), "7.6e9", 7.6e9),
    "number without zero": (values.RATIO, ".85", 0.85),
    "duration": (duration("1s", "1h"), "1h", 3600 * 10**9),
    "seconds": (seconds("1s", "1h"), "90s", 90 * 10**9),
    "time above 0": (values.SOME_TIME, "1ns", 1),
    "shift": (values.SHIFT, "-10.5ms", -10_500_000),
    "rate": (values.RATE, "0.1GB/s", 10**8),
    "size": (values.SIZE, "64MiB", 64 * 2**20),
    "offset": (values.MOMENT, "10s", Moment(10**10, after_begin=True)),
    "wall time": (values.MOMENT, "1970-01-01T00:00:01Z", Moment(10**9)),
    "choice": (WORD, "debug", "debug"),
    "synonym": (WORD, "warn", "warning"),
    "none of some": (RULES, "none", ()),
    "some": (RULES, "two, one", ("two", "one")),
    "pattern": (HOST, "node", "node"),
    "expression": (values.REGULAR_EXPRESSION, "a+", "a+"),
    "truth": (values.TRUTH, "false", False),
    "truth of YAML": (values.YAML_TRUTH, "On", True),
    "path": (values.PATH, "/sys", Path("/sys")),
    "word": (values.word_or_path("auto", "off"), "auto", "auto"),
    "path for a word": (values.word_or_path("auto", "off"), "/sys", Path("/sys")),
    "nothing": (values.OPTIONAL_PATH, "", None),
    "list": (many(COUNT), ["1,2", "3"], (1, 2, 3)),
    "URLs": (values.URLS, "http://am:9093/prefix,https://hook", ("http://am:9093/prefix", "https://hook")),
    "labels": (values.labels("job_id"), "cluster=a,team=b=c", {"cluster": "a", "team": "b=c"}),
    "list without commas": (many(values.TEXT, split=False), "a,b", ("a,b",)),
}

REFUSED: dict[str, tuple[Kind[Any], values.Given, tuple[str, ...]]] = {
    "whole in other digits": (COUNT, "١", ("'١' is not a whole number; choose 1 to 64",)),
    "whole below": (COUNT, "0", ("0 is out of bounds; choose 1 to 64",)),
    "whole without upper bound": (whole(2), "1", ("1 is out of bounds; choose 2 or more",)),
    "whole above": (COUNT, "65", ("65 is out of bounds; choose 1 to 64",)),
    "number": (SHARE, "nan", ("'nan' is not a number; write it like 1.03",)),
    "number above 0": (number(0, None, "N", "1.5", some=True), "0.0", ("'0.0' is zero; give more than 0",)),
    "number below": (SHARE, "0.4", ("0.4 is out of bounds; choose 0.5 to 8",)),
    "duration above": (duration("1s", "1h"), "61m", ("1h1m is out of bounds; choose 1s to 1h",)),
    "seconds": (seconds("1s", "1h"), "1500ms", ("1s500ms is not a whole number of seconds; write it like 10s or 5m",)),
    "time above 0": (values.SOME_TIME, "0ms", ("'0ms' is zero; give more than 0",)),
    "moment": (values.MOMENT, "then", ("'then' is not a time; write an offset like 10s, or 2026-11-21T12:00:00Z",)),
    "choice": (WORD, "loud", ("unknown value 'loud'; choose debug or warning",)),
    "nearly a choice": (WORD, "debg", ("unknown value 'debg'; did you mean debug?",)),
    "some": (RULES, "three", ("unknown value 'three'; choose one, two or none",)),
    "twice": (RULES, "one,one", ("one is given twice; give it once",)),
    "pattern": (HOST, "a b" * 20, (f"'{'a b' * 13}…' is not a host; write it like node",)),
    "expression": (
        values.REGULAR_EXPRESSION,
        "(",
        ("'(' is not a regular expression: missing ), unterminated subpattern at position 0",),
    ),
    "truth": (values.TRUTH, "yes", (EXACTLY.format("yes"),)),
    "truth of YAML": (values.YAML_TRUTH, "maybe", (EXACTLY.format("maybe"),)),
    "neither word nor path": (
        values.word_or_path("auto", "off"),
        "sys",
        ("unknown value 'sys'; choose auto or off, or an absolute path",),
    ),
    "path": (values.PATH, "", ("the path is empty; give a path or remove the setting",)),
    "optional": (
        optional(COUNT, "for all"),
        "x",
        ("'x' is not a whole number; choose 1 to 64, or leave it empty for all",),
    ),
    "one of several": (
        many(COUNT),
        "0,1,x",
        ("0 is out of bounds; choose 1 to 64", "'x' is not a whole number; choose 1 to 64"),
    ),
    "URL": (values.URLS, "am:9093", ("'am:9093' is not the URL of a server; write it like http://alertmanager:9093",)),
    "URL with a password": (
        values.URLS,
        "http://a:secret@am",
        ("a URL has a user name; put it into the configuration file of the server instead",),
    ),
    "label without value": (
        values.labels(),
        "cluster",
        ("'cluster' is not a label with a value; write labels like cluster=a,team=ml",),
    ),
    "reserved label": (values.labels("job_id"), "job_id=7", ("job_id: is set by ibpulse; use another label",)),
    "list for one": (COUNT, ["1", "2"], ("'1, 2' is a list; give one value",)),
}


@for_each(TAKEN)
def test_a_value_is_taken(kind: Kind[Any], given: values.Given, value: object) -> None:
    found = kind(given)
    assert (type(found), found) == (type(value), value)


@for_each(REFUSED)
def test_a_value_is_refused_with_the_way_out(kind: Kind[Any], given: values.Given, faults: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 (the sentences are compared)
        kind(given)
    assert refusal.value.args == faults


def test_a_moment_counts_from_the_beginning_or_from_1970() -> None:
    assert Moment(5, after_begin=True).in_recording(100) == 105
    assert Moment(5).in_recording(100) == 5


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
        (refuse(Literal["4"], "3"), "unknown value '3'; choose 4"),
        (refuse(Needing, {}), "is required"),
        (refuse(bytes, 3), "'3' cannot be used"),
    ]
)
def test_a_fault_is_explained(fault: dict[str, Any], sentence: str) -> None:
    assert explain(fault) == sentence


def test_an_unknown_name_suggests_the_nearest() -> None:
    known = ("from", "to", "format")
    assert explain(refuse(Closed, {"formt": 1}), known) == "no such name; did you mean format?"
    assert explain(refuse(Closed, {"xyz": 1}), known) == "no such name; use from, to or format"
    assert explain(refuse(Closed, {"xyz": 1}), ()) == "no such name"
