"""The Python API: `ibpulse.connect` and `ibpulse.read`, and what they return.

node      asks a running daemon
samples   rates of many ports, from files or a daemon: as a table, a picture, a report
tables    summaries, events and jobs as tables
pictures  pictures of recordings; `ibpulse render` and `ibpulse report` draw with it as well
"""

from __future__ import annotations

from ibpulse.api.node import NodeConnection, connect
from ibpulse.api.pictures import Picture
from ibpulse.api.samples import Dataset, RunReport, SampledRates, read
from ibpulse.api.tables import Events, Jobs, SpanSummary
from ibpulse.errors import IbpulseError

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
