"""Datasets of many nodes: recordings and small tiers computed from them, as Hive-partitioned Parquet files.

dataset     columns, paths and files, in a directory or in object storage
tiers       from the raw file of one part to its small tiers, in any process
collection  captures and recordings in files; spans, missing data, the result, and workers in processes or on Dask
from_nodes  past samples of nodes and of a gateway
source      the small tiers, read with DuckDB
report      the numbers of a dataset, nodes and spans compared; findings: as sentences; formats: as text, JSON and HTML
pictures    nodes over time, nodes and rails, lateness over time
traces      traces for Perfetto, of datasets and of whatever else has samples
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.workbench.fleet.traces import open_sources, save_trace

__all__ = ["open_sources", "save_trace"]

__getattr__ = late_names(__name__, {"open_sources": "traces", "save_trace": "traces"})
"""They need httpx."""
