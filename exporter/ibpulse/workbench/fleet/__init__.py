"""Datasets of many nodes: recordings and small tiers computed from them, as Hive-partitioned Parquet files.

dataset     columns, paths and files, in a directory or in object storage
tiers       from the raw file of one part to its small tiers, in any process
collection  spans, missing data and the result of a collection; workers in processes or on Dask
from_nodes  past samples of nodes and of a gateway; from_files: captures and recordings
source      the small tiers, read with DuckDB
peers       which nodes are compared; two spans or jobs compared
report      the numbers of a dataset; findings: as sentences; formats: as text, JSON and HTML
pictures    nodes over time, nodes and rails, lateness over time
"""
