"""File systems that fill up, processes that are killed or stopped, and a clock that jumps."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from bench.faults.device_faults import ruled
from bench.faults.plan import ALONE, START_SECONDS, Effect, Fault
from bench.faults.testbed import Testbed

BLOCK = bytes(1 << 20)
PAUSE_SECONDS = 0.05
VERSION_BYTE = 8
# of version 1, because only there a process can be moved in and out whatever else the cgroups hold
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
# less than the writer of a capture takes
SPARE_BYTES = 15_000_000
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


@contextmanager
def deleted(testbed: Testbed, device: str) -> Iterator[None]:
    """Everything in the directories of the ring and of the captures is deleted."""
    for name in ("ring", "captures"):
        for path in (testbed.place / name).iterdir():
            path.unlink(missing_ok=True)
    yield


@contextmanager
def deleted_and_killed(testbed: Testbed, device: str) -> Iterator[None]:
    """The same, and then the sampler is killed."""
    with deleted(testbed, device), signalled(testbed, device, signal.SIGKILL, sampler=True):
        yield


@contextmanager
def restarted(testbed: Testbed, device: str, flags: tuple[str, ...]) -> Iterator[None]:
    """The daemon is killed and has these flags in its next life, and then the usual ones again."""
    service, before = testbed.service, testbed.service.more_flags
    service.more_flags = (*before, *flags)
    _send(service.pid, signal.SIGKILL)
    try:
        yield
    finally:
        service.more_flags = before
        service.wait_until_listening()
        _send(service.pid, signal.SIGKILL)
        while service.url:
            time.sleep(PAUSE_SECONDS)


@contextmanager
def of_another_version(testbed: Testbed, device: str) -> Iterator[None]:
    """The daemon is killed, and the ring that the next one finds has another version."""
    _send(testbed.service.pid, signal.SIGKILL)
    # a fault before may have deleted it
    with suppress(FileNotFoundError), (testbed.place / "ring/ring").open("r+b") as ring:
        ring.seek(VERSION_BYTE)
        ring.write(b"\xff")
    yield


@contextmanager
def little_memory(testbed: Testbed, device: str) -> Iterator[None]:
    """The daemon and its children are in a cgroup with little more memory than they use."""
    group = MEMORY_GROUPS / f"ibpulse-faults-{os.getpid()}"
    group.mkdir()
    limit = group / "memory.limit_in_bytes"
    try:
        for pid in (testbed.service.pid, *testbed.service.child_pids()):
            (group / "cgroup.procs").write_text(str(pid))
        limit.write_text(str(testbed.memory_bytes() + SPARE_BYTES))
        yield
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            (MEMORY_GROUPS / "cgroup.procs").write_text(left)
        group.rmdir()


def _no_memory_groups(testbed: Testbed) -> str:
    writable = os.access(MEMORY_GROUPS / "memory.limit_in_bytes", os.W_OK) or os.access(MEMORY_GROUPS, os.W_OK)
    return "" if writable and (MEMORY_GROUPS / "cgroup.procs").exists() else f"{MEMORY_GROUPS} cannot be written"


def _no_mounts(testbed: Testbed) -> str:
    return testbed.no_mounts


def _no_clock(testbed: Testbed) -> str:
    return testbed.no_clock


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
DELETIONS = (
    Fault("the files of the ring and the captures are deleted", deleted, resource="daemon"),
    Fault("they are deleted and the sampler is killed", deleted_and_killed, RESTARTED, resource="daemon"),
)
# of the ring that is replaced, nothing is left to judge
REPLACED = Effect(lost_seconds=2 * START_SECONDS, silences=True, ends_daemon=True)
OTHER_RINGS = (
    Fault(
        "the daemon runs with another interval",
        partial(restarted, flags=("--sampler.interval=20ms",)),
        REPLACED,
        resource=ALONE,
    ),
    Fault("the ring has another version", of_another_version, REPLACED, resource=ALONE),
)
MEMORY = (Fault("memory is short", little_memory, resource="daemon", why_not=_no_memory_groups),)
CLOCK_STEPS = tuple(
    Fault(
        f"the wall clock steps by {seconds:+,} s",
        partial(stepped, seconds=seconds),
        STEPPED,
        resource="clock",
        why_not=_no_clock,
    )
    for seconds in (3600, -3600, 5, -5)
)
