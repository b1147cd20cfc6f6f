"""Counters that a real kernel counts: a device whose files are the statistics of real network interfaces."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ibpulse.core.recordings import load
from tests.running import Running, eventually
from tests.smoke.parts import WAYS, WORD_BYTES, plain_tree, port_path, take_capture, totals

FRAME = 60_000
FRAMES = 500
STATISTICS = {"transmit": "tx_bytes", "receive": "rx_bytes"}


@pytest.fixture
def interfaces() -> Iterator[tuple[str, str]]:
    """Two ends of a virtual cable with large frames."""
    names = (f"ibpa{os.getpid()}", f"ibpb{os.getpid()}")
    subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
    for name in names:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", name, "mtu", "65000", "up"], check=True)
    yield names
    subprocess.run(["ip", "link", "delete", names[0]], check=True)


def statistics(interface: str, way: str) -> Path:
    return Path(f"/sys/class/net/{interface}/statistics/{STATISTICS[way]}")


@pytest.mark.needs("root", "ip")
def test_totals_are_the_bytes_that_the_kernel_counts(tmp_path: Path, interfaces: tuple[str, str]) -> None:
    tree = plain_tree(tmp_path / "sys")
    for number, interface in enumerate(interfaces):
        for way, name in WAYS.items():
            file = port_path(tree, number) / "counters" / name
            file.unlink()
            file.symlink_to(statistics(interface, way))
    with Running(tree, tmp_path / "ring", "--capture.allow-unauthenticated=true") as daemon:

        def kernel() -> list[int]:
            return [int(statistics(interface, way).read_text()) for interface in interfaces for way in WAYS]

        def counted() -> list[float]:
            # an interface counts bytes where a port counts words
            return [total / WORD_BYTES for number in range(2) for total in totals(daemon, number).values()]

        def moved(now: list[float], then: list[float]) -> list[float]:
            return [after - before for after, before in zip(now, then, strict=True)]

        begin = kernel(), counted()
        send(interfaces[0])
        # the other end receives a little later
        eventually(lambda: moved(kernel(), begin[0])[3] >= FRAMES * FRAME)
        assert moved(kernel(), begin[0])[0] >= FRAMES * FRAME
        eventually(lambda: moved(counted(), begin[1]) == moved(kernel(), begin[0]))
        capture = load(tmp_path / "captures" / take_capture(daemon, before="1m"))
        most = moved(kernel(), begin[0])
        assert daemon.stop() == 0
    # no sample has bytes that the kernel does not have; a missed one has none
    samples = np.nansum(capture.bytes_per_second * capture.seconds, axis=2).ravel() / WORD_BYTES
    assert np.all(np.rint(samples) <= most)


def send(interface: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((interface, 0))
        frame = b"\xff" * 12 + b"\x88\xb5" + bytes(FRAME - 14)
        for _ in range(FRAMES):
            assert link.send(frame) == FRAME
