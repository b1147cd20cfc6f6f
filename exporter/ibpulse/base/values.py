"""Kinds of values: a text becomes a checked value in one way, whether a setting, a flag, a query or a file has it.

Parsing raises `ValueError`; its arguments are sentences that name the value and the remedy.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ibpulse.base.text import sentence_list, show
from ibpulse.base.units import (
    SECOND_NS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

if TYPE_CHECKING:
    from pathlib import Path

Given = str | Sequence[str]
"""The text or texts that a source gives for one value."""

ABSENT = ("", "null", "~")
"""Texts that mean "no value" for an optional kind."""

T = TypeVar("T")
_WHOLE = re.compile("[0-9]{1,18}")
_NUMBER = re.compile(r"(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}", re.ASCII)
MIN_PART = 4
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


class GivenText(NamedTuple):
    """A given text and its place: `flag --tp` or `job.yaml:3: tp`."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in nanoseconds: wall time since 1970, or an offset from the beginning of each recording."""

    ns: int
    after_begin: bool = False

    def in_recording(self, start_ns: int) -> int:
        """The instant as wall time in a recording that begins at `start_ns`."""
        return self.ns + start_ns if self.after_begin else self.ns


class EntriesError(ValueError):
    """Faults in the entries of a list or a mapping, as pairs of entry and sentence."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = faults
        super().__init__(*(sentence for _, sentence in faults))


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value: its metavar, and how to parse and write it. Called, it parses, as argparse wants it.

    A list has the kind of its items in `item`; a `mapping` may also be one in a file.
    """

    metavar: str
    parse: Callable[[Any], T]
    write: Callable[[T], Any] = str
    item: Kind[Any] | None = None
    mapping: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return self.item is not None or self.mapping

    def __call__(self, given: Given) -> T:
        """The value of a text."""
        return self.parse(given)

    def text(self, value: T) -> str:
        """The value as one text."""
        written = self.write(value)
        return ",".join(map(str, written)) if isinstance(written, list) else str(written)


def one(
    metavar: str, parse: Callable[[str], T], *checks: Callable[[T], None], write: Callable[[T], Any] = str
) -> Kind[T]:
    """A single value, parsed by `parse`; each check raises a ValueError for an invalid value."""

    def read(given: Given) -> T:
        if not isinstance(given, str):
            raise ValueError(f"{', '.join(given)!r} is a list; give one value")  # noqa: TRY004 (a fault of the value)
        value = parse(given)
        for check in checks:
            check(value)
        return value

    return Kind(metavar, read, write)


def optional(kind: Kind[T], empty: str) -> Kind[T | None]:
    """A kind with None for an absent value; `empty` ends the sentence `or leave it empty`."""

    def read(given: Given) -> T | None:
        if given in ABSENT:
            return None
        try:
            return kind.parse(given)
        except ValueError as error:
            raise ValueError(f"{error}, or leave it empty {empty}") from None

    return Kind(kind.metavar, read, lambda value: None if value is None else kind.write(value))


def many(
    item: Kind[T],
    finish: Callable[[tuple[T, ...]], tuple[T, ...]] = lambda values: values,
    *,
    split: bool = True,
) -> Kind[tuple[T, ...]]:
    """A list of values; `split` texts have commas between them. `finish` checks and orders the values."""

    def read(given: Given) -> tuple[T, ...]:
        values: list[T] = []
        faults: list[tuple[str, str]] = []
        texts = split_texts(given) if split else (given,) if isinstance(given, str) else given
        for number, text in enumerate(texts):
            try:
                values.append(item.parse(text))
            except ValueError as error:
                faults += ((str(number), sentence) for sentence in error.args)
        if faults:
            raise EntriesError(faults)
        return finish(tuple(values))

    return Kind(f"{item.metavar},...", read, lambda values: [item.write(value) for value in values], item)


