"""Types of query parameters, and checks that FastAPI and pydantic do not offer."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import Field, WithJsonSchema

from ibpulse.instants import parse_instant
from ibpulse.units import parse_duration
from ibpulse.web.problems import bad_parameter

# The patterns are only for the OpenAPI document: the parsers give better messages than a failed pattern.
DURATION_PATTERN = {"pattern": r"^([0-9]{1,19}(\.[0-9]{1,19})?(ns|us|µs|ms|s|m|h|d))+$"}
INSTANT_PATTERN = {"pattern": r"^([0-9]{12,18}|[0-9]{1,12}\.[0-9]{1,20}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+)$"}
INSTANT_FORMS = "Epoch milliseconds (1763683200000), epoch seconds with a fraction (1763683200.5) or RFC 3339. "

_DURATION_SCHEMA = {"type": "string", "maxLength": 32, **DURATION_PATTERN}
_INSTANT_SCHEMA = {"type": "string", "maxLength": 64, **INSTANT_PATTERN}

# Optional types have their own schemas, because a query cannot contain null.
Duration = Annotated[str, Field(max_length=32), WithJsonSchema(_DURATION_SCHEMA)]
OptionalDuration = Annotated[str | None, Field(max_length=32), WithJsonSchema(_DURATION_SCHEMA)]
OptionalInstant = Annotated[str | None, Field(max_length=64), WithJsonSchema(_INSTANT_SCHEMA)]


def refuse_repeated(*repeatable: str) -> Any:
    """A dependency that refuses parameters given more than once, except the `repeatable` ones.

    FastAPI would use the last value and ignore the others.
    """

    async def check(request: Request) -> None:
        counts = Counter(name for name, _ in request.query_params.multi_items())
        if any(count > 1 for name, count in counts.items() if name not in repeatable):
            but = f"; only {', '.join(repeatable)} may be repeated" if repeatable else ""
            raise bad_parameter("query", f"a parameter is given more than once{but}")

    return Depends(check)


def read_duration(parameter: str, text: str) -> int:
    """The duration of a parameter in nanoseconds, longer than 0.

    Raises:
        ProblemError: it is not a duration, or 0.
    """
    try:
        duration_ns = parse_duration(text)
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error
    if duration_ns <= 0:
        raise bad_parameter(parameter, f"{text} must be longer than 0s")
    return duration_ns


def read_instant(parameter: str, text: str) -> int:
    """The instant of a parameter in nanoseconds since the epoch.

    Raises:
        ProblemError: it is not an instant.
    """
    try:
        return parse_instant(text)
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error
