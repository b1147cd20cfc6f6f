"""The flight recorder: accepts capture requests, waits for the end of each window, and writes captures one at a time.

A failed capture is logged and counted; sampling is not affected.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.agent.flightrecorder.store import CaptureOptions, CaptureStore, Stored
from ibpulse.agent.flightrecorder.triggers import AlertReceiver, LocalRules, Trigger, ports_of
from ibpulse.agent.flightrecorder.writer import ENVIRONMENT, OOM_SCORE, Job
from ibpulse.agent.jobs.watch import JobWatch
from ibpulse.base import limits
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import CaptureError
from ibpulse.base.installation import how_to_install
from ibpulse.base.internal_errors import InternalErrors, Occurrences
from ibpulse.base.text import split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.captures import CaptureName, make_name
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import place_in_ring
from ibpulse.core.jobs import JobRecord, list_jobs, trace_jobs
from ibpulse.core.model import CAPTURE_ORIGINS, CaptureCounts, PortId
from ibpulse.core.recordings import RecordedPort, RecordingMeta
from ibpulse.core.recordings.from_ring import RecordedTicks, events_in, line_rates, place_events, ports_at_begin
from ibpulse.core.recordings.recording import MAX_PORTS, jobs_at_begin, jobs_from_json, jobs_to_json, limit_jobs
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader
from ibpulse.core.ring.spans import ticks_to_complete, widest_stride

log = logging.getLogger(__name__)

Result = TypeVar("Result")
WriteCapture = Callable[[Job, float], Awaitable[None]]

NEEDS_ARROW = f"captures are Parquet files, which need pyarrow; {how_to_install('pyarrow')}"
# a row with two rates and two times, with the worst compression
BYTES_PER_ROW = 32
# A hung disk blocks only these threads.
DISK_THREADS = 4
# of the labels in the event of a capture; an alert may have 64 of 1000 characters
MAX_LABEL_CHARACTERS = 2000
CAPTURE = "capture"
# in the event of a capture, the newest jobs and the first ports of each
MAX_NAMED_JOBS, MAX_NAMED_PORTS = 16, 64
# the daemon has five seconds to shut down
CLOSE_SECONDS = 4.0
# measured: 29 to 31 MB besides library pages, however long the capture is; some of those must stay, too
WRITER_BYTES = 36_000_000
GONE = "GONE"


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A port and the last sample at which it was present."""

    port: RecordedPort
    tick: int


class KnownPorts:
    """The latest description of each port, kept for as long as the ring may hold samples of it."""

    def __init__(self, history_ticks: int) -> None:
        self._history_ticks = history_ticks
        self._seen: dict[PortId, LastSeen] = {}
        self._latest_tick = 0
        self.simulated = False
        """Whether the ports are those of a simulator or a replay."""

    def update(self, snapshot: Snapshot) -> None:
        """Update from the snapshot of one more second."""
        tick = self._latest_tick = snapshot.end_tick
        self.simulated = snapshot.fabric.simulated
        here = {port.port.id: port for port in snapshot.ports if port.directions}
        for number, port in here.items():
            self._seen[number] = LastSeen(
                _describe(port, self._seen.get(number), snapshot.sampler.interval_seconds), tick
            )
        for number in self._seen.keys() - here.keys():
            seen = self._seen[number]
            if seen.tick < tick - self._history_ticks:
                del self._seen[number]
            elif seen.port.state != GONE:
                self._seen[number] = replace(seen, port=replace(seen.port, active=False, state=GONE))

    def since(self, tick: int) -> tuple[RecordedPort, ...]:
        """The ports present at this sample or later, sorted by name; future samples count as the latest."""
        begin = min(tick, self._latest_tick)
        chosen = sorted((number, seen.port) for number, seen in self._seen.items() if seen.tick >= begin)
        return tuple(port for _, port in chosen[:MAX_PORTS])


def _describe(seen: PortSnapshot, before: LastSeen | None, interval_seconds: float) -> RecordedPort:
    port = seen.port
    # a port that went down has no rate, but had one while it carried the traffic in the capture
    rate = port.rate_bytes_per_second or (before.port.rate_bytes_per_second if before else None)
    stride = max(1, round(seen.sampling_interval_seconds / interval_seconds))
    known = RecordedPort.of(port, port.source.name if port.source else "", stride)
    return replace(known, rate_bytes_per_second=rate, resolution_seconds=seen.effective_resolution_seconds)


