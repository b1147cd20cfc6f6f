"""Conditions about the options of a run that are true, false or unknown, and that can be read as text.

An option that is not known makes a condition unknown, unless the rest decides it (Kleene's logic).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

OptionValue = bool | int | str | tuple[str, ...] | None
"""None is an option that is set to nothing; one that is not known is missing from `Options`."""

# a release, and what follows it: 2.6.0a0+ecf3bae.nv25.01 is before 2.6.0, 2.6.0+cu124 is not
_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(.{0,100})")
_BEFORE_RELEASE = re.compile(r"[-._]?(?:a|alpha|b|beta|c|rc|dev)")


@dataclass(frozen=True, slots=True)
class GivenOption:
    """The value of an option and where it came from: `run_config.yaml:14`, or that it is a default."""

    value: OptionValue
    place: str


Options = Mapping[str, GivenOption]


@dataclass(frozen=True, slots=True)
class Fact:
    """What a test says of the values of options; `text` is for people."""

    keys: tuple[str, ...]
    test: Callable[..., bool]
    text: str

    def holds(self, options: Options) -> bool | None:
        """Whether it is true; None if that is unknown."""
        if any(key not in options for key in self.keys):
            return None
        return self.test(*(options[key].value for key in self.keys))


@dataclass(frozen=True, slots=True)
class Joined:
    """All (`and`) or at least one (`or`) of some conditions."""

    word: Literal["and", "or"]
    conditions: tuple[Condition, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The options that it is about."""
        return tuple(dict.fromkeys(key for condition in self.conditions for key in condition.keys))

    @property
    def text(self) -> str:
        """The condition as people write it."""
        texts = [
            f"({each.text})" if isinstance(each, Joined) and each.word != self.word else each.text
            for each in self.conditions
        ]
        return f" {self.word} ".join(texts)

    def holds(self, options: Options) -> bool | None:
        """Whether it is true; None if that is unknown."""
        held = [condition.holds(options) for condition in self.conditions]
        decisive = self.word == "or"
        return decisive if decisive in held else None if None in held else not decisive


Condition = Fact | Joined


def on(key: str) -> Fact:
    """A switch is on."""
    return Fact((key,), lambda value: value is True, key)


def off(key: str) -> Fact:
    """A switch is off or unset."""
    return Fact((key,), lambda value: value is not True, f"not {key}")


def equals(key: str, *values: OptionValue) -> Fact:
    """An option has one of some values; None is unset."""
    return Fact((key,), lambda value: value in values, f"{key} is {_either(values)}")


def differs(key: str, *values: OptionValue) -> Fact:
    """An option has none of some values; None is unset."""
    text = f"{key} is set" if values == (None,) else f"{key} is not {_either(values)}"
    return Fact((key,), lambda value: value not in values, text)


def at_least(key: str, least: int | str) -> Fact:
    """A number or a version is at least another; one that is unset is not."""

    def test(value: Any) -> bool:
        if isinstance(least, str):
            return isinstance(value, str) and version_key(value) >= version_key(least)
        return isinstance(value, int) and value >= least

    return Fact((key,), test, f"{key} >= {least}")


def below(key: str, bound: int | str) -> Fact:
    """A number or a version is known to be less than another."""
    enough = at_least(key, bound)
    return Fact((key,), lambda value: value is not None and not enough.test(value), f"{key} < {bound}")


def has(key: str, *items: str) -> Fact:
    """A list has one of some items."""
    return Fact((key,), lambda value: not set(items).isdisjoint(value or ()), f"{key} has {_either(items)}")


def lacks(key: str, *items: str) -> Fact:
    """A list has none of some items, or is unset."""
    return Fact((key,), lambda value: set(items).isdisjoint(value or ()), f"{key} lacks {' and '.join(items)}")


def begins(key: str, *beginnings: str) -> Fact:
    """A text begins with one of some others."""
    return Fact((key,), lambda value: str(value).startswith(beginnings), f"{key} begins with {_either(beginnings)}")


def same(first: str, second: str) -> Fact:
    """Two options have the same value."""
    return Fact((first, second), lambda one, other: one == other, f"{first} equals {second}")


def every(*conditions: Condition) -> Joined:
    """All of some conditions."""
    return Joined("and", conditions)


def either(*conditions: Condition) -> Joined:
    """At least one of some conditions."""
    return Joined("or", conditions)


def value_text(value: OptionValue) -> str:
    """A value as people write it: `true`, `unset`, `4`, `moe, attn`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return (", ".join(value) or "empty") if isinstance(value, tuple) else str(value)


def _either(values: tuple[OptionValue, ...]) -> str:
    return " or ".join(map(value_text, values))


def version_key(text: str) -> tuple[int, int, int, bool]:
    """A sort key of a version; one before its release, such as 2.6.0a0, is less than the release.

    Raises:
        ValueError: it is not a version.
    """
    match = _VERSION.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a version; write it like 2.6.0")
    major, minor, patch, rest = match.groups()
    return int(major), int(minor or 0), int(patch or 0), not _BEFORE_RELEASE.match(rest)
