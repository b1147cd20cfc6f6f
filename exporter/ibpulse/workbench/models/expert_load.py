"""How much longer an exchange of tokens takes because it ends with its most loaded rank.

The penalty is the expected maximum over the mean of n loads. For loads that are nearly normal it follows from Blom's
approximation of the largest order statistic (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
Popular experts are not normal: a lognormal popularity with a CV of 1 over 64 ranks has a maximum of 5.3 means where
the normal form gives 3.3. Use measured loads for those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def largest_of(count: int) -> float:
    """Expected maximum of `count` independent standard normal values: Phi^-1((n - 0.375) / (n + 0.25)).

    Raises:
        ValueError: fewer than two values.
    """
    from statistics import NormalDist  # slow to import, and rarely needed

    if count < 2:
        raise ValueError(f"{count} loads have no expected maximum; give 2 or more")
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def penalty(count: int, cv: float) -> float:
    """Expected maximum over mean of `count` loads with this coefficient of variation: 1 + z_n c."""
    return 1 + largest_of(count) * cv


def chance_cv(ranks: int, copies: float) -> float:
    """CV of the load of a rank if `copies` tokens are spread uniformly by chance: sqrt((1 - 1/n) / (copies/n))."""
    return math.sqrt((1 - 1 / ranks) / (copies / ranks))


def measured_penalty(loads: Sequence[float]) -> float:
    """Maximum over mean of measured loads, one per rank.

    Raises:
        ValueError: no loads, a load that is negative or not finite, or only zeros.
    """
    if not loads or not all(math.isfinite(load) and load >= 0 for load in loads) or not sum(loads):
        raise ValueError("loads are numbers of 0 or more, and at least one is more than 0")
    return max(loads) * len(loads) / math.fsum(loads)


def rank_loads(expert_loads: Sequence[float], ranks: int) -> list[float]:
    """Loads of ranks that hold equally many consecutive experts each.

    Raises:
        ValueError: experts do not divide by ranks.
    """
    if not expert_loads or len(expert_loads) % ranks:
        raise ValueError(f"{len(expert_loads)} loads do not divide by {ranks} ranks; give one per expert")
    held = len(expert_loads) // ranks
    return [math.fsum(expert_loads[at : at + held]) for at in range(0, len(expert_loads), held)]


def jain_index(cv: float) -> float:
    """Jain's fairness index of loads with this CV: 1 / (1 + CV^2)."""
    return 1 / (1 + cv * cv)
