"""Who reads the output of a command sees its end, even while a hung device keeps a process of the command alive."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fusefabric.client import FuseFabric
from tests.running import eventually

pytestmark = pytest.mark.needs("fuse")
DEVICE = "mlx5_2"
HANG_SECONDS = 90.0
# A command takes at most ten seconds on an idle machine.
WAIT_SECONDS = 40.0


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[FuseFabric]:
    with FuseFabric(tmp_path / "sys", "constant", {"rate_bytes_per_second": 20e9}, ports=4) as fabric:
        yield fabric


def start(fuse: FuseFabric, words: tuple[str, ...], stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ibpulse", *words, f"--path.sysfs={fuse.root}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


@dataclass(frozen=True)
class Piped:
    """A command and the pipe of its standard output, and of its standard error too if `both`."""

    process: subprocess.Popen[bytes]
    output: int
    both: bool


@contextlib.contextmanager
def piped(fuse: FuseFabric, folder: Path, *words: str) -> Iterator[tuple[Piped, Piped]]:
    """Two of the same command side by side, with and without standard error; `FOLDER` is a place of its own."""
    pair = []
    for both in (False, True):
        own = folder / ("both" if both else "stdout")
        own.mkdir()
        ours, theirs = os.pipe()
        places = tuple(word.replace("FOLDER", str(own)) for word in words)
        process = start(fuse, places, theirs, theirs if both else subprocess.DEVNULL)
        os.close(theirs)
        pair.append(Piped(process, ours, both))
    try:
        yield pair[0], pair[1]
    finally:
        fuse.clear()
        for one in pair:
            os.close(one.output)
            one.process.kill()
            one.process.wait(30)


def read_until(descriptor: int, wanted: bytes | None = None) -> bytes:
    """What is read up to `wanted`, or to the end: of the pipe, or of a terminal that no process holds any more."""
    deadline = time.monotonic() + WAIT_SECONDS
    text = b""
    while wanted is None or wanted not in text:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"no end after {WAIT_SECONDS} s; so far {text[-1000:]!r}"
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            part = b""
        if not part:
            break
        text += part
    assert wanted is None or wanted in text
    return text


DOCTOR = ("doctor", "--ring.dir=FOLDER/ring", "--web.listen-address=127.0.0.1:0")


def test_the_output_of_doctor_ends(fuse: FuseFabric, tmp_path: Path) -> None:
    fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
    with piped(fuse, tmp_path, *DOCTOR) as pair:
        for one in pair:
            page = read_until(one.output)
            # the doctor itself has no thread that hangs
            assert one.process.wait(10) == 1
            assert f"{DEVICE}: does not answer".encode() in page
            assert b"verdict: FAIL" in page


def test_the_output_of_a_recorder_ends(fuse: FuseFabric, tmp_path: Path) -> None:
    with piped(fuse, tmp_path, "record", "FOLDER/run.parquet", "--duration=6s") as pair:
        # they have scanned the devices and read their counters
        for folder in ("stdout", "both"):
            eventually((tmp_path / folder / "run.parquet.partial").exists)
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
        for one in pair:
            said = read_until(one.output)
            assert b"run.parquet" in said
            assert (b"quarantining the device" in said) == one.both


def test_the_output_of_a_daemon_ends_with_it(fuse: FuseFabric, tmp_path: Path) -> None:
    """Its process may remain until the device answers, because the threads that scan hang too."""
    flags = ("--ring.dir=FOLDER/ring", "--web.listen-address=127.0.0.1:0", "--capture.dir=FOLDER/c")
    with piped(fuse, tmp_path, "serve", *flags) as pair:
        read_until(pair[1].output, b"serving http")
        # the other one does not say that it serves
        time.sleep(3)
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
        time.sleep(2)
        for one in pair:
            one.process.send_signal(signal.SIGTERM)
        for one in pair:
            said = read_until(one.output)
            assert (b" stopped\n" in said) == one.both


def test_the_terminal_of_top_is_free_when_it_ends(fuse: FuseFabric) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ibpulse", "top", f"--path.sysfs={fuse.root}"]
    environ = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    try:
        read_until(ours, b"mlx5_2")
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
        read_until(ours, b"quarantining")
        os.write(ours, b"q")
        read_until(ours)
    finally:
        fuse.clear()
        process.kill()
        process.wait(30)
        os.close(ours)
