"""Metrics that agent and gateway share: the `row` of a metric, and the rows and counts of a `web` server."""
