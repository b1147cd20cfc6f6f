"""Renders a snapshot in the Prometheus text formats."""

from ibpulse.agent.exposition.page import accepts_gzip, compress, process_registry, render

__all__ = ["accepts_gzip", "compress", "process_registry", "render"]
