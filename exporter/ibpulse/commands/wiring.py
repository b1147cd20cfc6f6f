"""Builds inventories, supervisors, aggregators and temporary samplers from the settings."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ibpulse.config import Settings
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.sysfs.inventory import Inventory
from ibpulse.units import SECOND_NS

SCRATCH = "ibpulse-sampling-"


@dataclass(frozen=True, slots=True)
class Sampling:
    """A supervisor at work and a reader of its ring."""

    supervisor: Supervisor
    reader: RingReader
    task: asyncio.Task[None]

    def check(self) -> None:
        """Nothing while the supervisor works.

        Raises:
            IbpulseError: why it ended.
        """
        if self.task.done():
            self.task.result()


@asynccontextmanager
async def sampling(settings: Settings, history_seconds: int) -> AsyncIterator[Sampling]:
    """Every port of this node sampled while the block runs; nothing stays behind.

    Raises:
        IbpulseError: the ring cannot be made, or the sampler cannot be started.
    """
    interval_ns = settings.sampler.interval
    with _scratch() as scratch:
        ring = RingFile.create(scratch / "ring", interval_ns, history_seconds * SECOND_NS // interval_ns)
        supervisor = Supervisor(ring, make_inventory(settings), supervisor_options(settings))
        await supervisor.start()
        task = asyncio.create_task(supervisor.run(), name="supervisor")
        # a task that never began would not stop the sampler at its end
        await asyncio.sleep(0)
        try:
            yield Sampling(supervisor, RingReader(ring), task)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            ring.close()


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory in memory that is gone after the block; what killed processes left of theirs goes first."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    for left in memory.glob(f"{SCRATCH}*"):
        with suppress(OSError), _held(left):
            shutil.rmtree(left)
    fresh = Path(tempfile.mkdtemp(prefix="ibpulse-", dir=memory))
    with _held(fresh):
        # under this name only when it is held
        scratch = fresh.rename(memory / f"{SCRATCH}{fresh.name.removeprefix('ibpulse-')}")
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """A lock on a directory, which the death of the process lets go.

    Raises:
        OSError: another process holds it, or it cannot be read.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def make_inventory(settings: Settings) -> Inventory:
    """The inventory of this node's ports as the settings choose them."""
    ports = settings.ports
    return Inventory(Path(settings.path.sysfs), ports.include, ports.exclude, ports.rails)


def supervisor_options(settings: Settings) -> SupervisorOptions:
    """What the settings ask of the sampler."""
    return SupervisorOptions(
        scheduler=settings.sampler.scheduler,
        cpu=settings.sampler.cpu,
        scan_seconds=settings.slow.interval / SECOND_NS,
    )
