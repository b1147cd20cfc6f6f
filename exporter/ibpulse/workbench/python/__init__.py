"""The Python API: `ibpulse.connect` and `ibpulse.read`, and what they return.

node_connection  asks a running daemon
recorded_files   reads recordings, captures, and directories of them
samples          rates of many ports: as a table, as a picture, as a report
answer_tables    summaries, events and jobs as tables
run_report       the report of some recordings
"""

from __future__ import annotations

from ibpulse.base.errors import IbpulseError
from ibpulse.workbench.pictures.pictures_of_runs import Picture
from ibpulse.workbench.python.answer_tables import Events, Jobs, SpanSummary
from ibpulse.workbench.python.node_connection import NodeConnection, connect
from ibpulse.workbench.python.recorded_files import Dataset, read
from ibpulse.workbench.python.run_report import RunReport
from ibpulse.workbench.python.samples import SampledRates

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
