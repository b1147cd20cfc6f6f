"""The statistics of a node and of its ports, as in snapshot, stream and `/api/v1/summary`.

docs/traffic.md defines each of them. In JSON, the members of the last base of a class come first.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.core.answers.jobs import JobPortsAnswer
from ibpulse.core.answers.members import MAX_PORTS, Amount, AnswerPart, Count, Few, Milliseconds, Name, Score, at_most


class NodeRails(AnswerPart):
    """The rails of a node, and their line rates in both directions."""

    rails: Count = Field(description="Ports that are rails, ACTIVE or not.")
    active_rails: Count = Field(description="Rails that carry traffic.")
    line_rate_bytes_per_second: Amount | None = Field(description="Whether the rails are active, idle or down.")


class NodeStatistics(AnswerPart):
    """The sum over the rails in a span. The means are those of all bytes, the others those of complete samples."""

    transmit_bytes_per_second: Amount | None
    receive_bytes_per_second: Amount | None
    bandwidth_peak_bytes_per_second: Amount | None
    bandwidth_active_mean_bytes_per_second: Amount | None
    bandwidth_peak_utilization_ratio: Amount | None
    peak_to_mean_ratio: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Annotated[dict[Name, Amount | None], Few] = Field(
        description="By time scale; null for one that the counters do not resolve."
    )


class NodeWindow(NodeStatistics):
    """The sum over the rails in a rolling window."""

    observed_ratio: Amount = Field(description="Share of the window with a sample of all rails.")


class NodeConclusions(AnswerPart):
    """What is concluded about the traffic of a node."""

    rail_fairness_ratio: Amount | None = Field(description="Null without traffic.")
    step_period_seconds: Amount | None = Field(description="Null if no period was found.")
    step_period_score: Score | None = Field(description="Null before the first search for a period.")
    workload_signature: Name
    workload_signature_confidence: Amount


class DirectionStatistics(AnswerPart):
    """One direction of a port in a span."""

    mean_bytes_per_second: Amount | None
    peak_bytes_per_second: Amount | None
    duty_cycle_ratio: Amount | None
    burstiness_cv: Amount | None


class RailStatistics(AnswerPart):
    """A rail compared with the other rails of its job, or of those without a job; null for a port that is no rail."""

    rail_share_ratio: Amount | None = Field(description="Null without traffic, too.")
    rail_idle: bool | None
    rail_slow: bool | None


NO_RAIL = RailStatistics(rail_share_ratio=None, rail_idle=None, rail_slow=None)


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
