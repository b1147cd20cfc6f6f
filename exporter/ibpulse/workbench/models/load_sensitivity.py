"""What uneven expert loads cost: the penalty of chance, that of measured loads, and the seconds that they may add."""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.workbench.models.expert_load import chance_cv, measured_penalty, penalty, rank_loads
from ibpulse.workbench.models.prediction import Prediction, ValueRange


@dataclass(frozen=True, slots=True)
class LoadSensitivity:
    """Maximum over mean of the loads of expert ranks, by chance and as measured, and seconds per step at stake.

    `seconds` begins at 0, because an exchange that is hidden behind compute costs nothing.
    """

    ranks: int
    chance: float
    measured: float | None
    seconds: ValueRange


def load_sensitivity(found: Prediction, loads: tuple[float, ...]) -> LoadSensitivity | None:
    """The cost of uneven loads of a job with expert parallelism: (penalty - 1) x the time of its exchanges.

    Raises:
        ValueError: the loads do not divide by the ranks, or are all 0.
    """
    job = found.job
    if job.ep == 1:
        return None
    copies = job.tokens_per_gpu * job.ep * job.model.chosen_experts
    chance = penalty(job.ep, chance_cv(job.ep, copies))
    measured = measured_penalty(rank_loads(loads, job.ep)) if loads else None
    exchange = sum(
        max(row.wire_seconds.high, row.nvlink_seconds.high) for row in found.sources if row.source == "experts"
    )
    return LoadSensitivity(job.ep, chance, measured, ValueRange(0.0, (max(chance, measured or 0.0) - 1) * exchange))
