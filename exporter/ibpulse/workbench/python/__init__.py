"""The Python API: `ibpulse.connect` and `ibpulse.read`, and their results.

node     asks a running daemon, or the nodes of a job through a gateway
samples  rates of many ports, from files or a daemon: as a table, a picture, a report
tables   summaries, events and jobs as tables
"""

from __future__ import annotations

from ibpulse.base.errors import IbpulseError
from ibpulse.workbench.pictures.still import Picture
from ibpulse.workbench.python.node import JobNodes, NodeConnection, connect
from ibpulse.workbench.python.samples import Dataset, RunReport, SampledRates, read
from ibpulse.workbench.python.tables import Events, Jobs, SpanSummary

__all__ = [
    "Dataset",
    "Events",
    "IbpulseError",
    "JobNodes",
    "Jobs",
    "NodeConnection",
    "Picture",
    "RunReport",
    "SampledRates",
    "SpanSummary",
    "connect",
    "read",
]
