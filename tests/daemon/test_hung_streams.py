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
from pathlib import Path

import pytest

from tests.fusefabric.client import FuseFabric, why_not
from tests.running import eventually

pytestmark = [pytest.mark.fuse, pytest.mark.skipif(bool(why_not()), reason=why_not())]
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


@contextlib.contextmanager
def piped(fuse: FuseFabric, *words: str, both: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command and the pipe of its standard output, and of its standard error too if `both`."""
    ours, theirs = os.pipe()
    process = start(fuse, words, theirs, theirs if both else subprocess.DEVNULL)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        fuse.clear()
        os.close(ours)
        process.kill()
        process.wait(30)


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


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
def test_the_output_of_doctor_ends(fuse: FuseFabric, tmp_path: Path, both: bool) -> None:
    fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
    flags = (f"--ring.dir={tmp_path / 'ring'}", "--web.listen-address=127.0.0.1:0")
    with piped(fuse, "doctor", *flags, both=both) as (process, output):
        page = read_until(output)
        # the doctor itself has no thread that hangs
        assert process.wait(10) == 1
    assert f"{DEVICE}: does not answer".encode() in page
    assert b"verdict: FAIL" in page


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
def test_the_output_of_doctor_ends_if_the_device_begins_to_hang_meanwhile(
    fuse: FuseFabric, tmp_path: Path, both: bool
) -> None:
    flags = (f"--ring.dir={tmp_path / 'ring'}", "--web.listen-address=127.0.0.1:0")
    with piped(fuse, "doctor", *flags, both=both) as (process, output):
        time.sleep(3)
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
        page = read_until(output)
        assert process.wait(10) == 1
    assert f"{DEVICE}: ".encode() in page


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
def test_the_output_of_a_recorder_ends(fuse: FuseFabric, tmp_path: Path, both: bool) -> None:
    with piped(fuse, "record", str(tmp_path / "run.parquet"), "--duration=6s", both=both) as (_, output):
        # it has scanned the devices and reads their counters
        eventually((tmp_path / "run.parquet.partial").exists)
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
        said = read_until(output)
    assert b"run.parquet" in said
    assert (b"quarantining the device" in said) == both


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
@pytest.mark.parametrize("before", [False, True], ids=["later", "from the start"])
def test_the_output_of_a_daemon_ends_with_it(fuse: FuseFabric, tmp_path: Path, both: bool, before: bool) -> None:
    """Its process may remain until the device answers, because the threads that scan hang too."""
    if before:
        fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
    flags = (f"--ring.dir={tmp_path / 'ring'}", "--web.listen-address=127.0.0.1:0", f"--capture.dir={tmp_path / 'c'}")
    with piped(fuse, "serve", *flags, both=both) as (process, output):
        if both:
            read_until(output, b"serving http")
        time.sleep(2 if both else 5)
        if not before:
            fuse.set(DEVICE, hang_seconds=HANG_SECONDS)
            time.sleep(2)
        process.send_signal(signal.SIGTERM)
        said = read_until(output)
    assert (b" stopped\n" in said) == both


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
