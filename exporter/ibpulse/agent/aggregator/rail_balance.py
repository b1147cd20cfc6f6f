"""Compares the rails of the node with those that carry the traffic of the same jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.agent.aggregator.options import AggregatorOptions
from ibpulse.agent.aggregator.port_totals import PortTable
from ibpulse.agent.jobs.owners import find_owners
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.arrays import Rows
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.balance import (
    Balance,
    BalanceOptions,
    RailRates,
    RailSums,
    first_active_span,
    group_rails,
    jain_index,
    join_groups,
    weigh_rails,
)
from ibpulse.core.statistics.moments import or_none
from ibpulse.core.statistics.port_statistics import COVERED, MOVED

NOBODY: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class RailBalance:
    """The balance of the rails, by port name; `fairness` is None without traffic."""

    fairness: float | None
    active: int
    rails: Mapping[str, RailStatistics]


@dataclass(frozen=True, slots=True)
class Group:
    """Rails with the same jobs: their positions, and the seconds since they have had the same ones."""

    rails: Rows
    seconds: float = math.inf


class Siblings:
    """Which rails are compared with each other: those with the same jobs, and those without any.

    Rails that come from different jobs are compared by the time since then, because what they carried before says
    nothing about either.
    """

    def __init__(self) -> None:
        self._jobs: Sequence[PlacedJob] = ()
        self._rails: Sequence[PortId] | None = None
        self._owners: dict[PortId, frozenset[Key]] = {}
        # by owners: the positions of their rails, and the second since which they have had them
        self._groups: dict[frozenset[Key], tuple[Rows, float]] = {}

    def follow(self, jobs: Sequence[PlacedJob]) -> None:
        """Group the rails by these jobs from the next second on."""
        if jobs is not self._jobs:
            self._jobs, self._rails = jobs, None

    def group(self, rails: Sequence[PortId], second: int) -> list[Group]:
        """The groups of all rails of the node, one at least, after a second."""
        if rails != self._rails:
            self._regroup(rails, second)
            self._rails = rails
        found = [Group(places, second - since) for places, since in self._groups.values()]
        return found or [Group(np.zeros(0, dtype=np.intp))]

    def _regroup(self, rails: Sequence[PortId], second: int) -> None:
        owned = find_owners(self._jobs)
        owners = {rail: owned.get(rail, NOBODY) for rail in rails}
        groups = {}
        for owner, group in group_rails([owners[rail] for rail in rails]).items():
            before = {self._owners[rails[place]] for place in group if rails[place] in self._owners}
            since = second if len(before) > 1 else self._groups[before.pop()][1] if before else -math.inf
            groups[owner] = group, since
        self._owners, self._groups = owners, groups


class RecentRates:
    """The rates of the node's ports over spans that end with each of the last `count` seconds.

    Each span is computed once for all these seconds, the node and all jobs.
    """

    def __init__(self, ports: Sequence[RingPort], rows: Rows, table: PortTable, count: int = 1) -> None:
        self.longest_seconds = table.sums.length
        self._rows, self._sums, self._count = rows, table.sums, count
        self._up = np.array([port.port.active for port in ports], dtype=np.bool_)
        self._found: dict[int, RailRates] = {}

    def of_rails(self, rails: Rows, ago: int = 0) -> Callable[[int], RailRates]:
        """The rates of some of the ports over the last n seconds, up to `ago` seconds before the newest."""
        return lambda seconds: self._of_all(seconds).over(self._count - 1 - ago).chosen(rails)

    def _of_all(self, seconds: int) -> RailRates:
        if seconds not in self._found:
            sums = self._sums.sums(seconds, self._count)[:, self._rows]
            self._found[seconds] = RailSums(sums, sums[..., MOVED], sums[..., 0, COVERED], self._up).rates()
        return self._found[seconds]


def weigh_ports(
    ports: Sequence[RingPort],
    rates: RecentRates,
    options: AggregatorOptions,
    siblings: Siblings,
    second: int,
    ago: int,
) -> RailBalance:
    """The balance of the rails after a second, each group over the first of the spans in which its rails were active.

    It is `ago` seconds before the newest second of the rates.
    """
    chosen = np.array([index for index, port in enumerate(ports) if port.port.rail], dtype=np.intp)
    names = [ports[index].port.id for index in chosen]
    limits = BalanceOptions(active_bytes_per_second=options.active_bytes_per_second)
    spans, longest = options.balance_spans_seconds, rates.longest_seconds
    groups = siblings.group(names, second)

    def weigh(group: Group) -> Balance:
        rates_of = rates.of_rails(chosen[group.rails], ago)
        fitting = tuple(span for span in spans if span <= group.seconds)
        if not fitting:
            return weigh_rails(rates_of, spans[:1], longest, limits).unjudged()
        return weigh_rails(rates_of, fitting, int(min(longest, group.seconds)), limits)

    balance = join_groups([group.rails for group in groups], [weigh(group) for group in groups])
    standings = {
        str(name): RailStatistics.model_construct(
            rail_share_ratio=or_none(share), rail_idle=bool(idle), rail_slow=bool(slow)
        )
        for name, share, idle, slow in zip(names, balance.share.tolist(), balance.idle, balance.slow, strict=True)
    }
    return RailBalance(or_none(balance.fairness), balance.active, standings)


def find_fairness(rates: RecentRates, rails: Rows, spans: Sequence[int], active: float) -> float | None:
    """Fairness of rails in the first of the spans in which they were active; None without traffic.

    `active` is the threshold in bytes per second.
    """
    spans = [min(span, rates.longest_seconds) for span in spans]
    _, found = first_active_span(rates.of_rails(rails), spans, active)
    return or_none(float(jain_index(found)))
