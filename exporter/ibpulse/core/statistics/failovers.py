"""Finds what looks like a failover between rails of a node: one falls silent, another carries twice as much.

NCCL can move the traffic of a dead port to another one. The bytes of a step stay the same then, and nothing hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.statistics.steps.runs import find_equal_runs

FEWEST_RAILS, FEWEST_SECONDS = 3, 3
# compared with the usual share of each rail
SILENT_BELOW, DOUBLED, USUAL = 0.05, (1.6, 2.4), (0.7, 1.3)
# seconds with less of the usual traffic say nothing about shares
LEAST_TRAFFIC = 0.1


@dataclass(frozen=True, slots=True)
class Failover:
    """In seconds `first` to before `end` of a node, `silent` carried nothing and `doubled` about twice its share.

    `lasting` is false if the traffic came back. `bytes_ratio` is the rate of the node during it over that of its other
    seconds, NaN if there are none.
    """

    silent: str
    doubled: str
    first: int
    end: int
    lasting: bool
    bytes_ratio: float


def find_failovers(rails: Sequence[str], moved: Floats) -> list[Failover]:
    """What looks like failovers in the bytes (seconds, rails) of a node, both directions, NaN where unknown."""
    if len(rails) < FEWEST_RAILS or not len(moved):
        return []
    totals = moved.sum(axis=1)
    known = ~np.isnan(totals)
    if not known.any():
        return []
    known &= totals > LEAST_TRAFFIC * np.median(totals[known])
    seconds = np.flatnonzero(known)
    shares = moved[seconds] / totals[seconds, np.newaxis]
    equal = np.full(len(rails), 1 / len(rails))
    for usual in (_usual_shares(shares), equal):
        pairs = _classify(shares / usual)
        found = [
            _describe(rails, divmod(pairs[first], len(rails)), seconds[[first, end - 1]].tolist(), seconds, totals)
            for first, end in zip(*find_equal_runs(pairs), strict=True)
            if pairs[first] >= 0 and end - first >= FEWEST_SECONDS
        ]
        if found:
            return found
    return []


def _usual_shares(shares: Floats) -> Floats:
    carrying = np.where(shares > SILENT_BELOW / shares.shape[1], shares, np.nan)
    some = ~np.isnan(carrying).all(axis=0)
    usual = np.full(shares.shape[1], 1 / shares.shape[1])
    if some.any():
        usual[some] = np.nanmedian(carrying[:, some], axis=0)
    return usual


def _classify(ratios: Floats) -> Counts:
    """For each second the silent rail x number of rails + the doubled rail, -1 if it is not exactly one of each."""
    silent, doubled = ratios < SILENT_BELOW, _within(ratios, DOUBLED)
    rest = (silent | doubled | _within(ratios, USUAL)).all(axis=1)
    like = (silent.sum(axis=1) == 1) & (doubled.sum(axis=1) == 1) & rest
    return np.where(like, silent.argmax(axis=1) * ratios.shape[1] + doubled.argmax(axis=1), -1)


def _within(ratios: Floats, bounds: tuple[float, float]) -> Bools:
    return np.asarray((ratios >= bounds[0]) & (ratios <= bounds[1]))


def _describe(
    rails: Sequence[str], pair: tuple[int, int], span: Sequence[int], seconds: Counts, totals: Floats
) -> Failover:
    first, last = span
    during = (seconds >= first) & (seconds <= last)
    others = totals[seconds[~during]]
    ratio = float(totals[seconds[during]].mean() / others.mean()) if len(others) else float("nan")
    lasting = bool(last == seconds[-1])
    return Failover(rails[pair[0]], rails[pair[1]], first, last + 1, lasting, ratio)
