"""Samples of the ring to totals and rolling values, once a second. It must not format anything nor open a socket."""

from ibpulse.aggregator.aggregator import Aggregator
from ibpulse.aggregator.options import AggregatorOptions
from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.aggregator.summary import Summary

__all__ = ["Aggregator", "AggregatorOptions", "Snapshot", "Summary"]
