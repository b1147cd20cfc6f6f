"""Error counters on a fabric that fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ibpulse.sysfs.inventory import Inventory
from ibpulse.units import SECOND_NS
from tests.fusefabric.client import FuseFabric


@pytest.mark.needs("fuse")
def test_a_device_that_went_away_has_no_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # on a busy machine the mounted files may be slow, which is not what this test is about
    monkeypatch.setattr("ibpulse.sysfs.error_counter_reader.SLOW_READ_NS", 60 * SECOND_NS)
    with FuseFabric(tmp_path / "sys", ports=1) as fabric:
        scans = Inventory(fabric.root, counters="diagnostic", timeout_seconds=60)
        assert len(scans.scan().counters[0].readings) == 12
        fabric.set("mlx5_0", errno=errno.ENODEV, files=("link_downed",))
        assert scans.scan().counters[0].readings == ()
        fabric.clear()
        assert len(scans.scan().counters[0].readings) == 12
