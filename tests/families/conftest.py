from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import Fabric
from tests.families.table import BY_NAME


@pytest.fixture
def scan(tmp_path: Path) -> Callable[[str], Fabric]:
    """The fabric of a family, by the family's name."""

    def scan_family(name: str) -> Fabric:
        BY_NAME[name].build(tmp_path / name)
        return Inventory(tmp_path / name).scan()

    return scan_family
