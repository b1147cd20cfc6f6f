"""`/api/v1/summary`: all statistics of one span of whole seconds. docs/traffic.md defines each of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.answers.jobs import JobPortsAnswer
from ibpulse.answers.members import MAX_PORTS, Amount, AnswerPart, Count, Few, Name, Score, at_most


class RunSummary(AnswerPart):
    """Bursts or gaps that ended within the window: the number of known length, and their means."""

    count: Count
    mean_seconds: Amount | None
    mean_bytes: Amount | None


class NodeSummary(AnswerPart):
    """The sum over the rails."""

    rails: Count
    active_rails: Count
    line_rate_bytes_per_second: Amount | None
    observed_seconds: Amount
    transmit_bytes_per_second: Amount | None
    receive_bytes_per_second: Amount | None
    bandwidth_peak_bytes_per_second: Amount | None
    bandwidth_active_mean_bytes_per_second: Amount | None
    bandwidth_peak_utilization_ratio: Amount | None
    peak_to_mean_ratio: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Annotated[dict[Name, Amount | None], Few]
    bursts: RunSummary
    gaps: RunSummary
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    step_period_score: Score
    workload_signature: Name
    workload_signature_confidence: Amount


class DirectionSummary(AnswerPart):
    """One direction of a port."""

    mean_bytes_per_second: Amount | None
    peak_bytes_per_second: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Amount | None


class PortSummary(AnswerPart):
    """One port; the rail values are null for a port that is not a rail."""

    port: Name
    state: Name = Field(description="Last state of its link in the window, as the kernel names it, or disappeared.")
    rail: bool
    observed_seconds: Amount
    transmit: DirectionSummary
    receive: DirectionSummary
    bursts: Count
    burst_seconds: Amount
    rail_share_ratio: Amount | None
    rail_idle: bool | None
    rail_slow: bool | None


class Summary(AnswerPart):
    """A window from `start_ms` to `end_ms`, in milliseconds since the epoch; null means unknown."""

    window_seconds: Count
    start_ms: Count
    end_ms: Count
    node: NodeSummary
    ports: Annotated[list[PortSummary], at_most(MAX_PORTS)]


class SummaryAnswer(Summary):
    """A summary; `job` is only there if the query names one: all statistics are then of the ports that it had."""

    job: JobPortsAnswer | None = None
