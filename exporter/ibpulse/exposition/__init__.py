"""A snapshot as text for Prometheus."""

from ibpulse.exposition.page import accepts_gzip, compress, process_registry, render

__all__ = ["accepts_gzip", "compress", "process_registry", "render"]
