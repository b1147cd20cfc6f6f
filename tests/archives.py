"""Archives as tests unpack them."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, into: Path) -> None:
    """Extract as data; Python before 3.11.4 has no filters, and needs none for archives of our own."""
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
    archive.extractall(into)
