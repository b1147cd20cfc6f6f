"""Aggregates the ring's samples into totals and rolling values, once a second.

The modules build on each other in this order:

1. `options`: the settings. `snapshot`: the results. `rolling`: the last seconds of an array.
2. `port_totals`, `node_totals`, `burst_totals`: totals per port, totals of the sum over the rails, bursts and
   saturation. `port_totals` also tracks the error counters.
3. `rail_balance`: rails compared with those of the same jobs. `traffic`: this, bursts, saturation and signature, all
   derived from these totals.
4. `last_minute`: step period and effective resolution, measured on the ring every few seconds.
   `phase_watch`: first traffic and checkpoints. `job_totals`: statistics of each job.
5. `past_ports`: the ports as they were in a second. `totals`: reads whole seconds from the ring and adds them to 2, 3
   and 4. `snapshot_ports`: the ports of a snapshot.
6. `summary`: the statistics of one requested window. `aggregator`: schedules the seconds and makes the snapshot.
"""

from ibpulse.aggregator.aggregator import Aggregator
from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.aggregator.snapshot_ports import read_sampler
from ibpulse.aggregator.summary import summarize

__all__ = [
    "Aggregator",
    "AggregatorOptions",
    "Snapshot",
    "read_sampler",
    "summarize",
]