def split_texts(given: Given) -> tuple[str, ...]:
    """The items of a list: comma separated, repeated, or both."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    return tuple(item.strip() for text in texts if text not in ABSENT for item in text.split(","))


def choice(*allowed: str, metavar: str = "", **synonyms: str) -> Kind[Any]:
    """One of the allowed words, or a synonym of one."""

    def parse(text: str) -> str:
        word = synonyms.get(text, text)
        if word not in allowed:
            raise ValueError(unknown_word(text, allowed))
        return word

    return one(metavar or "|".join((*allowed, *synonyms)), parse)


def word_or_path(*words: str) -> Kind[Any]:
    """One of some words, or an absolute path."""

    def parse(text: str) -> str | Path:
        if not text.startswith("/") and text not in words:
            raise ValueError(f"{unknown_word(text, words)}, or an absolute path")
        return text if text in words else _path(text)

    return one("|".join((*words, "PATH")), parse)


def some_of(metavar: str, *allowed: str) -> Kind[tuple[str, ...]]:
    """A list of allowed words without duplicates; the word none alone means an empty list."""

    def finish(words: tuple[str, ...]) -> tuple[str, ...]:
        if words == ("none",):
            return ()
        for word in words:
            if word not in allowed:
                raise ValueError(unknown_word(word, (*allowed, "none")))
            if words.count(word) > 1:
                raise ValueError(f"{word} is given twice; give it once")
        return words

    return many(one(metavar, str), finish)


def unknown_word(text: str, allowed: Iterable[str]) -> str:
    """The sentence for a word that is none of the allowed ones."""
    words = tuple(allowed)
    return f"unknown value {show(text)}; {advice(text, words, f'choose {either(words)}')}"


def either(words: Sequence[str]) -> str:
    """Words joined as in a sentence: `a, b or c`."""
    return sentence_list(words, "or")


def advice(unknown: str, known: Iterable[str], otherwise: str) -> str:
    """A hint for an unknown name: the nearest known one, or the first that contains it, or `otherwise`."""
    from difflib import get_close_matches  # needed only after a typing error

    names = list(known)
    nearest = get_close_matches(unknown, names, n=1)
    if not nearest and len(unknown) >= MIN_PART:
        nearest = [name for name in names if unknown in name]
    return f"did you mean {nearest[0]}?" if nearest else otherwise


def matching(metavar: str, form: str, what: str, way_out: str) -> Kind[str]:
    """A text that matches a regular expression, such as `a host name`."""

    def parse(text: str) -> str:
        if not re.fullmatch(form, text):
            raise ValueError(f"{show(text)} is not {what}; {way_out}")
        return text

    return one(metavar, parse)


def truth(*, lenient: bool = False) -> Kind[bool]:
    """true or false; `lenient` takes the other words of YAML for them as well, in any case."""
    words = {"true": True, "false": False}
    if lenient:
        words |= {"yes": True, "on": True, "no": False, "off": False}

    def parse(text: str) -> bool:
        word = text.lower() if lenient else text
        if word not in words:
            raise ValueError(unknown_word(text, ("true", "false")))
        return words[word]

    return one("true|false", parse, write=lambda value: str(value).lower())


def between(lowest: T, highest: T | None, write: Callable[[Any], str] = str) -> Callable[[T], None]:
    """A check of inclusive bounds, the upper one if there is one; `write` formats a value for the message."""

    def check(value: Any) -> None:
        if value < lowest or (highest is not None and value > highest):
            raise ValueError(f"{write(value)} is out of bounds; choose {_bounds(lowest, highest, write)}")

    return check


def _bounds(lowest: T, highest: T | None, write: Callable[[Any], str] = str) -> str:
    return f"{write(lowest)} or more" if highest is None else f"{write(lowest)} to {write(highest)}"


def above_zero(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser that refuses zero."""

    def read(text: str) -> T:
        value = parse(text)
        if not value:
            raise ValueError(f"{show(text)} is zero; give more than 0")
        return value

    return read