# compared by identity: triggers hold mappings, which have no hash
@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A capture waiting for the end of its window: samples `first_tick` to `last_tick` around a trigger."""

    name: CaptureName
    trigger: Trigger
    first_tick: int
    last_tick: int
    start_ns: int
    ready_ns: int


class FlightRecorder:
    """Captures of one ring. `threads` perform all operations that may block on the captures' disk.

    Captures contain the events of their window from `events`, and each one stored is an event itself. `internal_errors`
    counts unexpected exceptions. `jobs` watches the jobs of the node. `write` writes a capture instead of a separate
    process.
    """

    def __init__(
        self,
        reader: RingReader,
        options: CaptureOptions,
        clock: Clock = time,
        events: EventLog | None = None,
        internal_errors: InternalErrors | None = None,
        jobs: JobWatch | None = None,
        write: WriteCapture | None = None,
    ) -> None:
        self._run_writer = write or run_writer
        self._internal_errors = internal_errors or InternalErrors()
        self._reader = reader
        self._options, self._clock = options, clock
        self._events = EventLog() if events is None else events
        self._jobs = jobs
        self._known_ports = KnownPorts(reader.capacity)
        self._stored: Sequence[Stored] = ()
        self._tasks: dict[Pending, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._ending = asyncio.Event()
        self._taken = dict.fromkeys(CAPTURE_ORIGINS, 0)
        self._errors = 0
        self.store = CaptureStore(options)
        self.threads = DaemonThreads(DISK_THREADS, "captures")

    async def start(self) -> None:
        """Create and clean the directory; a problem is logged now and again at every capture."""
        try:
            await self._on_disk(self.store.prepare)
            await self.refresh()
        except CaptureError as error:
            log.warning("captures cannot be taken: %s", error)
        if importlib.util.find_spec("pyarrow") is None:
            log.warning("captures cannot be taken: %s", NEEDS_ARROW)

    async def _on_disk(self, work: Callable[..., Result], *args: object) -> Result:
        """Run `work` in one of the disk threads and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    def find_problem(self) -> str:
        """The reason why captures are impossible, or an empty string."""
        if importlib.util.find_spec("pyarrow") is None:
            return NEEDS_ARROW
        if not self._known_ports.since(0):
            return "no port is sampled, so there is nothing to capture"
        return ""

    def note(self, snapshot: Snapshot) -> None:
        """Update the known ports from the snapshot of one more second."""
        self._known_ports.update(snapshot)

    def ask(self, trigger: Trigger) -> Pending:
        """The capture for a trigger: a pending one if it covers the same request, else a new one.

        Raises:
            CaptureError: captures are impossible, or (with `busy`) too many are pending.
        """
        if problem := self.find_problem():
            raise CaptureError(problem)
        for pending in self._tasks:
            same = replace(pending.trigger, instant_ns=trigger.instant_ns) == trigger
            if same and trigger.instant_ns <= pending.ready_ns:
                return pending
        if self._ending.is_set() or len(self._tasks) >= self._options.max_pending:
            raise CaptureError(
                f"{len(self._tasks)} captures are already pending, which is the maximum; try again in a few seconds",
                busy=True,
            )
        pending = self._plan(trigger)
        task = asyncio.create_task(self._take_or_count(pending), name=f"capture {pending.name}")
        self._tasks[pending] = task
        task.add_done_callback(lambda _: self._tasks.pop(pending))
        return pending

    def _plan(self, trigger: Trigger) -> Pending:
        interval_ns = self._reader.interval_ns
        before_ns = self._options.before_ns if trigger.before_ns is None else trigger.before_ns
        after_ns = self._options.after_ns if trigger.after_ns is None else trigger.after_ns
        tick = self._reader.tick_at(trigger.instant_ns)
        # a sample's rate covers the interval before it, so `before` includes the trigger's own sample
        before, after = before_ns // interval_ns, after_ns // interval_ns
        first_tick = max(1, tick - before + 1)
        start_ns = (trigger.instant_ns // interval_ns - (tick - first_tick)) * interval_ns
        return Pending(
            name=make_name(trigger.instant_ns, trigger.reason),
            trigger=trigger,
            first_tick=first_tick,
            last_tick=tick + after,
            start_ns=start_ns,
            ready_ns=trigger.instant_ns + after_ns,
        )

    async def _take_or_count(self, pending: Pending) -> None:
        with self._internal_errors.boundary("captures", str(pending.name)):
            try:
                await self._take(pending)
            except Exception:
                self._errors += 1
                raise

    async def _take(self, pending: Pending) -> None:
        """Wait for the end of the window or for shutdown, then write the capture; log failures."""
        try:
            await self._wait(pending)
            async with self._writing:
                jobs = await self._write(pending)
                await self.refresh()
        except CaptureError as error:
            self._errors += 1
            log.error("capture %s failed: %s", pending.name, error)
        except asyncio.CancelledError:
            self._errors += 1
            log.error("capture %s failed: the daemon stopped before it was written", pending.name)
            raise
        else:
            self._taken[pending.trigger.origin] += 1
            self._events.add(self._as_event(pending, jobs))
            log.info("capture %s written: %s", pending.name, pending.trigger.reason)

    async def _wait(self, pending: Pending) -> None:
        widest = widest_stride(port.stride for port in self._known_ports.since(pending.first_tick))
        complete_ns = (GUARD_TICKS + 1 + ticks_to_complete(widest)) * self._reader.interval_ns
        seconds = (pending.ready_ns + complete_ns - self._clock.time_ns()) / SECOND_NS
        try:
            await asyncio.wait_for(self._ending.wait(), max(0.0, seconds))
        except TimeoutError:
            pass  # the window is complete

    async def _write(self, pending: Pending) -> tuple[JobRecord, ...]:
        """Write the capture; returns its jobs."""
        ports = self._known_ports.since(pending.first_tick)
        last_tick = min(pending.last_tick, self._reader.newest_tick(self._clock.time_ns()))
        if not ports or last_tick < pending.first_tick:
            raise CaptureError("the ring holds no samples for the capture's window")
        await self._on_disk(self.store.prepare)
        job = Job(
            ring=self._reader.ring.path,
            path=self.store.path(pending.name),
            first_tick=pending.first_tick,
            last_tick=last_tick,
            start_ns=pending.start_ns,
            meta=self._meta(pending, ports, last_tick),
            lines=tuple(line_rates(self._events.history, ports)),
            file=self._reader.ring.descriptor,
        )
        size_bytes = len(ports) * (last_tick - pending.first_tick + 1) * BYTES_PER_ROW
        for name in await self._on_disk(self.store.make_room, size_bytes):
            log.info("capture %s deleted to make room for %s", name, pending.name)
        try:
            await self._run_writer(job, self._options.writer_seconds)
        except BaseException:
            # not awaited: the disk may have failed, and the daemon may be shutting down
            self.threads.submit(self.store.discard, pending.name)
            raise
        return job.meta.jobs

    def _meta(self, pending: Pending, ports: tuple[RecordedPort, ...], last_tick: int) -> RecordingMeta:
        trigger = pending.trigger
        window = RecordedTicks(pending.first_tick, last_tick + 1, pending.start_ns)
        events, left_out = events_in(self._events, self._reader, window)
        jobs, jobs_left_out = limit_jobs(self._find_jobs(window))
        return RecordingMeta(
            host=self._options.host,
            interval_ns=self._reader.interval_ns,
            ports=ports_at_begin(ports, self._events.history, window),
            events=events,
            events_left_out=left_out,
            source=CAPTURE,
            reason=trigger.reason,
            labels={"trigger": trigger.origin, **trigger.labels},
            trigger_ns=trigger.instant_ns,
            simulated=self._known_ports.simulated,
            jobs=jobs,
            jobs_left_out=jobs_left_out,
        )

    def _find_jobs(self, window: RecordedTicks) -> tuple[JobRecord, ...]:
        """The jobs of the window of a capture."""
        events = place_events(self._events.events(), self._reader, window)
        end_ns = window.start_ns + (window.end - window.first) * self._reader.interval_ns
        running = (self._jobs and self._jobs.view.jobs) or ()
        records = list_jobs(trace_jobs(events), running, window.start_ns)
        return jobs_at_begin(records, window.start_ns, end_ns)

    def _as_event(self, pending: Pending, jobs: Sequence[JobRecord]) -> Event:
        trigger = pending.trigger
        labels = {"trigger": trigger.origin, **trigger.labels}
        if len(str(labels)) > MAX_LABEL_CHARACTERS:
            labels = {"trigger": trigger.origin}
        event = Event(
            trigger.instant_ns,
            CAPTURE,
            "",
            f"capture of {trigger.reason}" + (f", {ports}" if (ports := ports_of(trigger.labels)) else ""),
            details={
                "name": str(pending.name),
                "reason": trigger.reason,
                "labels": labels,
                **self._name_jobs(jobs),
            },
        )
        return place_in_ring(event, self._reader)

    def _name_jobs(self, jobs: Sequence[JobRecord]) -> dict[str, Any]:
        """The newest jobs of a capture; nothing if there is none, and there may be others."""
        if not jobs and not (self._jobs and self._jobs.view.known):
            return {}
        newest = jobs[-MAX_NAMED_JOBS:]
        named = [replace(each, job=replace(each.job, ports=each.job.ports[:MAX_NAMED_PORTS])) for each in newest]
        left_out = len(jobs) - len(newest)
        return {"jobs": jobs_to_json(named), **({"jobs_left_out": left_out} if left_out else {})}

    def jobs_of(self) -> Mapping[str, Sequence[JobRecord]]:
        """The newest jobs of each stored capture by its file name, as far as the event log knows them."""
        found: dict[str, tuple[JobRecord, ...]] = {}
        for name, details in self._logged():
            if "jobs" in details:
                # a log of another version may hold anything
                with suppress(ValueError):
                    found[name] = jobs_from_json(details["jobs"])
        return found

    def ports_of(self) -> Mapping[str, str]:
        """The ports that the trigger of each stored capture names, by file name, as far as the event log knows them."""
        found = {}
        for name, details in self._logged():
            labels = details.get("labels")
            if isinstance(labels, Mapping):
                found[name] = ports_of({key: str(value) for key, value in labels.items()})
        return found

    def _logged(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The details of the events of stored captures by file name."""
        stored = {str(each.name) for each in self._stored}
        for details in (event.details for event in self._events.events() if event.kind == CAPTURE):
            if (name := str(details.get("name"))) in stored:
                yield name, details

    def pending(self) -> list[Pending]:
        """The captures that are waiting or being written, oldest first."""
        return sorted(self._tasks, key=lambda pending: pending.name)

    async def refresh(self) -> Sequence[Stored]:
        """Read the directory again and return the complete captures, oldest first.

        Raises:
            CaptureError: the directory cannot be read.
        """
        self._stored = await self._on_disk(self.store.scan)
        return self._stored

    async def remove(self, name: CaptureName) -> bool:
        """Remove a complete capture; return whether it existed.

        Raises:
            CaptureError: it cannot be removed.
        """
        removed = await self._on_disk(self.store.remove, name)
        await self.refresh()
        return removed

    def counts(self) -> CaptureCounts:
        """The numbers for the capture metrics."""
        newest = self._stored[-1].name.trigger_ms / 1000 if self._stored else None
        return CaptureCounts(
            taken=tuple(self._taken.items()),
            errors=self._errors,
            stored=len(self._stored),
            stored_bytes=sum(stored.size_bytes for stored in self._stored),
            newest_seconds=newest,
        )

    async def close(self) -> None:
        """Write the pending captures with the samples in the ring; cancel those that need more than `CLOSE_SECONDS`."""
        self._ending.set()
        tasks = list(self._tasks.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def run_writer(job: Job, seconds: float) -> None:
    """Write a capture in a separate process, which is killed after `seconds`.

    Raises:
        CaptureError: it was not written; the message comes from the process, or there is no memory for one.
    """
    left = limits.left_in_cgroups()
    if left is not None and left < WRITER_BYTES:
        # the kernel may kill the daemon, which is larger, whatever `oom_score_adj` says
        raise CaptureError(
            f"only {left / 1e6:.0f} MB are left of the memory limit of this service, and its writer needs "
            f"{WRITER_BYTES / 1e6:.0f} MB; raise the limit"
        )
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ibpulse.agent.flightrecorder.writer", str(int(seconds))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C goes to the daemon, which waits for its captures
            start_new_session=True,
            pass_fds=() if job.file is None else (job.file,),
            env={**os.environ, **ENVIRONMENT},
        )
    except OSError as error:
        raise CaptureError(f"cannot start its writer: {error.strerror}") from error
    # when memory runs out, the kernel kills this process rather than the daemon
    with suppress(OSError):
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(OOM_SCORE)
    try:
        _, said = await asyncio.wait_for(process.communicate(job.dump()), seconds)
    except TimeoutError as error:
        raise CaptureError(
            f"writing it took longer than {seconds:g} s; is the disk of capture.dir slow, or the machine busy?"
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = split_lines(said.decode(errors="replace").strip())
        raise CaptureError(lines[-1] if lines else f"its writer exited with status {process.returncode}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captures:
    """The captures of a node, and who may change them: anyone if `allow_unauthenticated`, else requests with a user.

    `default_span_ns` is the default time before and after the trigger of a capture; `failures` says which failures of
    the disk to log.
    """

    recorder: FlightRecorder
    rules: LocalRules
    alert_receiver: AlertReceiver
    default_span_ns: tuple[int, int]
    allow_unauthenticated: bool
    failures: Occurrences = field(default_factory=Occurrences)

    def note(self, snapshot: Snapshot) -> None:
        """Follow the ports of a snapshot, and start the captures that its seconds trigger."""
        self.recorder.note(snapshot)
        for trigger in self.rules.evaluate(snapshot):
            details = ", ".join(f"{name} {value!r}" for name, value in trigger.labels.items())
            try:
                pending = self.recorder.ask(trigger)
            except CaptureError as error:
                log.warning("%s (%s): no capture taken: %s", trigger.reason, details, error)
            else:
                log.info("%s (%s): writing capture %s", trigger.reason, details, pending.name)
