"""The running daemon: supervisor, aggregator, flight recorder and web server over one ring."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

from ibpulse import __version__, exposition, memory, owned_files
from ibpulse.aggregator import Snapshot
from ibpulse.aggregator.summary import Summary
from ibpulse.clocks import Clock
from ibpulse.commands.current_snapshot import CurrentSnapshot
from ibpulse.commands.own_command import own_command
from ibpulse.commands.wiring import (
    find_node_name,
    make_aggregator,
    make_alert_receiver,
    make_event_log,
    make_expected_rails,
    make_flight_recorder,
    make_job_watch,
    make_local_rules,
    make_supervisor,
)
from ibpulse.config import Settings
from ibpulse.deadline import call_all
from ibpulse.errors import CaptureError, RingError
from ibpulse.events import EventLog
from ibpulse.events.phase_events import PhaseEvents
from ibpulse.events.watch import CounterResets
from ibpulse.flightrecorder.recorder import WriteCapture
from ibpulse.internal_errors import InternalErrors
from ibpulse.jobs import PlacedJob
from ibpulse.jobs.job_history import JobPorts
from ibpulse.jobs.job_watch import NOTHING, JobsView
from ibpulse.metrics.web import WebCounts
from ibpulse.model import Fabric
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.lane import StartProcess, start_sampler
from ibpulse.sampler.scheduling import allow_open_files
from ibpulse.text import sentence_list
from ibpulse.units import SECOND_NS
from ibpulse.web.app import create_app
from ibpulse.web.auth.reload import WebConfigReloader
from ibpulse.web.host_names import HostCheck
from ibpulse.web.parts import CaptureParts, WebLimits, WebParts
from ibpulse.web.server import plain, serve

log = logging.getLogger(__name__)
# The ends of the ring cannot be read while the sampler writes there.
SPARE_SECONDS = 2
# 320 connections, five files of each link of 256 ports, and the rest
OPEN_FILES = 2048
# Imported by libraries at the first use, when there may be no descriptor for it.
LATE_IMPORTS = ("numpy.fft", "anyio._backends._asyncio")
MOST_NAMED = 4
# A disk that hangs delays the start no longer than this.
CAPTURES_SECONDS = 2.0
# Stopping takes less, unless something hangs that cannot be cancelled.
STOP_SECONDS = 5.0
LOG_SECONDS = 0.2


class Captures:
    """The flight recorder with its local rules and its alert receiver."""

    def __init__(
        self,
        settings: Settings,
        reader: RingReader,
        events: EventLog,
        errors: InternalErrors,
        jobs: Callable[[], JobsView] = lambda: NOTHING,
        clock: Clock = time,
        write: WriteCapture | None = None,
    ) -> None:
        capture = settings.capture
        self.recorder = make_flight_recorder(settings, reader, events, errors, jobs, clock, write)
        self._rules = make_local_rules(settings)
        self.parts = CaptureParts(
            recorder=self.recorder,
            alert_receiver=make_alert_receiver(settings),
            default_span_ns=(capture.before, capture.after),
            allow_unauthenticated=capture.allow_unauthenticated,
        )

    def note(self, snapshot: Snapshot) -> None:
        """Follow the ports of a snapshot, and start the captures that its seconds trigger."""
        self.recorder.note(snapshot)
        for trigger in self._rules.evaluate(snapshot):
            details = ", ".join(f"{name} {value!r}" for name, value in trigger.labels.items())
            try:
                pending = self.recorder.ask(trigger)
            except CaptureError as error:
                log.warning("%s (%s): no capture taken: %s", trigger.reason, details, error)
            else:
                log.info("%s (%s): writing capture %s", trigger.reason, details, pending.name)


def run_daemon(settings: Settings) -> int:
    """Sample and serve until SIGTERM or SIGINT; returns the exit code."""
    allowed = allow_open_files(OPEN_FILES)
    if allowed < OPEN_FILES:
        log.warning("the limit of open files is %d: raise it to %d (LimitNOFILE=, ulimit -n)", allowed, OPEN_FILES)
    memory.keep_freed()
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    with (
        hold(Path(settings.ring.dir)) as directory,
        closing(LastResort()) as last_resort,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(Daemon(settings, directory, last_resort).run())


@contextmanager
def hold(given: Path) -> Iterator[Path]:
    """The directory of the ring and its other files at or below `given`, locked against a second daemon.

    Raises:
        RingError: another daemon uses it, it is not writable, or another user can replace its files.
    """
    try:
        directory = owned_files.make_directory(given)
        descriptor = owned_files.open_to_write(directory / "lock", create=True)
    except OSError as error:
        raise RingError(
            f"ring.dir: {given} cannot be used: {error.strerror}; choose a directory that belongs to root or to "
            f"user {os.geteuid()}, or change its owner"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RingError(
            f"ring.dir: {directory} is in use by another ibpulse; stop it, or choose another --ring.dir"
        ) from error
    try:
        yield directory
    finally:
        os.close(descriptor)


class LastResort:
    """Ends the process when stopping takes longer than `STOP_SECONDS`, because something hangs.

    Events are on disk by then, and sampler processes end with this one.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def arm(self, code: int) -> None:
        """Begin to count; `code` is the exit code."""
        self._timer = threading.Timer(STOP_SECONDS - LOG_SECONDS, self._end, (code,))
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Let the process go on: the daemon has stopped in time."""
        if self._timer is not None:
            self._timer.cancel()

    @staticmethod
    def _end(code: int) -> None:
        said = f"stopping takes longer than {STOP_SECONDS:g} s; ending without waiting for the rest"
        # a program that reads the log may hang as well
        call_all({"log": lambda: log.error("%s", said)}, LOG_SECONDS)
        os._exit(code)


class Daemon:
    """One daemon: supervisor, aggregator and web server over one ring."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        last_resort: LastResort,
        clock: Clock = time,
        start_process: StartProcess = start_sampler,
        write_capture: WriteCapture | None = None,
    ) -> None:
        interval_ns = settings.sampler.interval
        capacity = (settings.sampler.history + SPARE_SECONDS * SECOND_NS) // interval_ns
        self._settings, self._clock = settings, clock
        self._last_resort = last_resort
        self._errors = InternalErrors(clock.monotonic)
        self._ring = RingFile.open_or_create(directory / "ring", interval_ns, capacity, clock)
        self._reader = RingReader(self._ring)
        self._events = make_event_log(directory, self._ring)
        self._supervisor = make_supervisor(settings, self._ring, self._events, self._errors, clock, start_process)
        self._aggregator = make_aggregator(settings, self._reader, self._events.history)
        self._expected_rails = make_expected_rails(settings, self._events)
        self._jobs = make_job_watch(settings, self._events, self._reader, self._errors, clock)
        self._resets = CounterResets(self._events, self._reader, clock)
        self._phases = PhaseEvents(self._events, self._reader)
        self._registry = exposition.process_registry()
        self._counts = WebCounts(internal_errors=self._errors.counts)
        self._captures = Captures(
            settings, self._reader, self._events, self._errors, lambda: self._jobs.view, clock, write_capture
        )
        self._ending = asyncio.Event()
        web_config = settings.web.config_file
        self._web_config = WebConfigReloader(web_config, self._counts) if web_config else None
        self._current = CurrentSnapshot(
            self._reader,
            self._update,
            self._aggregator.with_counters_now,
            self._fabric,
            self._follow_jobs,
            self._note,
            self._errors,
            clock,
        )

    async def run(self) -> int:
        """Run all parts until a signal arrives or one of them fails."""
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        return await self.run_until(asked)

    async def run_until(self, asked: asyncio.Event) -> int:
        """Run all parts until this event is set or one of them fails."""
        await self._supervisor.start()
        self._current.begin()
        starting = asyncio.create_task(self._start_captures(), name="captures")
        await asyncio.wait([starting], timeout=CAPTURES_SECONDS)
        tasks = [
            asyncio.create_task(self._supervisor.run(), name="supervisor"),
            asyncio.create_task(self._current.run(), name="aggregator"),
            asyncio.create_task(self._serve(), name="web"),
        ]
        if self._web_config:
            tasks.append(asyncio.create_task(self._watch_web_config(self._web_config), name="web configuration"))
        waiting = asyncio.create_task(asked.wait())
        done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        self._last_resort.arm(0 if waiting in done else 1)
        closing = asyncio.create_task(self._captures.recorder.close())
        for task in (waiting, starting, *reversed(tasks)):
            task.cancel()
        await asyncio.gather(*tasks, waiting, starting, closing, return_exceptions=True)
        self._events.close()
        for task in done - {waiting}:
            task.result()
        if failed := self._errors.summary():
            log.warning("%s", failed)
        log.info("stopped")
        return 0

    async def _start_captures(self) -> None:
        with self._errors.boundary("captures", "start"):
            await self._captures.recorder.start()

    async def _serve(self) -> None:
        address = self._settings.web.listen_address
        tls = self._web_config.tls if self._web_config else plain
        server = await serve(create_app(self._web_parts()), address.host, address.port, tls=tls)
        self._announce(server.host, server.port)
        # what was built so far is never garbage: keep the collector from walking it
        gc.collect()
        gc.freeze()
        try:
            await server.wait()
        finally:
            self._ending.set()
            await server.stop()

    def _announce(self, host: str, port: int) -> None:
        shown = "localhost" if host in ("::", "0.0.0.0") else f"[{host}]" if ":" in host else host
        ports = len(self._supervisor.slots)
        interval_ms = self._ring.interval_ns / 1e6
        log.info(
            "ibpulse %s sampling %d ports every %g ms, serving %s://%s:%d/",
            __version__,
            ports,
            interval_ms,
            "https" if self._web_config and self._web_config.tls() else "http",
            shown,
            port,
        )
        if not ports:
            log.info("without RDMA devices, `%s demo` shows a simulated fabric", own_command())

    def _web_parts(self) -> WebParts:
        return WebParts(
            reader=self._reader,
            fabric=lambda: self._aggregator.with_notices(self._fabric()),
            slots=lambda: self._supervisor.slots,
            metrics=self._metrics,
            heartbeat_age_seconds=self._supervisor.heartbeat_age_seconds,
            ready=self._ready,
            summarize=self._summarize,
            version=__version__,
            node=find_node_name(self._settings),
            limits=WebLimits(),
            counts=self._counts,
            snapshot=self._current.get,
            ending=self._ending,
            web_config=self._web_config,
            hosts=HostCheck(self._settings.web.listen_address.host, self._settings.web.hosts),
            captures=self._captures.parts,
            events=self._events,
            known_ports=self._supervisor.known_ports,
            jobs=lambda: self._jobs.view,
            wall_clock_ns=self._clock.time_ns,
            monotonic_ns=self._clock.monotonic_ns,
        )

    def _summarize(self, seconds: int, end_ns: int | None, had: JobPorts | None = None) -> Summary:
        ports = [known.port for known in self._supervisor.known_ports()]
        return self._aggregator.summarize(ports, seconds, end_ns, jobs=self._jobs.view.records, had=had)

    def _metrics(self, accept: str | None, names: Sequence[str]) -> tuple[bytes, str]:
        return exposition.render(self._current.get_now(), self._registry, accept, names, self._counts)

    def _fabric(self) -> Fabric:
        """The fabric with the notices about jobs, and one for each internal error."""
        fabric, notices = self._supervisor.fabric, (*self._jobs.view.notices, *self._errors.notices())
        return replace(fabric, notices=(*fabric.notices, *notices)) if notices else fabric

    def _ready(self) -> tuple[bool, str]:
        ready, text = self._find_readiness()
        # the notices have paths, and a probe needs no password
        parts = self._errors.failing_parts()
        return ready, f"{text} Internal errors in {sentence_list(parts)}; see the log." if parts else text

    def _find_readiness(self) -> tuple[bool, str]:
        if not any(port.source is not None for port in self._supervisor.fabric.ports):
            return True, "Ready: no port of this node counts bytes; checking for one every few seconds."
        if self._supervisor.heartbeat_age_seconds() is None:
            return False, "Not ready: waiting for the first sample."
        troubled = [known for known in self._supervisor.known_ports() if known.problem]
        missing = "".join(f" {known.port.id}: {known.problem}." for known in troubled[:MOST_NAMED])
        return True, f"Ready: sampling {len(self._supervisor.slots)} ports.{missing}"

    async def _watch_web_config(self, config: WebConfigReloader) -> None:
        while True:
            with self._errors.boundary("web"):
                await config.watch()

    def _follow_jobs(self) -> Sequence[PlacedJob] | None:
        self._jobs.update(self._supervisor.fabric)
        return self._jobs.view.jobs

    def _update(self, fabric: Fabric, jobs: Sequence[PlacedJob] | None, now_tick: int, counters_now: bool) -> Snapshot:
        snapshot = self._aggregator.update(
            fabric,
            self._supervisor.health(),
            now_tick,
            self._captures.recorder.counts(),
            self._supervisor.known_ports(),
            self._events.counts(),
            self._expected_rails.update(fabric),
            jobs,
            counters_now,
        )
        return replace(snapshot, jobs_known=self._jobs.view.whole)

    def _note(self, snapshot: Snapshot) -> None:
        with self._errors.boundary("events", "of statistics"):
            self._phases.note(snapshot.phases)
            # another device has an event of its own
            resets = {str(port.port.id): port.resets - port.replacements for port in snapshot.ports}
            self._resets.note(resets, {str(port.port.id): port.jumps for port in snapshot.ports})
        with self._errors.boundary("captures", "rules"):
            self._captures.note(snapshot)
