"""Fabrics for tests of the whole daemon: simulated ones in a process of their own, and devices of plain files."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import end, eventually

PORT_FILES = {
    "counters/port_xmit_data": "1000",
    "counters/port_rcv_data": "2000",
    "counters/symbol_error": "0",
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
}


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
        end(process, signal.SIGTERM)


def add_device(root: Path, name: str, port: int = 1) -> None:
    """A device with one port, whose counters stand still."""
    folder = root / "class/infiniband" / name / f"ports/{port}"
    (folder / "counters").mkdir(parents=True)
    for file, text in PORT_FILES.items():
        (folder / file).write_text(f"{text}\n")
