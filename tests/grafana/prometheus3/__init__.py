"""Prometheus 3's own parser, for the queries of boards and rules."""
