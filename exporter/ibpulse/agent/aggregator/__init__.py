"""Aggregates the ring's samples into totals and rolling values, once a second.

The modules build on each other in this order:

1. `snapshot`: the settings and the results.
2. `node`, `ports`: totals and rolling values of the sum over the rails, and of each port with its error counters.
3. `traffic`: bursts, saturation, rail balance and signature, derived from these.
4. `steps`: step period, effective resolution and phases. `jobs`: statistics of each job.
5. `totals`: reads whole seconds from the ring, adds them to all of these, and describes the ports.
6. `summary`: the statistics of one requested window. `aggregator`: schedules the seconds and makes the snapshot.
"""

from ibpulse.agent.aggregator.aggregator import Aggregator
from ibpulse.agent.aggregator.snapshot import AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.agent.aggregator.totals import read_sampler

__all__ = [
    "Aggregator",
    "AggregatorOptions",
    "Snapshot",
    "read_sampler",
    "summarize",
]
