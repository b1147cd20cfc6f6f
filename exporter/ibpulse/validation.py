"""Turns pydantic's validation errors into sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

SHOWN = 40

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


def show(value: object) -> str:
    """A value in quotes, shortened."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def _say_unknown(name: str, known: list[str]) -> str:
    nearest = get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        return f"no such name; did you mean {nearest[0]}?"
    return f"no such name; use {_join(known)}" if known else "no such name"


def _say_choice(fault: Fault) -> str:
    choices = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
    return f"{show(fault['input'])} is not known; choose {_join(choices)}"


def _say_invalid(fault: Fault) -> str:
    return f"{show(fault['input'])} cannot be used"


def _bound(sentence: str) -> Callable[[Fault], str]:
    """A sentence with the value and the bounds of a fault."""
    return lambda fault: sentence.format(value=show(fault["input"]), **fault["ctx"])


def _join(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


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
