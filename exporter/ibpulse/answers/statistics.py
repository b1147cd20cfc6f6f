"""The statistics of a node and of its ports, which the aggregator fills for snapshot, summary and stream.

docs/traffic.md defines each of them. In JSON, the members of the last base of a class come first.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ibpulse.answers.members import Amount, AnswerPart, Count, Few, Name, Score


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
