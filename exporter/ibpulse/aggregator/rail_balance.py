"""How evenly the rails carry the traffic of the last seconds. It must not keep anything between two calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.port_totals import MOVED, OBSERVED, PortTable
from ibpulse.aggregator.seconds import RingPort
from ibpulse.aggregator.snapshot import RailStanding
from ibpulse.analysis import moments
from ibpulse.analysis.balance import BalanceOptions, balance_rails
from ibpulse.arrays import Floats, Rows

SLOW_SPAN_SECONDS = 10
# of the fullest rail
CARRYING = 0.05


@dataclass(frozen=True, slots=True)
class RailBalance:
    """The balance of the rails, each by the name of its port; None where nothing flowed."""

    fairness: float | None
    active: int
    rails: Mapping[str, RailStanding]


def weigh_rails(ports: Sequence[RingPort], rows: Rows, table: PortTable, options: AggregatorOptions) -> RailBalance:
    """The balance over the first of the spans in which rails were active."""
    chosen = [index for index, port in enumerate(ports) if port.port.rail]
    up = np.array([ports[index].port.active for index in chosen], dtype=np.bool_)
    mine = rows[chosen]
    threshold = options.active_bytes_per_second
    judge = BalanceOptions(active_bytes_per_second=threshold)
    longest = table.sums.length
    for span in options.balance_spans_seconds:
        rates = _mean_rates(table, mine, up, min(span, longest))
        if np.nansum(rates) > threshold:
            break
    balance = balance_rails(rates, None, judge)
    longer = min(max(span, SLOW_SPAN_SECONDS), longest)
    slow = balance_rails(_mean_rates(table, mine, up, longer), _active_rates(table, mine, longer), judge).slow
    standings = {
        str(ports[index].port.id): RailStanding(_known(share), bool(idle), bool(late and not idle))
        for index, share, idle, late in zip(chosen, balance.share.tolist(), balance.idle, slow, strict=True)
    }
    return RailBalance(_known(balance.fairness), balance.active, standings)


def line_of_carriers(ports: Sequence[RingPort], rows: Rows, table: PortTable, seconds: int) -> float:
    """Line rate, both directions, of the ACTIVE rails that carry traffic, of all where none does; NaN if not known."""
    chosen = [index for index, port in enumerate(ports) if port.port.rail and port.port.rate_bytes_per_second]
    if not chosen:
        return float("nan")
    moved = table.sums.sum(seconds)[rows[chosen]][..., MOVED].sum(axis=-1)
    lines = np.array([ports[index].port.rate_bytes_per_second for index in chosen], dtype=np.float64)
    return 2 * float(lines[moved >= CARRYING * moved.max()].sum())


def _mean_rates(table: PortTable, rows: Rows, up: npt.NDArray[np.bool_], seconds: int) -> Floats:
    """Bandwidth of each rail: 0 while it is down, NaN where it was not observed."""
    sums = table.sums.sum(seconds)[rows]
    return np.where(up, moments.quotient(sums[..., MOVED].sum(axis=-1), sums[:, 0, OBSERVED]), 0.0)


def _active_rates(table: PortTable, rows: Rows, seconds: int) -> Floats:
    """Mean of the active samples of each rail, the directions added up; NaN without any."""
    means = moments.mean(table.sums.sum(seconds)[rows])
    return np.where(np.isnan(means).all(axis=-1), np.nan, np.nansum(means, axis=-1))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
