"""The values and callables that the web server gets from the daemon."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.aggregator.summary import Summary
from ibpulse.events import EventLog
from ibpulse.events.watch import KnownPort
from ibpulse.flightrecorder.alertmanager import AlertReceiver
from ibpulse.flightrecorder.recorder import FlightRecorder
from ibpulse.internal_errors import Occurrences
from ibpulse.jobs.job_history import JobPorts
from ibpulse.jobs.job_watch import NOTHING, JobsView
from ibpulse.kernel_clock import ClockState, read_clock_state
from ibpulse.model import Fabric
from ibpulse.ring.reader import RingReader
from ibpulse.web.admission import ParallelRequests
from ibpulse.web.application import RequestLimits, ServerParts


@dataclass(frozen=True, slots=True)
class WebLimits(RequestLimits):
    """The limits of a daemon.

    A request is wide if it reads or returns more than `wide_values` values. `max_values` limits one response.
    """

    max_wide_requests: int = 2
    wide_values: int = 100_000
    max_values: int = 200_000
    max_ports: int = 256

    def wide_requests(self, running: str, instead: str) -> ParallelRequests:
        """The wide requests of one kind; the refusal names those that are `running`, and what to ask for `instead`."""
        limit = self.max_wide_requests
        return ParallelRequests(limit, running, instead, name="max_wide_requests", wide_values=self.wide_values)


@dataclass(frozen=True, slots=True)
class CaptureParts:
    """The flight recorder, and who may change captures: anyone if `allow_unauthenticated`, else requests with a user.

    `default_span_ns` is the default time before and after the trigger of a capture; `failures` says which failures of
    the disk to log.
    """

    recorder: FlightRecorder
    alert_receiver: AlertReceiver
    default_span_ns: tuple[int, int]
    allow_unauthenticated: bool = False
    failures: Occurrences = field(default_factory=Occurrences)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebParts(ServerParts):
    """The daemon, as the routes see it.

    `slots` returns the ring slot of each port by its name (`mlx5_0:1`). `metrics` returns body and content type for an
    Accept header and a list of names. `ready` returns the state and a sentence. `summarize` returns the summary of a
    number of whole seconds that end at a wall time (ns), or now, of a job if its ports are given. `node` is the name of
    the node. `snapshot` returns the statistics of the last second, None before the first. `events` is the event log;
    `known_ports` returns the ports of the node and those that disappeared within the history, in natural order. `jobs`
    returns the jobs as of the last reading of their sources, and those of the past.
    """

    reader: RingReader
    fabric: Callable[[], Fabric]
    slots: Callable[[], Mapping[str, int]]
    metrics: Callable[[str | None, Sequence[str]], tuple[bytes, str]]
    heartbeat_age_seconds: Callable[[], float | None]
    ready: Callable[[], tuple[bool, str]]
    summarize: Callable[[int, int | None, JobPorts | None], Summary]
    limits: WebLimits = field(default_factory=WebLimits)
    node: str = field(default_factory=socket.gethostname)
    wall_clock_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    clock_state: Callable[[], ClockState | None] = read_clock_state
    snapshot: Callable[[], Snapshot | None] = lambda: None
    captures: CaptureParts | None = None
    events: EventLog = field(default_factory=EventLog)
    known_ports: Callable[[], tuple[KnownPort, ...]] = tuple
    jobs: Callable[[], JobsView] = lambda: NOTHING
