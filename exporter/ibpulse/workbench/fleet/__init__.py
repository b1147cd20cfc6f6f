"""Datasets of many nodes: recordings and small tiers computed from them, as Hive-partitioned Parquet files.

dataset_schema      the columns of each tier, and the paths of the files
dataset_store       its files in a directory or in object storage
dataset_columns     tables of Arrow from numpy
node_tiers          from one recording to its small tiers; rail_seconds: what they say of the rails
part_stage          this for one part of a dataset; stage_workers: in several processes, or on Dask
collected_nodes     past samples of nodes; gateway_nodes: the nodes of a gateway
collected_files     captures and recordings; imported_files: their raw files
span_parts          how a span is cut, and what is there already; unfinished_span: what a killed run began
collection_result   what was collected, and what is missing
report_source       the small tiers of a dataset, read with DuckDB
peer_groups         which nodes are compared, and how; node_numbers: numbers of one node; span_comparison: two spans
fleet_report        all of it; finding_sentences: as sentences, by step_findings, rail_findings, place_findings
fleet_report_formats    the report as text, JSON and HTML
fleet_pictures      nodes over time, nodes and rails, lateness over time; fleet_picture_data: what they show
"""
