"""`/api/v1/window` as JSON, and the header that describes the numbers of one as NPY."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import (
    MAX_PORTS,
    Amount,
    AnswerPart,
    Count,
    Milliseconds,
    Name,
    Sentence,
    SeriesName,
    at_most,
)

MAX_VALUES = 1_000_000
# a daemon gives 200
MAX_PLACES = 1000

Place = Annotated[list[Count], Field(min_length=3, max_length=3)]
Values = Annotated[list[Amount | None], at_most(MAX_VALUES)]
NPY_TYPE = "application/x-npy"
NPY_HEADER = "X-Ibpulse-Window"


class Implausible(AnswerPart):
    """Samples above the line rate."""

    merged: Count = Field(description="How many were merged with samples before them.")
    unexplained: Count = Field(description="How many nothing explains; they are as they were read.")
    places: Annotated[list[Place], at_most(MAX_PLACES)] = Field(
        description="Merged samples: series, first bin, number of bins; the first 200."
    )


class History(AnswerPart):
    """The time span of the ring."""

    oldest_ms: Milliseconds
    newest_ms: Milliseconds


class WindowGrid(AnswerPart):
    """The members that describe the values of a window: `points` bins from `start_ms` on."""

    interval_ms: Annotated[int, Field(ge=1, le=1000)] = Field(description="Of the sampler.")
    resolution_ms: Annotated[int, Field(ge=1, le=10**12)] = Field(description="Length of a bin.")
    statistic: Literal["max", "mean", "min"]
    unit: Literal["bytes_per_second", "ratio"] = Field(description="As in the query.")
    start_ms: Milliseconds
    end_ms: Milliseconds
    points: Annotated[int, Field(ge=0, le=MAX_VALUES)]
    holes: Count = Field(description="Number of missing values.")
    implausible: Implausible
    history: History
    coverage: Sentence = Field(description="What is missing and why, as a sentence.")
    job: JobPortsAnswer | None = Field(None, description="Only with job=.")


class WindowSeries(AnswerPart):
    """One direction of one port."""

    port: Name
    direction: Literal["transmit", "receive"]
    values: Values
    uncertainty: Values | None = Field(
        None, description="With uncertainty=true: the part by which a rate in the bin may be wrong, at most."
    )


class WindowAnswer(WindowGrid):
    """A window with format=json."""

    series: Annotated[list[WindowSeries], at_most(2 * MAX_PORTS)]


class WindowHead(WindowGrid):
    """The header of a window with format=npy."""

    series: Annotated[list[SeriesName], at_most(4 * MAX_PORTS)] = Field(description="The names of the rows.")
