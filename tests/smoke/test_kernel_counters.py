"""Counters that a real kernel counts: a device whose files are the statistics of real network interfaces."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.recordings import load
from tests.running import Running, eventually
from tests.smoke.conftest import WORD_BYTES, plain_tree, port_path, take_capture

FRAME = 60_000
WAYS = {"transmit": ("tx", "port_xmit_data"), "receive": ("rx", "port_rcv_data")}


@pytest.fixture
def interfaces() -> Iterator[tuple[str, str]]:
    """Two ends of a virtual cable, with large frames and no traffic but that of the test."""
    names = (f"ibpa{os.getpid()}", f"ibpb{os.getpid()}")
    subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
    for name in names:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", name, "mtu", "65000", "up"], check=True)
    yield names
    subprocess.run(["ip", "link", "delete", names[0]], check=True)


def kernel_bytes(interface: str, way: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/{WAYS[way][0]}_bytes").read_text())


@pytest.mark.needs("root", "ip")
def test_totals_are_the_bytes_that_the_kernel_counts(tmp_path: Path, interfaces: tuple[str, str]) -> None:
    tree = plain_tree(tmp_path / "sys")
    for number, interface in enumerate(interfaces):
        for kind, name in WAYS.values():
            file = port_path(tree, number) / "counters" / name
            file.unlink()
            file.symlink_to(f"/sys/class/net/{interface}/statistics/{kind}_bytes")
    with Running(tree, tmp_path / "ring", "--capture.allow-unauthenticated=true") as daemon:

        def totals() -> list[float]:
            # an interface counts bytes where a port counts words
            metrics = daemon.metrics()
            found = [metrics.port(f"{way}_bytes_total", f"mlx5_{number}") for number in range(2) for way in WAYS]
            return [total / WORD_BYTES for total in found]

        def counted() -> list[int]:
            return [kernel_bytes(interface, way) for interface in interfaces for way in WAYS]

        begin, before = counted(), totals()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
            link.bind((interfaces[0], 0))
            frame = b"\xff" * 12 + b"\x88\xb5" + bytes(FRAME - 14)
            for _ in range(500):
                assert link.send(frame) == FRAME
        moved = [now - then for now, then in zip(counted(), begin, strict=True)]
        assert moved == [500 * FRAME, 0, 0, 500 * FRAME]
        eventually(lambda: [now - then for now, then in zip(totals(), before, strict=True)] == moved)
        capture = load(tmp_path / "captures" / take_capture(daemon, before="1m"))
        assert daemon.stop() == 0
    # no sample has bytes that the kernel does not have; a missed one has none
    samples = np.nansum(capture.bytes_per_second * capture.seconds, axis=2).ravel() / WORD_BYTES
    assert np.all(np.rint(samples) <= moved)
