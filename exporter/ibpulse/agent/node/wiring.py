"""Builds the parts that sample a node from the settings, for the daemon and for commands that sample."""

from __future__ import annotations

import socket
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.aggregator.snapshot import TIMESCALES_NS, WINDOWS_NS
from ibpulse.agent.config import Settings
from ibpulse.agent.flightrecorder.recorder import Captures, FlightRecorder, WriteCapture
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.flightrecorder.triggers import AlertReceiver, LocalRules, RuleOptions
from ibpulse.agent.jobs.sources import JobSources, choose_sources
from ibpulse.agent.jobs.watch import JobWatch
from ibpulse.agent.node.node import Node
from ibpulse.agent.node.silence import JobSilences
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.supervisor import Supervisor, SupervisorOptions
from ibpulse.agent.sampler.temporary_sampler import TemporarySampler, temporary_sampler
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.expected_rails import ExpectedRails
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.agent.sysfs.links import StatePoller
from ibpulse.agent.sysfs.netlink import count_queue_pairs, is_kernel_tree, open_monitor, read_port
from ibpulse.agent.sysfs.overrides import read_overrides
from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.units import SECOND_NS
from ibpulse.core.captures import COOLDOWN_NS
from ibpulse.core.events import EventLog
from ibpulse.core.events.log import NAME as EVENTS_NAME
from ibpulse.core.events.log import EventFile
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.statistics.signature import MoeSaturationOptions

# The ends of the ring cannot be read while the sampler writes there.
SPARE_SECONDS = 2


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
