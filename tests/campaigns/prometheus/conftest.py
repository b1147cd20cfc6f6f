from __future__ import annotations

from pathlib import Path

import pytest

from tests.grafana.library import find_library


@pytest.fixture(scope="session")
def library() -> Path:
    """The folder with Grafana's own library."""
    return find_library()
