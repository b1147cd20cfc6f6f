"""How evenly the rails of a node carry its traffic, or each job's rails the traffic of the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Floats, Rows
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.statistics import moments

Owner = TypeVar("Owner", bound=Hashable)
SLOW_SPAN_SECONDS = 10
"""The shortest time over which a rail of live traffic is judged to be slow."""
CARRYING = 0.05
"""A rail carries traffic if it moves at least this fraction of the bytes of the busiest rail."""
IDLE_BELOW, SLOW_BELOW = 0.05, 0.75
"""Limits for idle and slow rails, as fractions of the median of the other rails.

On a production fabric, the rails of one job were within 1.3 % of each other, so 0.75 is far above the noise and still
detects a link at half its rate.
"""


@dataclass(frozen=True, slots=True)
class RailRates:
    """Rates of rails over time ranges, both directions: means and means of the active samples, each (..., rails).

    As in `RailSums`, a mean is 0 while the link is down, and NaN if the rail was not observed.
    """

    mean: Floats
    active: Floats

    def chosen(self, rails: Rows) -> RailRates:
        """Those of some rails."""
        return RailRates(self.mean[..., rails], self.active[..., rails])

    def over(self, place: int) -> RailRates:
        """Those of the time range at this place of the first axis."""
        return RailRates(self.mean[place], self.active[place])


@dataclass(frozen=True, slots=True)
class RailSums:
    """Sums over time ranges: active samples (..., rails, 2, 4), all bytes (..., rails, 2), observed time (..., rails).

    `up` (rails,) is false for a rail whose link is down.
    """

    active: Floats
    moved_bytes: Floats
    observed_seconds: Floats
    up: Bools

    def mean_rates(self) -> Floats:
        """Mean rate of each rail, both directions: 0 while its link is down, NaN if it was not observed."""
        return np.where(self.up, moments.quotient(self.moved_bytes.sum(axis=-1), self.observed_seconds), 0.0)

    def active_rates(self) -> Floats:
        """Mean rate of the active samples of each rail, summed over both directions; NaN without active samples."""
        means = moments.mean(self.active)
        return np.where(np.isnan(means).all(axis=-1), np.nan, np.nansum(means, axis=-1))

    def rates(self) -> RailRates:
        """The mean rates and the rates of the active samples."""
        return RailRates(self.mean_rates(), self.active_rates())


@dataclass(frozen=True, slots=True)
class Balance:
    """Balance of the rails; arrays have one value per rail, NaN or false if it was not observed.

    `fairness` is Jain's index, NaN without traffic. `active` counts rails above the threshold. `share` is a rail's
    fraction of all bytes, `ratio` its rate ÷ the median of the other rails. A rail is never both `slow` and `idle`.
    """

    fairness: float
    active: int
    share: Floats
    ratio: Floats
    idle: Bools
    slow: Bools

    def unjudged(self) -> Balance:
        """The same without any comparison: only `active` is known."""
        unknown, no = np.full(len(self.share), np.nan), np.zeros(len(self.share), dtype=np.bool_)
        return Balance(math.nan, self.active, unknown, unknown, no, no)


def weigh_rails(
    rates_of: Callable[[int], RailRates],
    spans_seconds: Sequence[int],
    longest_seconds: int,
    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND,
) -> Balance:
    """The balance of rails with live traffic, from their rates over the last seconds.

    `rates_of` returns the rates of the last n seconds. Shares and idle rails are taken from the first of the spans with
    active rails; slow rails from that span or `SLOW_SPAN_SECONDS`, whichever is longer. Spans are limited to
    `longest_seconds`, the length of the history.
    """
    spans = [min(span, longest_seconds) for span in spans_seconds]
    span, rates = first_active_span(rates_of, spans, active_bytes_per_second)
    balance = balance_rails(rates, None, active_bytes_per_second)
    longer = rates_of(min(max(span, SLOW_SPAN_SECONDS), longest_seconds))
    slow = balance_rails(longer.mean, longer.active, active_bytes_per_second).slow
    return replace(balance, slow=slow & ~balance.idle)


def first_active_span(
    rates_of: Callable[[int], RailRates], spans_seconds: Sequence[int], active_bytes_per_second: float
) -> tuple[int, Floats]:
    """The first of the spans in which the rails were active, otherwise the last one, and their mean rates in it."""
    for span in spans_seconds:
        rates = rates_of(span).mean
        if np.nansum(rates) > active_bytes_per_second:
            break
    return span, rates


def group_rails(owners: Sequence[Owner]) -> Mapping[Owner, Rows]:
    """The positions of the rails that have the same owners, by these; `owners` has those of each rail."""
    places: dict[Owner, list[int]] = {}
    for place, owner in enumerate(owners):
        places.setdefault(owner, []).append(place)
    return {owner: np.array(group, dtype=np.intp) for owner, group in places.items()}


def join_groups(groups: Sequence[Rows], balances: Sequence[Balance]) -> Balance:
    """The balance of all rails, of which only those of the same group are compared.

    `groups` has the positions of each group's rails, which together are all from 0 on. Fairness is as in
    `join_fairness`.
    """
    if len(balances) == 1:
        return balances[0]
    order = np.argsort(np.concatenate(groups))
    indexes = np.array([each.fairness for each in balances])
    counts = np.array([np.count_nonzero(~np.isnan(each.share)) for each in balances])
    return Balance(
        fairness=float(join_fairness(indexes, counts)),
        active=sum(each.active for each in balances),
        share=np.concatenate([each.share for each in balances])[order],
        ratio=np.concatenate([each.ratio for each in balances])[order],
        idle=np.concatenate([each.idle for each in balances])[order],
        slow=np.concatenate([each.slow for each in balances])[order],
    )


def join_fairness(indexes: Floats, counts: Counts) -> Floats:
    """Fairness of all groups (...) from the index of each (..., groups) and the numbers of their rails (groups,).

    It is the harmonic mean of the indexes, weighted by rails, without the groups that have no traffic, NaN. That is
    Jain's index of the bytes of each rail ÷ the mean of its group: 1 if the rails of every group carry the same.
    """
    moving = ~np.isnan(indexes)
    weights = np.where(moving, counts, 0)
    return moments.quotient(weights.sum(axis=-1), np.where(moving, counts / indexes, 0.0).sum(axis=-1))


def measure_fairness(amounts: Floats, groups: Sequence[Rows]) -> Floats:
    """Fairness of amounts (..., rails), of which only those of the same group are compared: (...)."""
    indexes = [jain_index(amounts[..., rails]) for rails in groups]
    if len(groups) == 1:
        return indexes[0]
    return join_fairness(np.stack(indexes, axis=-1), np.array([len(rails) for rails in groups]))


def find_carriers(amounts: Floats) -> Bools:
    """The rails that carry traffic, or all if none does, like `amounts` (..., rails), which are bytes or mean rates.

    A rail that was not observed, NaN, is left out.
    """
    known = np.where(np.isnan(amounts), -np.inf, amounts)
    return np.asarray(np.isfinite(known) & (known >= CARRYING * known.max(axis=-1, initial=0.0, keepdims=True)))


def balance_rails(
    rates: Floats, active_rates: Floats | None = None, active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
) -> Balance:
    """Balance of mean rates (rails,), summed over both directions.

    Rails are only compared while the median of the others is above `active_bytes_per_second`. A rail whose link is down
    has rate 0; a rail that was not observed has NaN and is ignored. If `active_rates` (rails,), the mean rates of
    active samples, are given, they are judged as well: in a job that runs in lockstep, a slow rail carries as many
    bytes as the others but takes longer.
    """
    ratio, judged = _against_siblings(rates, active_bytes_per_second)
    idle = judged & (ratio < IDLE_BELOW)
    slow = judged & (ratio < SLOW_BELOW)
    if active_rates is not None:
        pace, paced = _against_siblings(active_rates, active_bytes_per_second)
        slow |= paced & (pace < SLOW_BELOW)
    total = float(np.nansum(rates))
    return Balance(
        fairness=float(jain_index(rates)),
        active=int(np.count_nonzero(rates > active_bytes_per_second)),
        share=rates / total if total > 0 else np.full(len(rates), np.nan),
        ratio=ratio,
        idle=idle,
        slow=slow & ~idle,
    )


def jain_index(amounts: Floats) -> Floats:
    """(sum x)² ÷ (n sum x²) over the known amounts (..., rails): 1 if all are equal, k/n if k of n are equal and the
    rest are 0; (...).

    NaN if no amount is known or all are 0. Law: invariant under scaling and reordering. Source: Jain, Chiu and Hawe,
    1984.
    """
    known = ~np.isnan(amounts)
    values = np.where(known, amounts, 0.0)
    part = moments.quotient(values, values.max(axis=-1, initial=0.0, keepdims=True))
    return moments.quotient(part.sum(axis=-1) ** 2, known.sum(axis=-1) * np.square(part).sum(axis=-1))


@lru_cache(8)
def _others(count: int) -> Rows:
    """In row i, the places of all rails except i: (count, count - 1)."""
    return np.asarray((np.arange(count)[:, None] + np.arange(1, count)) % count)


def _against_siblings(rates: Floats, active: float) -> tuple[Floats, Bools]:
    """Rate of each rail ÷ the median of the other known rails, and whether that median is active."""
    ratio, judged = np.full(len(rates), np.nan), np.zeros(len(rates), dtype=np.bool_)
    known = np.flatnonzero(~np.isnan(rates))
    count = len(known)
    if count < 2:
        return ratio, judged
    # row i holds the rates of all rails except i
    others = np.sort(rates[known][_others(count)], axis=1)
    middle = (others[:, (count - 2) // 2] + others[:, (count - 1) // 2]) / 2
    judged[known] = middle > active
    alive = middle > 0
    ratio[known[alive]] = rates[known[alive]] / middle[alive]
    return ratio, judged
