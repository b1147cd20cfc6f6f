"""Turns pydantic's validation errors into sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ibpulse.base.text import show
from ibpulse.base.values import advice, either, unknown_word

Fault = Mapping[str, Any]
"""One of `ValidationError.errors()`: its `type`, the `input`, and the bounds in `ctx`."""
_WRONG_TYPES = {
    **dict.fromkeys(("int_parsing", "int_parsing_size", "int_from_float", "int_type"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "a text",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
}


def explain(fault: Fault, known: Iterable[str] = ()) -> str:
    """A sentence that explains why a value is wrong and how to fix it.

    For an unknown name, the last item of `loc`, `known` holds the accepted names.
    """
    kind = str(fault["type"])
    if kind == "extra_forbidden":
        return _say_unknown(str(fault["loc"][-1]), list(known))
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind in _WRONG_TYPES:
        return f"{show(fault['input'])} is not {_WRONG_TYPES[kind]}"
    return _SENTENCES.get(kind, _say_invalid)(fault)


def _say_unknown(name: str, known: list[str]) -> str:
    return f"no such name; {advice(name, known, f'use {either(known)}')}" if known else "no such name"


def _say_choice(fault: Fault) -> str:
    choices = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
    return unknown_word(str(fault["input"]), choices)


def _say_invalid(fault: Fault) -> str:
    return f"{show(fault['input'])} cannot be used"


def _bound(sentence: str) -> Callable[[Fault], str]:
    """A sentence with the value and the bounds of a fault."""
    return lambda fault: sentence.format(value=show(fault["input"]), **fault["ctx"])


_SENTENCES: dict[str, Callable[[Fault], str]] = {
    "json_invalid": lambda fault: f"is not JSON: {fault['ctx']['error']}",
    "missing": lambda _: "is required",
    "literal_error": _say_choice,
    "enum": _say_choice,
    "greater_than": _bound("{value} is too small; use more than {gt}"),
    "greater_than_equal": _bound("{value} is too small; use at least {ge}"),
    "less_than": _bound("{value} is too large; use less than {lt}"),
    "less_than_equal": _bound("{value} is too large; use at most {le}"),
    "string_too_short": _bound("{value} is too short; use {min_length} or more characters"),
    "string_too_long": _bound("{value} is too long; use at most {max_length} characters"),
    "too_short": _bound("has {actual_length} items; use at least {min_length}"),
    "too_long": _bound("has too many items; use at most {max_length}"),
}
