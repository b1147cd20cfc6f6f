"""Validators for the values of configuration files: each takes texts as written and refuses with a sentence.

Every refusal is a `ValueError` that names the value and the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import PlainValidator

T = TypeVar("T")


class EntriesError(ValueError):
    """What is wrong with entries of a list or mapping, by the name of each."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = faults
        super().__init__(*faults.values())


def single(
    parse: Callable[[str], T], describe: Callable[[Any], str] = lambda _: "holds more than a value; give one text"
) -> PlainValidator:
    """A validator for one text, read by `parse`; `describe` says what is wrong with anything else."""

    def validate(given: object) -> T:
        if isinstance(given, str):
            return parse(given)
        raise ValueError(describe(given))

    return PlainValidator(validate)


def several(parse: Callable[[str], T]) -> PlainValidator:
    """A validator for a list of texts, each read by `parse`; a list of one may be written as the text alone."""

    def validate(given: object) -> tuple[T, ...]:
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("is not a list; write it like [one, other]")
        read, faults = [], {}
        for number, text in enumerate(texts):
            try:
                read.append(parse(text))
            except ValueError as error:
                faults[str(number)] = str(error)
        if faults:
            raise EntriesError(faults)
        return tuple(read)

    return PlainValidator(validate)


def mapped(check: Callable[[str, str], str]) -> PlainValidator:
    """A validator for a mapping of texts; `check` returns what is wrong with one entry, or an empty text."""

    def validate(given: object) -> Mapping[str, str]:
        if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
            raise ValueError("is not a mapping of names to texts; write it like name: text")
        faults = {name: fault for name, text in given.items() if (fault := check(name, text))}
        if faults:
            raise EntriesError(faults)
        return given

    return PlainValidator(validate)
