"""What the rules of the flight recorder see of one second."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ibpulse.agent.aggregator.port_totals import PortTable
from ibpulse.agent.aggregator.snapshot import CARRYING, DOWN, IDLE, QUIET, Observation
from ibpulse.agent.aggregator.traffic import Conclusion
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.arrays import Rows
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.port_statistics import COVERED, MOVED
from ibpulse.core.statistics.steps.period import StepPeriod

# a rate counts if one rail at least was observed for this part of the second
MIN_OBSERVED = 0.5


def observe_second(
    reader: RingReader,
    end_tick: int,
    ports: Sequence[RingPort],
    rows: Rows,
    table: PortTable,
    concluded: Conclusion,
    step: StepPeriod | None,
    ago: int,
) -> Observation:
    """The second that ended `ago` seconds before the newest one of the table, at this tick."""
    rails = [index for index, port in enumerate(ports) if port.port.rail]
    return Observation(
        end_tick=end_tick,
        end_wall_ns=int(reader.wall_ns(np.array([end_tick]))[0]),
        rate_bytes_per_second=_rate(table, rows[rails], ago),
        step_seconds=None if step is None or math.isnan(step.seconds) else step.seconds,
        signature=concluded.signature,
        moe_saturated=concluded.moe_saturated,
        rails={
            str(ports[index].port.id): _state(ports[index], concluded.rails.get(str(ports[index].port.id)))
            for index in rails
        },
    )


def _rate(table: PortTable, rails: Rows, ago: int) -> float | None:
    """The sum of the mean rates of the rails, each over the time for which its bytes are known."""
    sums = table.sums.sum(1, ago)[rails]
    covered = sums[:, 0, COVERED]
    if covered.max(initial=0.0) < MIN_OBSERVED:
        return None
    return float(np.nansum(moments.quotient(sums[..., MOVED].sum(axis=-1), covered)))


def _state(port: RingPort, standing: RailStatistics | None) -> str:
    if not port.port.active:
        return DOWN
    if standing is None or standing.rail_share_ratio is None:
        return QUIET
    return IDLE if standing.rail_idle else CARRYING
