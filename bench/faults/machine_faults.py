"""File systems that fill up, processes that are killed or stopped, and a clock that jumps."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.faults.device_faults import ruled
from bench.faults.plan import START_SECONDS, Effect, Fault
from bench.faults.testbed import Testbed

BLOCK = bytes(1 << 20)
# the supervisor notices a silent sampler after one second and a dead one at once; a new one takes its time to start
RESTARTED = Effect(lost_seconds=4.0)


@contextmanager
def filled(testbed: Testbed, device: str, name: str) -> Iterator[None]:
    """The file system of a directory has no free block."""
    path = testbed.place / name / "filler"
    try:
        with path.open("wb", buffering=0) as filler:
            for block in (BLOCK, bytes(4096)):
                write_until_full(filler.fileno(), block)
        yield
    finally:
        path.unlink(missing_ok=True)


def write_until_full(descriptor: int, block: bytes) -> None:
    """Write this block until there is no space for a byte."""
    try:
        while os.write(descriptor, block):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def filled_and_changed(testbed: Testbed, device: str) -> Iterator[None]:
    """The file system of the ring is full when a device vanishes."""
    with filled(testbed, device, "ring"), ruled(testbed, device, vanished=True):
        yield


@contextmanager
def signalled(testbed: Testbed, device: str, number: int, *, sampler: bool = False) -> Iterator[None]:
    """A process gets a signal, and SIGCONT at the end."""
    pids = [testbed.sampler_pid()] if sampler else [testbed.service.pid]
    for pid in pids:
        _send(pid, number)
    yield
    for pid in pids:
        _send(pid, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    if not pid:
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it was replaced


@contextmanager
def stepped(testbed: Testbed, device: str, seconds: float) -> Iterator[None]:
    """The wall clock is off by these seconds, and steps back at the end."""
    testbed.step_clock(seconds)
    try:
        yield
    finally:
        testbed.step_clock(0.0)


def _no_mounts(testbed: Testbed) -> str:
    return testbed.no_mounts


# the clock of the ring follows a step within a second, and the newest second is up to five seconds old
STEPPED = Effect(lost_seconds=2.0, settle_seconds=6.0)
FULL_RING = partial(filled, name="ring")
FULL_DISK = partial(filled, name="captures")

FULL_FILE_SYSTEMS = (
    Fault("the disk of the captures is full", FULL_DISK, resource="disk", why_not=_no_mounts),
    Fault("the ring's file system is full", FULL_RING, resource="memory", why_not=_no_mounts),
    Fault(
        "the ring's file system is full and a device vanishes",
        filled_and_changed,
        hits_device=True,
        resource="memory",
        why_not=_no_mounts,
    ),
)
PROCESSES = (
    Fault(
        "the sampler is killed", partial(signalled, number=signal.SIGKILL, sampler=True), RESTARTED, resource="daemon"
    ),
    Fault(
        "the sampler is stopped", partial(signalled, number=signal.SIGSTOP, sampler=True), RESTARTED, resource="daemon"
    ),
    Fault(
        "the daemon is killed",
        partial(signalled, number=signal.SIGKILL),
        Effect(lost_seconds=START_SECONDS, silences=True, ends_daemon=True),
        resource="daemon",
    ),
    Fault("the daemon is stopped", partial(signalled, number=signal.SIGSTOP), Effect(silences=True), resource="daemon"),
)
CLOCK_STEPS = tuple(
    Fault(f"the wall clock steps by {seconds:+,} s", partial(stepped, seconds=seconds), STEPPED, resource="clock")
    for seconds in (3600, -3600, 5, -5)
)
