"""The summary of a daemon, checked like the answers of `ibpulse.answers`."""

from __future__ import annotations

from typing import Annotated

from ibpulse.answers.jobs import JobPortsAnswer
from ibpulse.answers.members import (
    MAX_PORTS,
    Amount,
    AnswerPart,
    Count,
    Few,
    Name,
    Score,
    at_most,
)


class NodeRuns(AnswerPart):
    """Bursts or gaps of a summary."""

    count: Count
    mean_seconds: Amount | None
    mean_bytes: Amount | None


class NodeRailTraffic(AnswerPart):
    """The sum over the rails in a summary."""

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
    bursts: NodeRuns
    gaps: NodeRuns
    rail_fairness_ratio: Amount | None
    step_period_seconds: Amount | None
    step_period_score: Score
    workload_signature: Name
    workload_signature_confidence: Amount


class NodeDirectionTraffic(AnswerPart):
    """One direction of a port in a summary."""

    mean_bytes_per_second: Amount | None
    peak_bytes_per_second: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Amount | None


class NodePortTraffic(AnswerPart):
    """One port in a summary."""

    port: Name
    state: Name
    rail: bool
    observed_seconds: Amount
    transmit: NodeDirectionTraffic
    receive: NodeDirectionTraffic
    bursts: Count
    burst_seconds: Amount
    rail_share_ratio: Amount | None
    rail_idle: bool | None
    rail_slow: bool | None


class NodeSpanSummary(AnswerPart):
    """`/api/v1/summary`."""

    window_seconds: Count
    start_ms: Count
    end_ms: Count
    node: NodeRailTraffic
    ports: Annotated[list[NodePortTraffic], at_most(MAX_PORTS)]
    job: JobPortsAnswer | None = None
