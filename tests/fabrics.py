"""Simulated fabrics in a process of their own, for tests of the whole daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import eventually


@contextmanager
def simulated(
    directory: Path, workload: str, *, interval: str = "10ms", ports: int = 8, **options: object
) -> Iterator[Path]:
    """`ibpulse simulate` at work in a directory; the tree is there when the block begins."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ibpulse", "simulate", str(directory)),
            *(f"--workload={workload}", f"--interval={interval}", f"--ports={ports}", *flags),
        ]
    )
    try:
        counter = directory / f"class/infiniband/mlx5_{ports - 1}/ports/1/counters/port_rcv_data"
        eventually(lambda: process.poll() is not None or counter.exists())
        assert process.poll() is None
        yield directory
    finally:
        process.terminate()
        process.wait(10)
