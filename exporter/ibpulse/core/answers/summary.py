"""`/api/v1/summary`: all statistics of one span of whole seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import MAX_PORTS, Amount, AnswerPart, Count, Milliseconds, Name, Score, at_most
from ibpulse.core.answers.statistics import (
    DirectionStatistics,
    NodeConclusions,
    NodeRails,
    NodeStatistics,
    RailStatistics,
)


class RunSummary(AnswerPart):
    """Bursts or gaps that ended within the window: the number of known length, and their means."""

    count: Count
    mean_seconds: Amount | None
    mean_bytes: Amount | None


class _Observed(AnswerPart):
    observed_seconds: Amount


class _Runs(AnswerPart):
    bursts: RunSummary
    gaps: RunSummary


class NodeSummary(NodeConclusions, _Runs, NodeStatistics, _Observed, NodeRails):
    """The sum over the rails; each summary searches for a period."""

    step_period_score: Score


class _Port(AnswerPart):
    port: Name
    state: Name = Field(description="Last state of its link in the window, as the kernel names it, or disappeared.")
    rail: bool
    observed_seconds: Amount
    transmit: DirectionStatistics
    receive: DirectionStatistics
    bursts: Count
    burst_seconds: Amount


class PortSummary(RailStatistics, _Port):
    """One port."""


class Summary(AnswerPart):
    """A window from `start_ms` to `end_ms`, in milliseconds since the epoch; null means unknown."""

    window_seconds: Count
    start_ms: Milliseconds
    end_ms: Milliseconds
    node: NodeSummary
    ports: Annotated[list[PortSummary], at_most(MAX_PORTS)]


class SummaryAnswer(Summary):
    """A summary; `job` is only there if the query names one: all statistics are then of the ports that it had."""

    job: JobPortsAnswer | None = None
