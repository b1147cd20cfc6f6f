"""How evenly the rails carry the traffic of the last seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.port_totals import PortTable
from ibpulse.aggregator.snapshot import RailStanding
from ibpulse.analysis.balance import BalanceOptions, RailSums, line_of_carriers, weigh_rails
from ibpulse.analysis.port_statistics import MOVED, OBSERVED
from ibpulse.arrays import Rows
from ibpulse.ring.window import RingPort


@dataclass(frozen=True, slots=True)
class RailBalance:
    """The balance of the rails, each by the name of its port; None where nothing flowed."""

    fairness: float | None
    active: int
    rails: Mapping[str, RailStanding]


def weigh_ports(ports: Sequence[RingPort], rows: Rows, table: PortTable, options: AggregatorOptions) -> RailBalance:
    """The balance over the first of the spans in which rails were active."""
    chosen = [index for index, port in enumerate(ports) if port.port.rail]
    up = np.array([ports[index].port.active for index in chosen], dtype=np.bool_)

    def sums_of(seconds: int) -> RailSums:
        sums = table.sums.sum(seconds)[rows[chosen]]
        return RailSums(sums, sums[..., MOVED], sums[:, 0, OBSERVED], up)

    judge = BalanceOptions(active_bytes_per_second=options.active_bytes_per_second)
    balance = weigh_rails(sums_of, options.balance_spans_seconds, table.sums.length, judge)
    standings = {
        str(ports[index].port.id): RailStanding(_known(share), bool(idle), bool(slow))
        for index, share, idle, slow in zip(chosen, balance.share.tolist(), balance.idle, balance.slow, strict=True)
    }
    return RailBalance(_known(balance.fairness), balance.active, standings)


def carriers_line(ports: Sequence[RingPort], rows: Rows, table: PortTable, seconds: int) -> float:
    """Line rate, both directions, of the ACTIVE rails that carry traffic, of all where none does; NaN if not known."""
    chosen = [index for index, port in enumerate(ports) if port.port.rail]
    moved = table.sums.sum(seconds)[rows[chosen]][..., MOVED].sum(axis=-1)
    return line_of_carriers(moved, np.array([ports[index].port.rate_bytes_per_second or math.nan for index in chosen]))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
