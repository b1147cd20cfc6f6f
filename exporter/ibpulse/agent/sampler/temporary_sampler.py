"""A temporary sampler for one command: a ring in shared memory and a supervisor, both removed at the end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.supervisor import PortInventory, Supervisor, SupervisorOptions
from ibpulse.agent.sysfs.links import StatePoller
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import RingError, SamplerError
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import EventLog
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import SLOT_COUNT
from ibpulse.core.ring.reader import RingReader

SCRATCH = "ibpulse-sampling-"
FIRST_SAMPLE_SECONDS = 10.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TemporarySampler:
    """A running supervisor and a reader of its ring."""

    supervisor: Supervisor
    reader: RingReader
    task: asyncio.Task[None]

    @property
    def events(self) -> EventLog:
        """The events since the sampler started; `events.history` has the states of the ports."""
        return self.supervisor.events

    @property
    def ended(self) -> bool:
        """Whether the supervisor has stopped, which only happens after an error."""
        return self.task.done()

    def check(self) -> None:
        """Raise the supervisor's error if it has stopped.

        Raises:
            IbpulseError: the reason.
        """
        if self.ended:
            self.task.result()

    async def sampled_tick(self) -> int:
        """Wait for a sampled tick and return it.

        Raises:
            IbpulseError: there is none in time, or the supervisor has stopped.
        """
        for _ in range(round(FIRST_SAMPLE_SECONDS / POLL_SECONDS)):
            self.check()
            tick = self.reader.ring.latest_tick()
            if tick:
                return tick
            await asyncio.sleep(POLL_SECONDS)
        raise SamplerError(f"no sample was taken in {FIRST_SAMPLE_SECONDS:g} s; the log above says why")


@asynccontextmanager
async def temporary_sampler(
    inventory: PortInventory,
    options: SupervisorOptions,
    interval_ns: int,
    history_seconds: int,
    states: StatePoller | None = None,
    clock: Clock = time,
    start_process: StartProcess = start_sampler,
) -> AsyncIterator[TemporarySampler]:
    """Sample every port of the inventory while the block runs, into a ring that holds `history_seconds`.

    `states` reads the state of the links.

    Raises:
        IbpulseError: the ring cannot be created, or the sampler cannot be started.
    """
    with _scratch_directory() as scratch:
        ticks = history_seconds * SECOND_NS // interval_ns
        ring = RingFile.create(scratch / "ring", interval_ns, ticks, clock, options.count_readings(ticks))
        try:
            errors = InternalErrors(clock.monotonic)
            supervisor = Supervisor(ring, inventory, options, None, states, errors, clock, start_process)
            await supervisor.start()
            task = asyncio.create_task(supervisor.run(), name="supervisor")
            # let the task begin, because a task that never ran would not stop the sampler when cancelled
            await asyncio.sleep(0)
            try:
                _check_start(supervisor, errors)
                yield TemporarySampler(supervisor, RingReader(ring), task)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            ring.close()


def _check_start(supervisor: Supervisor, errors: InternalErrors) -> None:
    """Unlike a daemon, a command cannot wait for space.

    Raises:
        IbpulseError: a port has no space in the ring, or there is no plan.
    """
    if errors.counts()["plan"]:
        raise SamplerError(errors.notices()[0])
    sampled = sum(port.source is not None for port in supervisor.fabric.ports)
    if len(supervisor.slots) < min(sampled, SLOT_COUNT):
        raise RingError(supervisor.fabric.notices[-1])


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """A directory in memory for the block; first removes directories left behind by killed processes."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    for left in memory.glob(f"{SCRATCH}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)
    fresh = Path(tempfile.mkdtemp(prefix="ibpulse-", dir=memory))
    with _locked(fresh):
        # renamed only after locking, because unlocked directories with this name are removed
        scratch = fresh.rename(memory / f"{SCRATCH}{fresh.name.removeprefix('ibpulse-')}")
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """A lock on a directory, released with the process at the latest.

    Raises:
        OSError: another process holds it, or the directory cannot be read.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
