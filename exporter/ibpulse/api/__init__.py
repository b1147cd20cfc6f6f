"""The Python API: `ibpulse.connect` and `ibpulse.read`, and what they return.

node     asks a running daemon
samples  rates of many ports, from files or a daemon: as a table, a picture, a report
tables   summaries, events and jobs as tables
"""

from __future__ import annotations

from ibpulse.api.node import NodeConnection, connect
from ibpulse.api.samples import Dataset, RunReport, SampledRates, read
from ibpulse.api.tables import Events, Jobs, SpanSummary
from ibpulse.errors import IbpulseError
from ibpulse.pictures.still import Picture

__all__ = [
    "Dataset",
    "Events",
    "IbpulseError",
    "Jobs",
    "NodeConnection",
    "Picture",
    "RunReport",
    "SampledRates",
    "SpanSummary",
    "connect",
    "read",
]
