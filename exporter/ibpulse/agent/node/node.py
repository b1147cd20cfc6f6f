"""The node of a daemon: everything that samples it and knows its state, its current statistics, and how it is built."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.snapshot import TIMESCALES_NS, WINDOWS_NS
from ibpulse.agent.config import Settings
from ibpulse.agent.flightrecorder.recorder import Captures, FlightRecorder, WriteCapture
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.flightrecorder.triggers import AlertReceiver, LocalRules, RuleOptions
from ibpulse.agent.jobs.watch import JobSources, JobWatch, choose_sources
from ibpulse.agent.node.silence import JobSilences
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.supervisor import Supervisor, SupervisorOptions, heartbeat_bound_seconds
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler, temporary_sampler
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.links import StatePoller
from ibpulse.agent.sysfs.netlink import count_queue_pairs, is_kernel_tree, open_monitor, read_port
from ibpulse.agent.sysfs.overrides import read_overrides
from ibpulse.agent.sysfs.roles import ExpectedRails
from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import BEAT_SECONDS, seconds_until_beat
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import sentence_list
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.jobs import SilenceAnswer
from ibpulse.core.answers.summary import Summary
from ibpulse.core.captures import COOLDOWN_NS
from ibpulse.core.events import EventLog
from ibpulse.core.events.log import NAME as EVENTS_NAME
from ibpulse.core.events.log import EventFile
from ibpulse.core.events.watch import CounterResets, note_phases
from ibpulse.core.jobs import JobPorts, PlacedJob
from ibpulse.core.model import Fabric
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.statistics.signature import MoeSaturationOptions

MAX_NAMED = 4
# The ends of the ring cannot be read while the sampler writes there.
SPARE_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts that sample one node into one ring, and what several of them say together."""

    name: str
    clock: Clock
    errors: InternalErrors
    reader: RingReader
    events: EventLog
    supervisor: Supervisor
    aggregator: Aggregator
    expected_rails: ExpectedRails
    jobs: JobWatch
    silences: JobSilences
    captures: Captures

    def fabric(self) -> Fabric:
        """The fabric with the notices of all parts."""
        return self.aggregator.with_notices(self.sampled_fabric())

    def sampled_fabric(self) -> Fabric:
        """The fabric with the notices about jobs, and one for each internal error; the aggregator adds its own."""
        fabric, notices = self.supervisor.fabric, (*self.jobs.view.notices, *self.errors.notices())
        return replace(fabric, notices=(*fabric.notices, *notices)) if notices else fabric

    def readiness(self) -> tuple[bool, str]:
        """Whether samples are taken, and a sentence."""
        ready, text = self._find_readiness()
        # the notices have paths, and a probe needs no password
        parts = self.errors.failing_parts()
        return ready, f"{text} Internal errors in {sentence_list(parts)}; see the log." if parts else text

    def _find_readiness(self) -> tuple[bool, str]:
        if not any(port.source is not None for port in self.supervisor.fabric.ports):
            return True, "Ready: no port can be sampled; checking for one every few seconds."
        age = self.supervisor.heartbeat_age_seconds()
        if age is None:
            return False, "Not ready: waiting for the first sample."
        if age > heartbeat_bound_seconds(self.reader.interval_ns):
            return False, f"Not ready: no sample was taken for {age:.0f} s; see the log."
        troubled = [known for known in self.supervisor.known_ports() if known.problem]
        missing = "".join(f" {known.port.id}: {known.problem}." for known in troubled[:MAX_NAMED])
        return True, f"Ready: sampling {len(self.supervisor.slots)} ports.{missing}"

    def summarize(self, seconds: int, end_ns: int | None, had: JobPorts | None = None) -> Summary:
        """The summary of a number of whole seconds that end at a wall time, or now; of a job if its ports are given."""
        ports = [known.port for known in self.supervisor.known_ports()]
        return self.aggregator.summarize(ports, seconds, end_ns, jobs=self.jobs.view.records, had=had)