def whole(lowest: int, highest: int | None = None, metavar: str = "COUNT") -> Kind[int]:
    """A whole number with inclusive bounds."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{show(text)} is not a whole number; choose {_bounds(lowest, highest)}")
        return int(text)

    return one(metavar, parse, between(lowest, highest), write=lambda value: value)


def number(lowest: float, highest: float | None, metavar: str, example: str, *, some: bool = False) -> Kind[float]:
    """A number with inclusive bounds, such as 0.85 or 7.6e9; with `some`, it is not zero."""

    def parse(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{show(text)} is not a number; write it like {example}")
        return float(text)

    return one(metavar, above_zero(parse) if some else parse, between(lowest, highest, "{:g}".format))


def duration(lowest: str, highest: str, *first: Callable[[int], None]) -> Kind[int]:
    """A duration in nanoseconds with inclusive bounds; the checks in `first` run before that of the bounds."""
    bounds = between(parse_duration(lowest), parse_duration(highest), format_duration)
    return one("DURATION", parse_duration, *first, bounds, write=format_duration)


def seconds(lowest: str, highest: str) -> Kind[int]:
    """A duration in nanoseconds with inclusive bounds, in whole seconds."""
    return duration(lowest, highest, _whole_seconds)


def _whole_seconds(period_ns: int) -> None:
    if period_ns % SECOND_NS:
        raise ValueError(f"{format_duration(period_ns)} is not a whole number of seconds; write it like 10s or 5m")


def _shift(text: str) -> int:
    size_ns = parse_duration(text.removeprefix("-"))
    return -size_ns if text.startswith("-") else size_ns


def _path(text: str) -> Path:
    from pathlib import Path  # not for help texts

    if text in ABSENT:
        raise ValueError("the path is empty; give a path or remove the setting")
    return Path(text)


def _url(text: str) -> str:
    parts = urlsplit(text)
    if "@" in parts.netloc:
        # the text may be a password, which no log should show
        raise ValueError("a URL has a user name; put it into the configuration file of the server instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment or not text.isprintable():
        raise ValueError(f"{show(text)} is not the URL of a server; write it like http://alertmanager:9093")
    return text


def lists_by_word(metavar: str, item: Kind[T], *allowed: str) -> Kind[dict[str, tuple[T, ...]]]:
    """Lists of values by one of the allowed words, as text `word=a,b`; the word holds until the next one.

    No value may match one of another word, where values are shell patterns.
    """

    def read(given: Given) -> dict[str, tuple[T, ...]]:
        found: dict[str, tuple[T, ...]] = {}
        faults: list[str] = []
        word = ""
        for text in split_texts(given):
            before, equals, after = text.partition("=")
            word = before if equals else word
            try:
                if not word:
                    raise ValueError(f"{text!r} has no {metavar.lower()}; write it like {allowed[0]}={text}")
                if word not in allowed:
                    raise ValueError(f"unknown {metavar.lower()} {word!r}; choose {', '.join(allowed)}")
                found[word] = (*found.get(word, ()), item.parse(after if equals else text))
            except ValueError as error:
                faults += (fault for fault in error.args if fault not in faults)
        if faults or (faults := find_overlaps(found)):
            raise ValueError(*faults)
        return found

    def write(lists: dict[str, tuple[T, ...]]) -> list[str]:
        return [f"{word}={value}" for word, values in lists.items() for value in values]

    return Kind(f"{metavar}={item.metavar},...", read, write, mapping=True)


def find_overlaps(lists: Mapping[str, Sequence[object]]) -> list[str]:
    """A fault for each pattern that is given for two words, or matches one of another word."""
    faults = []
    for (word, values), (other, others) in itertools.combinations(lists.items(), 2):
        for first, second in itertools.product(map(str, values), map(str, others)):
            if fnmatchcase(first, second) or fnmatchcase(second, first):
                texts = first if first == second else f"{first} and {second}"
                faults.append(f"{texts}: the same port is given for {word} and {other}; give each port once")
    return faults


def labels(*reserved: str) -> Kind[dict[str, str]]:
    """Labels of Prometheus with their values, but none of the reserved ones, as text `name=value`."""

    def read(given: Given) -> dict[str, str]:
        found = dict(text.partition("=")[::2] for text in split_texts(given))
        for name, text in found.items():
            if name in reserved:
                raise ValueError(f"{name}: is set by ibpulse; use another label")
            if not _LABEL.fullmatch(name) or not text or not text.isprintable():
                raise ValueError(f"{show(name)} is not a label with a value; write labels like cluster=a,team=ml")
        return found

    return Kind("NAME=VALUE,...", read, lambda found: [f"{name}={text}" for name, text in found.items()], mapping=True)


def _instant(text: str) -> int:
    from ibpulse.base.instants import parse_instant  # not for help texts

    return parse_instant(text)


def _moment(text: str) -> Moment:
    with suppress(ValueError):
        return Moment(parse_duration(text), after_begin=True)
    with suppress(ValueError):
        return Moment(_instant(text))
    raise ValueError(f"{show(text)} is not a time; write an offset like 10s, or 2026-11-21T12:00:00Z")


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{show(text)} is not a regular expression: {error}") from None
    return text


TEXT = one("TEXT", str)
PATH = one("PATH", _path)
OPTIONAL_PATH = optional(PATH, "for none")
TRUTH, YAML_TRUTH = truth(), truth(lenient=True)
RATE = one("RATE", parse_rate, write=format_rate)
SIZE = one("SIZE", parse_size, write=format_size)
TIME = one("DURATION", parse_duration, write=format_duration)
SOME_TIME = one("DURATION", above_zero(parse_duration), write=format_duration)
SHIFT = one("TIME", _shift)
SOME_SECONDS = one("DURATION", above_zero(parse_duration), _whole_seconds, write=format_duration)
SOME_RATE = one("RATE", above_zero(parse_rate), write=format_rate)
ANY_WHOLE = whole(0)
RATIO = number(0, 1, "RATIO", "0.85")
INSTANT = one("TIME", _instant)
MOMENT = one("TIME", _moment)
URLS = many(one("URL", _url))
REGULAR_EXPRESSION = one("REGEX", _regular_expression)


def explain(fault: Fault, known: Iterable[str] = ()) -> str:
    """A sentence that explains why a value is wrong and how to fix it.

    For an unknown name, the last item of `loc`, `known` holds the accepted names.
    """
    kind = str(fault["type"])
    if kind == "extra_forbidden":
        names = list(known)
        return "no such name" + (f"; {advice(str(fault['loc'][-1]), names, f'use {either(names)}')}" if names else "")
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind in _WRONG_TYPES:
        return f"{show(fault['input'])} is not {_WRONG_TYPES[kind]}"
    return _SENTENCES[kind](fault) if kind in _SENTENCES else f"{show(fault['input'])} cannot be used"


def _say_choice(fault: Fault) -> str:
    choices = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
    return unknown_word(str(fault["input"]), choices)


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
