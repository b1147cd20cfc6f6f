"""A sampler for one command: a ring in shared memory and a supervisor, both gone at the end."""

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

from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.supervisor import PortInventory, Supervisor, SupervisorOptions
from ibpulse.units import SECOND_NS

SCRATCH = "ibpulse-sampling-"


@dataclass(frozen=True, slots=True)
class TemporarySampler:
    """A running supervisor and a reader of its ring."""

    supervisor: Supervisor
    reader: RingReader
    task: asyncio.Task[None]

    @property
    def ended(self) -> bool:
        """Whether the supervisor has stopped, which it only does after an error."""
        return self.task.done()

    def check(self) -> None:
        """Do nothing while the supervisor runs.

        Raises:
            IbpulseError: why it ended.
        """
        if self.ended:
            self.task.result()


@asynccontextmanager
async def temporary_sampler(
    inventory: PortInventory, options: SupervisorOptions, interval_ns: int, history_seconds: int
) -> AsyncIterator[TemporarySampler]:
    """Sample every port of the inventory while the block runs, into a ring that holds `history_seconds`.

    Raises:
        IbpulseError: the ring cannot be created, or the sampler cannot be started.
    """
    with _scratch_directory() as scratch:
        ring = RingFile.create(scratch / "ring", interval_ns, history_seconds * SECOND_NS // interval_ns)
        try:
            supervisor = Supervisor(ring, inventory, options)
            await supervisor.start()
            task = asyncio.create_task(supervisor.run(), name="supervisor")
            # a task that never began would not stop the sampler at its end
            await asyncio.sleep(0)
            try:
                yield TemporarySampler(supervisor, RingReader(ring), task)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            ring.close()


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """A directory in memory for the block; first removes those that killed processes left behind."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    for left in memory.glob(f"{SCRATCH}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)
    fresh = Path(tempfile.mkdtemp(prefix="ibpulse-", dir=memory))
    with _locked(fresh):
        # under this name only when it is locked
        scratch = fresh.rename(memory / f"{SCRATCH}{fresh.name.removeprefix('ibpulse-')}")
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """A lock on a directory; it ends with the process at the latest.

    Raises:
        OSError: another process holds it, or the directory cannot be read.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
