"""`ibpulse doctor` does not wait for a device whose reads hang in the kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fusefabric.client import FuseFabric

DEVICE = "mlx5_2"


@pytest.mark.needs("fuse")
def test_a_device_that_hangs_is_named_and_holds_up_nothing(tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "sys", "constant", {"rate_bytes_per_second": 20e9}, ports=4) as fabric:
        fabric.set(DEVICE, hang_seconds=600.0)
        settings = (
            f"--path.sysfs={fabric.root}",
            f"--ring.dir={tmp_path / 'ring'}",
            "--web.listen-address=127.0.0.1:0",
        )
        command = [sys.executable, "-m", "ibpulse", "doctor", "--format=json", *settings]
        answer = subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=False)
        fabric.clear()
    findings = json.loads(answer.stdout)["findings"]
    troubles = [(one["topic"], one["level"], one["subject"]) for one in findings if one["level"] != "OK"]
    assert troubles == [("devices", "FAIL", DEVICE)]
    assert answer.returncode == 1
