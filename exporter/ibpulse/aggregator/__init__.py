"""Samples of the ring to totals and rolling values, once a second.

The modules build on each other in this order:

1. `options`: what the settings say. `snapshot`: the finished numbers. `rolling`: the last seconds of an array.
2. `port_totals`, `node_totals`, `burst_totals`: what seconds of rates add up to, per port, for the sum over the rails,
   and as bursts and saturation. `port_totals` also counts the error counters.
3. `traffic`: rail balance, saturation and signature, concluded from all of these.
4. `totals`: reads seconds of the ring and adds them to 2 and 3.
5. `last_minute`: step period and effective resolution, measured every few seconds on the ring itself.
6. `snapshot_ports`: the ports of a snapshot, filled from the totals. `summary`: the totals of one window asked for.
7. `aggregator`: which seconds are due, and a snapshot of them.
"""

from ibpulse.aggregator.aggregator import Aggregator
from ibpulse.aggregator.last_minute import Resolutions
from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.snapshot import RailStanding, Snapshot
from ibpulse.aggregator.snapshot_ports import read_sampler
from ibpulse.aggregator.summary import NodeSummary, Summary, summarize

__all__ = [
    "Aggregator",
    "AggregatorOptions",
    "NodeSummary",
    "RailStanding",
    "Resolutions",
    "Snapshot",
    "Summary",
    "read_sampler",
    "summarize",
]
