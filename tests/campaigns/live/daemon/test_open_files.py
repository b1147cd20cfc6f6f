"""A daemon has the descriptors that its ports and its clients can take, or does not start."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.fabrics import add_device
from tests.running import Running


def test_the_daemon_raises_its_own_limit_of_open_files(tmp_path: Path) -> None:
    add_device(tmp_path / "sys", "mlx5_0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with Running(tmp_path / "sys", tmp_path / "ring", needs_ports=False) as daemon:
            most = 2048 if hard == resource.RLIM_INFINITY else min(2048, hard)
            assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)[0] == most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
