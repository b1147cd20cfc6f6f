"""The Python API: `ibpulse.connect` and `ibpulse.read`, and what they return.

node_connection  asks a running daemon
recorded_files   reads recordings, captures, and directories of them
samples          rates of many ports: as a table, as a picture, as a report
answer_tables    summaries, events and jobs as tables
run_report       the report of some recordings
"""

from __future__ import annotations

from ibpulse.api.answer_tables import Events, Jobs, SpanSummary
from ibpulse.api.node_connection import NodeConnection, connect
from ibpulse.api.recorded_files import Dataset, read
from ibpulse.api.run_report import RunReport
from ibpulse.api.samples import SampledRates
from ibpulse.errors import IbpulseError
from ibpulse.pictures.pictures_of_runs import Picture

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
