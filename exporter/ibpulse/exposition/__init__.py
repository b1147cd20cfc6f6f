"""A snapshot as text for Prometheus."""

from ibpulse.exposition.lines import accepts_gzip
from ibpulse.exposition.page import compress, process_registry, render

__all__ = ["accepts_gzip", "compress", "process_registry", "render"]
