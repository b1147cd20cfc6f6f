"""`/api/v1/limits`: signs of what limited the rails."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import (
    MAX_PORTS,
    Amount,
    AnswerPart,
    Count,
    Few,
    Milliseconds,
    Name,
    Sentence,
    Sentences,
    at_most,
)

MAX_BINS = 36_000


class LimitAnswer(AnswerPart):
    """A sign that the rails show."""

    sign: Name = Field(description="source, path, receiver, loss, link or unknown.")
    share: Amount = Field(description="Of the time in which the rails transmit, 0 to 1.")
    seconds: Amount = Field(description="Of all rails together.")
    text: Sentence = Field(description="The same as a sentence, with the evidence.")


class PortLimitsAnswer(AnswerPart):
    """A rail."""

    port: Name
    usual_peak_bytes_per_second: Amount | None = Field(description="Of transmit; null if it is unknown.")
    strip: Annotated[str, Field(max_length=MAX_BINS)] = Field(description="A letter per bin, explained in the legend.")
    remarks: Sentences = Field(description="Why most of its bins may be unknown.")


class LimitsAnswer(AnswerPart):
    """The signs of `bins` bins of `bin_ms` from `start_ms` on, in milliseconds since the epoch."""

    start_ms: Milliseconds
    bin_ms: Count
    bins: Count
    limits: Annotated[list[LimitAnswer], at_most(MAX_PORTS)] = Field(description="Of all rails, unknown last.")
    ports: Annotated[list[PortLimitsAnswer], at_most(MAX_PORTS)]
    legend: Annotated[dict[Name, Sentence], Few] = Field(description="What each letter of a strip means.")
    cannot_know: Sentence
    job: JobPortsAnswer | None = Field(None, description="Only there if the query names a job.")
