"""How evenly the rails of a node carry its traffic. Pure numpy; no clock, no file, no names of ports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibpulse.arrays import Bools, Floats


@dataclass(frozen=True, slots=True)
class BalanceOptions:
    """What counts as idle and as slow, as parts of the median of a rail's siblings.

    Nothing is judged while that median is not above `active_bytes_per_second`: silence is even. Rails of one job were
    within 1.3 % of each other on a production fabric, so 0.75 is far from noise and still sees half a link.
    """

    active_bytes_per_second: float = 0.1e9
    idle_below: float = 0.05
    slow_below: float = 0.75


@dataclass(frozen=True, slots=True)
class Balance:
    """Evenness of the rails; arrays are one per rail, NaN or false for a rail that was not observed.

    `fairness` is the Jain index, NaN without traffic. `active` counts rails above the threshold. `share` is a rail's
    part of all bytes; `ratio` its rate ÷ the median of its siblings. `slow` does not include `idle`.
    """

    fairness: float
    active: int
    share: Floats
    ratio: Floats
    idle: Bools
    slow: Bools


def balance_rails(rates: Floats, active_rates: Floats | None = None, options: BalanceOptions | None = None) -> Balance:
    """Balance of mean rates (rails,) over some seconds, both directions together.

    A rail that should carry traffic and cannot (its link is down) has rate 0; NaN is for one that was not observed,
    and is left out. `active_rates` (rails,), mean rates of the active samples alone, are judged as well if given: in
    a job that moves in lockstep a slow rail carries as much as its siblings and only takes longer.
    """
    chosen = options or BalanceOptions()
    ratio, judged = _against_siblings(rates, chosen.active_bytes_per_second)
    idle = judged & (ratio < chosen.idle_below)
    slow = judged & (ratio < chosen.slow_below)
    if active_rates is not None:
        pace, paced = _against_siblings(active_rates, chosen.active_bytes_per_second)
        slow |= paced & (pace < chosen.slow_below)
    total = float(np.nansum(rates))
    return Balance(
        fairness=jain_index(rates),
        active=int(np.count_nonzero(rates > chosen.active_bytes_per_second)),
        share=rates / total if total > 0 else np.full(len(rates), np.nan),
        ratio=ratio,
        idle=idle,
        slow=slow & ~idle,
    )


def jain_index(amounts: Floats) -> float:
    """(sum x)² ÷ (n sum x²) over the known amounts: 1 when all are equal, k/n when k of n are and the rest are 0.

    NaN when there is none, or all are 0. Law: neither scaling nor order changes it. Source: Jain, Chiu and Hawe, 1984.
    """
    known = amounts[~np.isnan(amounts)]
    peak = float(known.max(initial=0.0))
    if peak <= 0:
        return float("nan")
    part = known / peak
    return float(part.sum() ** 2 / (len(part) * np.square(part).sum()))


def _against_siblings(rates: Floats, active: float) -> tuple[Floats, Bools]:
    """Rate of each rail ÷ the median of the other known rails, and whether that median is active."""
    ratio, judged = np.full(len(rates), np.nan), np.zeros(len(rates), dtype=np.bool_)
    known = np.flatnonzero(~np.isnan(rates))
    count = len(known)
    if count < 2:
        return ratio, judged
    # row by row, the places of all others
    others = (np.arange(count)[:, None] + np.arange(1, count)) % count
    middle = np.median(rates[known][others], axis=1)
    judged[known] = middle > active
    alive = middle > 0
    ratio[known[alive]] = rates[known[alive]] / middle[alive]
    return ratio, judged
