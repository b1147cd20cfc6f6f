"""The running daemon: supervisor, aggregator, flight recorder and web server over one ring."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import uvloop

from ibpulse import __version__
from ibpulse.agent.config import Settings
from ibpulse.agent.flightrecorder.recorder import WriteCapture
from ibpulse.agent.node.node import CurrentSnapshot, make_node
from ibpulse.agent.sampler.lane import Process, StartProcess, start_sampler
from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebParts
from ibpulse.base import limits, owned_files
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads, seconds_until_beat, yield_to_others
from ibpulse.base.errors import RingError
from ibpulse.base.installation import own_command
from ibpulse.base.limits import require_open_files
from ibpulse.core.http.access import HostCheck
from ibpulse.core.http.admission import MAX_CONNECTIONS, SPARE_CONNECTIONS
from ibpulse.core.http.server import serve
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.web import WebCounts
from ibpulse.core.ring.file import RingFile

log = logging.getLogger(__name__)
# for ports that come later
OPEN_FILES = 2048
# measured: with 8 ports and no connection, captures fail below 72, and below 64 the web server does not start
MIN_OPEN_FILES, OPEN_FILES_PER_PORT = 40 + MAX_CONNECTIONS + SPARE_CONNECTIONS, 5
# A disk that hangs delays the start no longer than this.
CAPTURES_SECONDS = 2.0
# Stopping takes less, unless something hangs that cannot be cancelled.
STOP_SECONDS = 4.8
# of all threads except the one that starts samplers: requests do not take the processor from the sampler
SERVING_NICENESS = 5
# between two looks whether the directory of the ring is still there
DIRECTORY_SECONDS = 1.0
LOCK = "lock"


def run_daemon(settings: Settings) -> int:
    """Sample and serve until SIGTERM or SIGINT; returns the exit code.

    Raises:
        IbpulseError: the daemon cannot start.
    """
    require_open_files(OPEN_FILES, least_open_files(Path(settings.path.sysfs)))
    limits.keep_freed()
    with (
        closing(HeldDirectory(Path(settings.ring.dir))) as directory,
        closing(LastResort()) as last_resort,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        # a process has the niceness of the thread that starts it, and ends with it; so this one begins now and stays
        starter = DaemonThreads(1, "start", idle_seconds=None)
        starter.submit(os.getpid).result()
        yield_to_others(SERVING_NICENESS)

        def start(ring: RingFile, lane: int) -> Process:
            return starter.submit(start_sampler, ring, lane).result()

        return runner.run(Daemon(settings, directory, last_resort, start_process=start).run())


def least_open_files(sysfs: Path) -> int:
    """The number of open files with which this node is sampled, served and captured, whatever clients do."""
    return MIN_OPEN_FILES + OPEN_FILES_PER_PORT * sum(1 for _ in sysfs.glob("class/infiniband/*/ports/*"))


class InUseError(RingError):
    """Another daemon uses the directory of the ring."""


class HeldDirectory:
    """The directory of the ring and its other files at or below `given`, locked against a second daemon.

    Whoever deletes it does not end sampling: the ring stays open, and the directory is made again.
    """

    def __init__(self, given: Path) -> None:
        """Make the directory if it is missing, and lock it.

        Raises:
            InUseError: another daemon uses it.
            RingError: it is not writable, or another user can replace its files.
        """
        self._given = given
        self.path, self._lock = self._take()

    def _take(self) -> tuple[Path, int]:
        try:
            directory = owned_files.make_directory(self._given)
            descriptor = owned_files.open_to_write(directory / LOCK, create=True)
        except OSError as error:
            raise RingError(
                f"ring.dir: {self._given} cannot be used: {error.strerror}; choose a directory that belongs to root or "
                f"to user {os.geteuid()}, or change its owner"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise InUseError(
                f"ring.dir: {directory} is in use by another ibpulse; stop it, or choose another --ring.dir"
            ) from error
        return directory, descriptor

    def restore(self) -> bool:
        """Make and lock the directory again if it was deleted; returns whether it was.

        Raises:
            InUseError: another daemon has made it meanwhile.
            RingError: it cannot be made.
        """
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._lock), os.lstat(self.path / LOCK)):
                return False
        path, lock = self._take()
        os.close(self._lock)
        self.path, self._lock = path, lock
        return True

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._lock)


class LastResort:
    """Ends the process when stopping takes longer than `STOP_SECONDS`, because something hangs.

    Events are on disk by then, and sampler processes end with this one.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def arm(self, code: int) -> None:
        """Begin to count; `code` is the exit code."""
        self._timer = threading.Timer(STOP_SECONDS, self._end, (code,))
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Let the process go on: the daemon has stopped in time."""
        if self._timer is not None:
            self._timer.cancel()

    @staticmethod
    def _end(code: int) -> None:
        with suppress(OSError):
            # a program that reads the log may hang as well
            os.set_blocking(2, False)
            os.write(2, b"stopping takes longer than %g s; ending without waiting for the rest\n" % STOP_SECONDS)
        os._exit(code)


class Daemon:
    """One daemon: supervisor, aggregator and web server over one ring."""

    def __init__(
        self,
        settings: Settings,
        directory: HeldDirectory,
        last_resort: LastResort,
        clock: Clock = time,
        start_process: StartProcess = start_sampler,
        write_capture: WriteCapture | None = None,
    ) -> None:
        self._settings, self._directory, self._last_resort = settings, directory, last_resort
        self.node = make_node(settings, directory.path, clock, start_process, write_capture)
        self._current = CurrentSnapshot(self.node)
        counts = WebCounts(internal_errors=self.node.errors)
        web = settings.web
        self._web_config = WebConfigReloader(web.config_file, counts) if web.config_file else None
        self.parts = WebParts(
            node=self.node,
            current=self._current,
            counts=counts,
            web_config=self._web_config,
            hosts=HostCheck(web.listen_address.host, web.hosts),
        )

    async def run(self) -> int:
        """Run all parts until a signal arrives or one of them fails."""
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        return await self.run_until(asked)

    async def run_until(self, asked: asyncio.Event) -> int:
        """Run all parts until this event is set or one of them fails."""
        await self.node.supervisor.start()
        self._current.begin()
        starting = asyncio.create_task(self._start_captures(), name="captures")
        await asyncio.wait([starting], timeout=CAPTURES_SECONDS)
        tasks = [
            asyncio.create_task(self.node.supervisor.run(), name="supervisor"),
            asyncio.create_task(self._current.run(), name="aggregator"),
            asyncio.create_task(self._serve(), name="web"),
            asyncio.create_task(self._keep_directory(), name="directory"),
        ]
        if self._web_config:
            tasks.append(asyncio.create_task(self._web_config.watch(self.node.errors), name="web configuration"))
        waiting = asyncio.create_task(asked.wait())
        done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        self._last_resort.arm(0 if waiting in done else 1)
        closing = asyncio.create_task(self.node.captures.recorder.close())
        for task in (waiting, starting, *reversed(tasks)):
            task.cancel()
        await asyncio.gather(*tasks, waiting, starting, closing, return_exceptions=True)
        self.node.events.close()
        for task in done - {waiting}:
            task.result()
        if failed := self.node.errors.summary():
            log.warning("%s", failed)
        log.info("stopped")
        return 0

    async def _keep_directory(self) -> None:
        """Restore the directory of the ring whenever it was deleted.

        Raises:
            InUseError: another daemon uses it: two cannot write the plans of their samplers there.
        """
        while True:
            await asyncio.sleep(seconds_until_beat(DIRECTORY_SECONDS, self.node.clock))
            taken: InUseError | None = None
            with self.node.errors.boundary("plan", "ring.dir"):
                try:
                    if not self._directory.restore():
                        continue
                except InUseError as error:
                    taken = error
                else:
                    path = self._directory.path
                    self.node.supervisor.write_plans()
                    self.node.events.retry()
                    log.warning(
                        "ring.dir %s was deleted and is made again; the next daemon has no earlier samples", path
                    )
            if taken:
                raise taken

    async def _start_captures(self) -> None:
        with self.node.errors.boundary("captures", "start"):
            await self.node.captures.recorder.start()

    async def _serve(self) -> None:
        address = self._settings.web.listen_address
        server = await serve(create_app(self.parts), address.host, address.port, web_config=self._web_config)
        self._announce(server.host, server.port)
        # what was built so far is never garbage: keep the collector from walking it
        gc.collect()
        gc.freeze()
        try:
            await server.wait()
        finally:
            self.parts.ending.set()
            await server.stop()

    def _announce(self, host: str, port: int) -> None:
        shown = "localhost" if host in ("::", "0.0.0.0") else f"[{host}]" if ":" in host else host
        reader, slots = self.node.reader, self.node.supervisor.slots
        strides = reader.strides(list(slots.values())) or [1]
        every = [f"{stride * reader.interval_ns / 1e6:g}" for stride in sorted({min(strides), max(strides)})]
        log.info(
            "ibpulse %s sampling %d ports every %s ms, serving %s://%s:%d/",
            __version__,
            len(slots),
            " to ".join(every),
            "https" if self._web_config and self._web_config.rules.tls else "http",
            shown,
            port,
        )
        if not slots:
            log.info("to try ibpulse without RDMA devices, run `%s demo`", own_command())
