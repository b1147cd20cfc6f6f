"""`/api/v1/window` and `/api/v1/stream`: samples, and what describes them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import (
    MAX_JOBS,
    MAX_PORTS,
    MAX_WORDS,
    Amount,
    AnswerPart,
    Count,
    Few,
    Milliseconds,
    Name,
    Names,
    Role,
    Sentence,
    SeriesName,
    at_most,
)
from ibpulse.core.answers.node import MAX_EVENTS, Plain
from ibpulse.core.answers.summary import NodeConclusions, NodeRails, NodeWindow, RailStatistics
from ibpulse.core.arrays import Singles
from ibpulse.core.events.event import MAX_INTEGER
from ibpulse.core.model import UNKNOWN_ROLE
from ibpulse.core.signals import MAX_SIGNALS

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


class SignalSeries(AnswerPart):
    """One counter at each reading of a port; null where it was not read, and where its gain is unknown."""

    name: Name
    bits: Annotated[int, Field(ge=1, le=64)]
    stops: bool = Field(description="At its largest number it stops; otherwise it goes on with 0.")
    sign: Name = Field(description="waiting, marked, lost, receiver or link.")
    unit: Name = Field(description="What it counts.")
    of_peers: bool = Field(description="It says what limits those who send to the port.")
    counters: Annotated[list[Annotated[int, Field(ge=0, lt=2**64)] | None], at_most(MAX_VALUES)]
    gained: Values = Field(description="Since the reading before.")
    full: Annotated[list[bool], at_most(MAX_VALUES)] = Field(
        description="Whether the counter has stopped, so that it says nothing."
    )


class SignalsAnswer(AnswerPart):
    """The readings of the congestion counters of a port; where the wall clock was set, a port is there twice."""

    port: Name
    time_ms: Annotated[list[Milliseconds], at_most(MAX_VALUES)] = Field(description="Of each reading.")
    seconds: Values = Field(description="Measured time since the reading before; null if unknown.")
    series: Annotated[list[SignalSeries], at_most(MAX_SIGNALS)]


class WindowAnswer(WindowGrid):
    """A window with format=json."""

    series: Annotated[list[WindowSeries], at_most(2 * MAX_PORTS)]
    signals: Annotated[list[SignalsAnswer], at_most(2 * MAX_PORTS)] | None = Field(
        None, description="Only with signals=true."
    )


class WindowHead(WindowGrid):
    """The header of a window with format=npy."""

    series: Annotated[list[SeriesName], at_most(4 * MAX_PORTS)] = Field(description="The names of the rows.")


MAX_STATES, MAX_SAMPLES, MAX_MERGED = 10_000, 100_000, 10_000

Flag = bool | None


class StreamState(AnswerPart):
    """A state of a port, and when it began; one that disappeared has no other members."""

    from_ms: Milliseconds
    state: Name
    physical: Name = ""
    active: bool = False
    rate_bytes_per_second: Amount | None = None
    rail: bool = False
    role: Role = UNKNOWN_ROLE
    problem: Name = ""


class StreamPort(AnswerPart):
    """A port of the event `ports`."""

    port: Name
    rail: bool
    role: Role = UNKNOWN_ROLE
    active: bool
    state: Name
    rate_bytes_per_second: Amount | None
    problem: Name = ""
    problem_text: Sentence = ""
    since_ms: Milliseconds | None = None
    states: Annotated[list[StreamState], at_most(MAX_STATES)] = Field(default_factory=list)


class StreamJobSpan(AnswerPart):
    """A time in which a job had ports."""

    job_id: Name
    scheduler: Name
    name: Name = ""
    ports: Names
    from_ms: Milliseconds | None
    to_ms: Milliseconds | None


class StreamPorts(AnswerPart):
    """The event `ports`; `gateway_version` is not of the daemon."""

    version: Name
    interval_ms: Annotated[int, Field(ge=1, le=60_000)]
    history_ms: Milliseconds
    simulated: bool = False
    ports: Annotated[list[StreamPort], at_most(MAX_PORTS)]
    jobs: Annotated[list[StreamJobSpan], at_most(MAX_JOBS)] = Field(default_factory=list)
    job: JobPortsAnswer | None = None


class StreamBatch(AnswerPart):
    """The event `batch`: rates in whole MB/s, two series per port."""

    start_ms: Milliseconds
    megabytes_per_second: Annotated[list[Annotated[list[Count | None], at_most(MAX_SAMPLES)]], at_most(2 * MAX_PORTS)]
    merged: Annotated[list[Annotated[list[Count], Field(min_length=3, max_length=3)]], at_most(MAX_MERGED)] = Field(
        default_factory=list
    )
    signals: Annotated[list[SignalsAnswer], at_most(MAX_PORTS)] | None = Field(
        None, description="Only with signals=true: as in a window, of the ports that were read since the last batch."
    )


class StreamEntry(AnswerPart):
    """An event of the log."""

    time_ms: Milliseconds
    uncertainty_ms: Milliseconds
    kind: Name
    subject: Name
    text: Sentence
    details: Plain = Field(default_factory=dict)


class StreamEvents(AnswerPart):
    """The event `events`."""

    events: Annotated[list[StreamEntry], at_most(MAX_EVENTS)]


class StreamTraffic(NodeConclusions, NodeRails):
    """The statistics of the node; `windows` are by the length of a window."""

    bandwidth_saturated: Flag = None
    moe_saturated: Flag = None
    windows: Annotated[dict[Name, NodeWindow], Few]


class StreamJob(AnswerPart):
    """The statistics of a job."""

    job_id: Name
    duty_cycle_ratio: Amount | None
    active_bytes_per_second: Amount | None
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    last_traffic_ms: Milliseconds | None


class StreamDirections(AnswerPart):
    """A rate in each direction."""

    transmit: Amount | None
    receive: Amount | None


class _Peaks(AnswerPart):
    port: Name
    peak_window: Name = Field(description="The shortest window.")
    peak_bytes_per_second: StreamDirections


class StreamPortTraffic(RailStatistics, _Peaks):
    """The statistics of a port."""

    left_alone: Flag = None
    effective_resolution_seconds: Amount | None = None


class StreamSampler(AnswerPart):
    """The sampler since the ring was created."""

    interval_seconds: Amount
    ticks: Count
    missed_ticks: Count
    clock_steps: Count
    lateness_p99_bound_seconds: Amount | None
    tick_duration_p99_bound_seconds: Amount | None
    read_errors: Count
    implausible_samples: Count
    skipped_seconds: Count
    heartbeat_age_seconds: Amount | None
    restarts: Count
    takeovers: Count
    quarantined_devices: Names
    scheduler: Name
    throttled_periods: Count | None


class StreamSummary(AnswerPart):
    """The event `summary`: of the node, or of a job if one was asked for."""

    end_ms: Milliseconds | None
    node: StreamTraffic | None = None
    job: StreamJob | None = None
    ports: Annotated[list[StreamPortTraffic], at_most(MAX_PORTS)]
    sampler: StreamSampler
    notices: Annotated[list[Sentence], at_most(MAX_WORDS)] = Field(default_factory=list)


class StreamGap(AnswerPart):
    """The event `gap`: a span that is not sent."""

    start_ms: Milliseconds
    end_ms: Milliseconds


class StreamDropped(AnswerPart):
    """The event `dropped`."""

    events: Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class StreamEnd(AnswerPart):
    """The event `end`."""


EVENTS: Mapping[str, type[AnswerPart]] = {
    "ports": StreamPorts,
    "batch": StreamBatch,
    "events": StreamEvents,
    "summary": StreamSummary,
    "gap": StreamGap,
    "dropped": StreamDropped,
    "end": StreamEnd,
}


def encode_npy(values: Singles) -> bytes:
    """An array of float32 in the format of NumPy."""
    head = io.BytesIO()
    values = np.ascontiguousarray(values, dtype="<f4")
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(values))
    return b"".join((head.getvalue(), values.data))
