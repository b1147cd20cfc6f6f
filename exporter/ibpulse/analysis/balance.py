"""How evenly the rails of a node carry its traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.analysis import moments
from ibpulse.arrays import Bools, Floats
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class BalanceOptions:
    """What counts as idle and as slow, as parts of the median of a rail's siblings.

    Nothing is judged while that median is not above `active_bytes_per_second`: silence is even. Rails of one job were
    within 1.3 % of each other on a production fabric, so 0.75 is far from noise and still sees half a link.
    """

    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    idle_below: float = 0.05
    slow_below: float = 0.75


SLOW_SPAN_SECONDS = 10
"""The shortest span over which a rail is called slow while the traffic runs on."""

CARRYING = 0.05
"""A rail carries traffic when it moves at least this part of what the fullest rail moves."""


@dataclass(frozen=True, slots=True)
class RailSums:
    """Sums over a span: of the active samples (rails, 2, 4), of all bytes (rails, 2), and the time observed (rails,).

    `up` (rails,) is false for a rail that should carry traffic and whose link is down.
    """

    active: Floats
    moved_bytes: Floats
    observed_seconds: Floats
    up: Bools

    def mean_rates(self) -> Floats:
        """Mean rate of each rail, both directions: 0 while its link is down, NaN where it was not observed."""
        return np.where(self.up, moments.quotient(self.moved_bytes.sum(axis=-1), self.observed_seconds), 0.0)

    def active_rates(self) -> Floats:
        """Mean rate of the active samples of each rail, the directions added up; NaN without any."""
        means = moments.mean(self.active)
        return np.where(np.isnan(means).all(axis=-1), np.nan, np.nansum(means, axis=-1))


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


def weigh_rails(
    sums_of: Callable[[int], RailSums], spans_seconds: Sequence[int], longest_seconds: int, options: BalanceOptions
) -> Balance:
    """The balance of rails whose traffic runs on, from their sums over the last seconds.

    The shares and the idle rails are those of the first of the spans in which rails were active. A rail is called slow
    over `SLOW_SPAN_SECONDS` at least. No span is longer than the seconds that are kept.
    """
    for span in spans_seconds:
        rates = sums_of(min(span, longest_seconds)).mean_rates()
        if np.nansum(rates) > options.active_bytes_per_second:
            break
    balance = balance_rails(rates, None, options)
    longer = sums_of(min(max(span, SLOW_SPAN_SECONDS), longest_seconds))
    slow = balance_rails(longer.mean_rates(), longer.active_rates(), options).slow
    return replace(balance, slow=slow & ~balance.idle)


def line_of_carriers(amounts: Floats, line_rates: Floats, directions: int = 2) -> float:
    """Line rate of the rails that carry traffic, of all where none does, over so many directions; NaN if not known.

    `amounts` (rails,) are bytes or mean rates, `line_rates` (rails,) those of one direction; NaN leaves a rail out.
    """
    known = ~np.isnan(amounts) & ~np.isnan(line_rates)
    if not known.any():
        return float("nan")
    carrying = amounts[known] >= CARRYING * amounts[known].max()
    return directions * float(line_rates[known][carrying].sum())


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
