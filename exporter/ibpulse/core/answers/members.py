"""The kinds of members that answers consist of, with their bounds, and the check of a whole answer."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ibpulse.base.errors import DaemonError
from ibpulse.base.text import escape_controls
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.base.values import explain
from ibpulse.core.events.event import MAX_INTEGER
from ibpulse.core.model import ROLES, UNKNOWN_ROLE

MAX_NAME, MAX_SENTENCE = 256, 2000
MAX_PORTS, MAX_JOBS, MAX_WORDS, MAX_MEMBERS = 1024, 1000, 5000, 1000
# more than the numbers of the longest window and of its uncertainty; one takes 50 bytes of memory
MAX_ITEMS = 2_100_000
NOT_OURS = "is this an ibpulse daemon of a compatible version?"
# a part is frozen
_put = object.__setattr__
_SERIES = re.compile(r"[^ ]+:[0-9]{1,3} (transmit|receive)( uncertainty)?")


def _name(text: str) -> str:
    if escape_controls(text) != text:
        raise ValueError("has control characters")
    return text


def _sentence(text: str) -> str:
    return escape_controls(text[:MAX_SENTENCE])


def check_series(text: str) -> str:
    """The text, if it names one direction of a port.

    Raises:
        ValueError: it does not.
    """
    if not _SERIES.fullmatch(text):
        raise ValueError("is not the name of a series")
    return text


def _role(text: str) -> str:
    return text if text in ROLES else UNKNOWN_ROLE


def _few(members: Any) -> Any:
    if isinstance(members, dict) and len(members) > MAX_MEMBERS:
        raise ValueError(f"has too many members; use at most {MAX_MEMBERS}")
    return members


def at_most(items: int) -> Any:
    """The bound of a list. Its first wrong item ends the check, because every fault takes a kilobyte of memory."""
    return Field(max_length=items, fail_fast=True)


Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_name)]
Sentence = Annotated[str, AfterValidator(_sentence)]
Role = Annotated[str, AfterValidator(_role), Field(description=f"{', '.join(ROLES[:-1])} or {ROLES[-1]}.")]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
# a time or a duration: nanoseconds are in 64 bits, which ends in 2262, and dates in 9999
Milliseconds = Annotated[int, Field(ge=0, le=MAX_INTEGER // MILLISECOND_NS)]
Score = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
SeriesName = Annotated[Name, AfterValidator(check_series)]
Names = Annotated[list[Name], at_most(MAX_WORDS)]
Sentences = Annotated[list[Sentence], at_most(MAX_WORDS)]
Few = BeforeValidator(_few)
"""The bound of an object whose members have any names."""


class AnswerPart(BaseModel):
    """A part of an answer: types as in JSON, without conversions."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """A part of our own values, without a check, like that of pydantic, but in a third of its time."""
        fields, given = cls.__pydantic_fields__, {*values}
        if [*values] != [*fields]:
            given &= fields.keys()
            values = {
                name: values[name] if name in given else field.get_default(call_default_factory=True, validated_data={})
                for name, field in fields.items()
                if name in given or not field.is_required()
            }
        part = cls.__new__(cls)
        _put(part, "__dict__", values)
        _put(part, "__pydantic_fields_set__", given if _fields_set is None else _fields_set)
        _put(part, "__pydantic_extra__", None)
        _put(part, "__pydantic_private__", None)
        return part

    def encode(self) -> bytes:
        """The part as JSON."""
        # the bytes of pydantic, which warns of what it has not checked
        return orjson.dumps(self, default=vars)

    def given(self) -> dict[str, Any]:
        """The members that were given, for answers that leave out what was not asked for."""
        members, given = vars(self), self.__pydantic_fields_set__
        if len(given) == len(members):
            return members
        return {name: value for name, value in members.items() if name in given}

    def encode_given(self) -> bytes:
        """The members that were given as JSON, those of all parts; arrays are lists, NaN is null."""
        return orjson.dumps(self, default=AnswerPart.given, option=orjson.OPT_SERIALIZE_NUMPY)


Part = TypeVar("Part", bound=AnswerPart)


def unexpected(reason: str) -> DaemonError:
    """The error for an answer that is not as expected."""
    return DaemonError(f"its answer is not as expected: {reason}; {NOT_OURS}", kind="bad-answer")


def read_members(model: type[Part], content: bytes | str) -> Part:
    """The checked members of a text in JSON.

    Raises:
        DaemonError: it is not JSON, has too many items, or a member is missing or wrong.
    """
    items = content.count(b",") if isinstance(content, bytes) else content.count(",")
    if items > MAX_ITEMS:
        raise DaemonError(f"its answer has more than {MAX_ITEMS} items; {NOT_OURS}", kind="bad-answer")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "its answer"
        reason = escape_controls(f"{place[:100]} {explain(fault)}")
        raise unexpected(reason[:300]) from error