# Several seconds at a time cost less than half as much. The rules of captures see them this much later.
BATCH_SECONDS = 5
# Statistics that could not be brought up to date for this long are not exported: they would pass for current ones.
STALE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _InForce:
    """The ports and the jobs with which seconds are aggregated."""

    fabric: Fabric
    jobs: Sequence[PlacedJob] | None

    def is_alike(self, other: _InForce) -> bool:
        """Whether the other one has the same ports and jobs; states of ports are in the event log."""
        if self.jobs is not other.jobs:
            return False
        ours, theirs = self.fabric.ports, other.fabric.ports
        return ours is theirs or [(port.id, port.source) for port in ours] == [
            (port.id, port.source) for port in theirs
        ]


class CurrentSnapshot:
    """The newest snapshot. All that ask within a second get the same one; all methods belong to one thread.

    Events and captures follow each snapshot once. Nothing that fails ends sampling; statistics that grow old are
    withdrawn.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._reader = node, node.reader
        self._errors, self._clock = node.errors, node.clock
        self._resets = CounterResets(node.events, node.reader, node.clock)
        self._ticks_per_second = SECOND_NS // node.reader.interval_ns
        self._snapshot: Snapshot | None = None
        self._in_force: _InForce | None = None
        self._jobs: Sequence[PlacedJob] | None = None
        # the wall second that was the newest at the last update
        self._second = 0
        self._failing_since: float | None = None

    def get(self, counters_now: bool = False) -> Snapshot | None:
        """The snapshot up to the newest whole second; None if the statistics cannot be brought up to date."""
        second = self._newest_second()
        if second != self._second:
            self._bring_up(second, counters_now)
        return self._snapshot

    def get_now(self) -> Snapshot | None:
        """The newest snapshot, with the counters of its ports up to now."""
        before, snapshot = self._snapshot, self.get(counters_now=True)
        if snapshot is None or snapshot is not before or self._failing_since is not None:
            return snapshot
        with self._errors.boundary("aggregation"):
            return self._node.aggregator.with_counters_now(snapshot, self._reader.newest_tick())
        return snapshot

    def silences(self) -> list[SilenceAnswer] | None:
        """The silences of the jobs, up to now; None after an internal error."""
        with self._errors.boundary("jobs", "silences"):
            self._node.silences.update(self._node.jobs.view, self._node.supervisor.fabric)
            return self._node.silences.describe()
        return None

    def _judge_silences(self) -> None:
        with self._errors.boundary("jobs", "silences"):
            self._node.silences.update(self._node.jobs.view, self._node.supervisor.fabric)
        with self._errors.boundary("jobs", "verdicts"):
            self._node.silences.judge(self._node.name)
            if self._node.silences.wants_counters():
                self._node.supervisor.rescan()

    def begin(self) -> None:
        """Aggregate what the ring has, for the first time."""
        self._read_jobs()
        self.get()

    async def run(self) -> None:
        """Follow the jobs every second, and aggregate at least every `BATCH_SECONDS`."""
        while True:
            await asyncio.sleep(seconds_until_beat(1.0, self._clock))
            self._read_jobs()
            self._judge_silences()
            second = self._newest_second()
            # the wall clock may have been stepped back
            if not self._second < second < self._second + BATCH_SECONDS or self._changed():
                self.get()

    def _newest_second(self) -> int:
        """The number of the newest second that is whole, since the epoch."""
        return int(self._clock.time() - BEAT_SECONDS)

    def _read_jobs(self) -> None:
        with self._errors.boundary("jobs"):
            self._node.jobs.update(self._node.supervisor.fabric)
            self._jobs = self._node.jobs.view.jobs

    def _changed(self) -> bool:
        return self._in_force is None or not self._in_force.is_alike(_InForce(self._node.sampled_fabric(), self._jobs))

    def _bring_up(self, second: int, counters_now: bool) -> None:
        self._second = second
        newest, now = self._reader.newest_tick(), _InForce(self._node.sampled_fabric(), self._jobs)
        with self._errors.boundary("aggregation"):
            if self._in_force is not None and not self._in_force.is_alike(now):
                # the seconds before the last one had the ports and the jobs of then
                self._take(self._in_force, newest - self._ticks_per_second, False)
            self._in_force = now
            self._take(now, newest, counters_now)
            self._failing_since = None
            return
        self._failing_since = self._failing_since or self._clock.monotonic()
        if self._clock.monotonic() - self._failing_since >= STALE_SECONDS:
            self._snapshot = None

    def _take(self, given: _InForce, tick: int, counters_now: bool) -> None:
        node = self._node
        expected_rails = node.expected_rails.update(given.fabric)
        self._snapshot = replace(
            node.aggregator.update(given.fabric, tick, given.jobs, counters_now),
            health=node.supervisor.health(),
            captures=node.captures.recorder.counts(),
            known_ports=tuple(node.supervisor.known_ports()),
            event_counts=dict(node.events.counts()),
            expected_rails=expected_rails,
            jobs_known=node.jobs.view.whole,
            job_stalls=node.silences.stalls(),
        )
        self._note(self._snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        with self._errors.boundary("events", "of statistics"):
            note_phases(self._node.events, self._reader, snapshot.phases)
            # another device has an event of its own
            resets = {str(port.port.id): port.resets - port.replacements for port in snapshot.ports}
            self._resets.note(resets, {str(port.port.id): port.jumps for port in snapshot.ports})
        with self._errors.boundary("captures", "rules"):
            self._node.captures.note(snapshot)


def make_inventory(
    settings: Settings, counters: CounterSet = "none", errors: InternalErrors | None = None, clock: Clock | None = None
) -> Inventory:
    """The inventory of this node's ports and of the error counters to read.

    Raises:
        ConfigError: the file of topology.file is invalid.
    """
    ports = settings.ports
    overrides = read_overrides(settings.topology.file)
    root = Path(settings.path.sysfs)
    real = is_kernel_tree(root)
    return Inventory(
        root,
        ports.include,
        ports.exclude,
        ports.roles,
        counters=counters,
        overrides=overrides,
        errors=errors,
        ask=read_port if real else None,
        count=count_queue_pairs if real else None,
        sources=ports.sources,
        clock=None if clock is None else clock.monotonic_ns,
        signals=settings.sampler.signals > 0,
    )


def supervisor_options(settings: Settings) -> SupervisorOptions:
    """The options of the sampler process, and the interval at which devices are re-read."""
    sampler = settings.sampler
    return SupervisorOptions(
        scheduler=sampler.scheduler,
        cpu=sampler.cpu,
        scan_seconds=settings.slow.interval / SECOND_NS,
        signal_ticks=-(-sampler.signals // sampler.interval),
    )


def make_temporary_sampler(
    settings: Settings, history_seconds: int, clock: Clock = time, start_process: StartProcess = start_sampler
) -> AbstractAsyncContextManager[TemporarySampler]:
    """Samples every port of this node while one command runs, without error counters; leaves no files behind.

    Raises:
        IbpulseError: the ring cannot be created, or the sampler cannot be started.
    """
    return temporary_sampler(
        make_inventory(settings),
        supervisor_options(settings),
        settings.sampler.interval,
        history_seconds,
        StatePoller(Path(settings.path.sysfs), clock=clock),
        clock,
        start_process,
    )


def aggregator_options(settings: Settings) -> AggregatorOptions:
    """The thresholds, windows and timescales of all statistics."""
    analysis = settings.analysis
    return AggregatorOptions(
        active_bytes_per_second=analysis.active_threshold,
        windows_ns=tuple(window_ns for window_ns in WINDOWS_NS if window_ns <= settings.sampler.history),
        timescales_ns=tuple(scale_ns for scale_ns in TIMESCALES_NS if scale_ns % settings.sampler.interval == 0),
        traffic_window_ns=analysis.traffic_window,
        moe_saturation=MoeSaturationOptions(
            least_duty=analysis.moe_saturation_duty,
            least_peak_utilization=analysis.moe_saturation_peak,
            hold_seconds=analysis.moe_saturation_hold / SECOND_NS,
        ),
        xmit_wait_tick_bytes=settings.slow.xmit_wait_tick,
    )


def make_node(
    settings: Settings,
    directory: Path,
    clock: Clock = time,
    start_process: StartProcess = start_sampler,
    write_capture: WriteCapture | None = None,
) -> Node:
    """The node of a daemon, with its ring and its event log in `directory`, where those of earlier daemons go on.

    Raises:
        IbpulseError: the ring cannot be used, or a setting names an invalid file.
    """
    interval_ns = settings.sampler.interval
    capacity = (settings.sampler.history + SPARE_SECONDS * SECOND_NS) // interval_ns
    errors = InternalErrors(clock.monotonic)
    options = supervisor_options(settings)
    ring = RingFile.open_or_create(directory / "ring", interval_ns, capacity, clock, options.count_readings(capacity))
    reader = RingReader(ring)
    events = EventLog(EventFile(directory / EVENTS_NAME), ring.interval_ns)
    events.load(ring.words[H_CREATED_WALL_NS])
    inventory = make_inventory(settings, settings.slow.counters, errors, clock)
    states = StatePoller(Path(settings.path.sysfs), errors=errors, clock=clock)
    monitor = open_monitor() if is_kernel_tree(Path(settings.path.sysfs)) else None
    supervisor = Supervisor(ring, inventory, options, events, states, errors, clock, start_process, monitor)
    jobs = make_job_watch(settings, events, reader, errors, clock)
    recorder = FlightRecorder(reader, capture_options(settings), clock, events, errors, jobs, write_capture)
    return Node(
        name=find_node_name(settings),
        clock=clock,
        errors=errors,
        reader=reader,
        events=events,
        supervisor=supervisor,
        aggregator=Aggregator(reader, aggregator_options(settings), events.history),
        expected_rails=ExpectedRails(events, settings.ports.expected_rails),
        jobs=jobs,
        silences=JobSilences(reader, events, settings.analysis.active_threshold),
        captures=make_captures(settings, recorder),
    )


def make_job_watch(
    settings: Settings, events: EventLog, reader: RingReader, errors: InternalErrors, clock: Clock
) -> JobWatch:
    """The watch over the jobs of this node."""
    jobs = settings.jobs
    places = {"auto": Path(settings.path.sysfs) / "fs" / "cgroup", "off": None}
    cgroup = jobs.cgroup if isinstance(jobs.cgroup, Path) else places[jobs.cgroup]
    sources = JobSources(choose_sources(cgroup, jobs.mapping_dir, jobs.owners_dir), errors, clock)
    return JobWatch(sources, events, reader, settings.slow.interval / SECOND_NS, names=jobs.names, clock=clock)


def find_node_name(settings: Settings) -> str:
    """The name of this node."""
    # in a pod the host name is the pod's, and the setting is the node's
    return settings.capture.node[0] if settings.capture.node else socket.gethostname()


def capture_options(settings: Settings) -> CaptureOptions:
    """Where captures are kept and how many; they carry the node's configured name, else the host name."""
    capture = settings.capture
    return CaptureOptions(
        directory=capture.dir,
        host=find_node_name(settings),
        before_ns=capture.before,
        after_ns=capture.after,
        max_bytes=capture.max_bytes,
        min_free_bytes=capture.min_free,
    )


def make_captures(settings: Settings, recorder: FlightRecorder) -> Captures:
    """The flight recorder with what triggers it on this node."""
    capture = settings.capture
    options = RuleOptions(traffic_window_seconds=settings.analysis.traffic_window / SECOND_NS)
    return Captures(
        recorder=recorder,
        rules=LocalRules(capture.rules, COOLDOWN_NS, options),
        alert_receiver=AlertReceiver(capture.node or (socket.gethostname(),), COOLDOWN_NS),
        default_span_ns=(capture.before, capture.after),
        allow_unauthenticated=capture.allow_unauthenticated,
    )
