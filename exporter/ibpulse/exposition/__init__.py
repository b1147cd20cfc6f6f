"""A snapshot as text for Prometheus. It must not compute statistics nor touch the ring."""

from ibpulse.exposition.negotiation import accepts_gzip
from ibpulse.exposition.page import compress, render

__all__ = ["accepts_gzip", "compress", "render"]
