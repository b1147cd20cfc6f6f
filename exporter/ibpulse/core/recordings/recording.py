"""A recording in memory: the rates of all its ports on one regular grid of wall time, its events and jobs."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from ibpulse import __version__
from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.events import Event, PortHistory
from ibpulse.core.events.event import MAX_INTEGER, STARTED, from_json, to_json
from ibpulse.core.jobs import (
    BEGAN,
    CHANGED,
    ENDED,
    Holding,
    JobRecord,
    Key,
    PlacedJob,
    job_details,
    read_job,
    trace_jobs,
)
from ibpulse.core.model import MAX_PORT_NUMBER, UNKNOWN_ROLE, Port, PortId, PortIdentity, PortState, settle_role
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import PortSignals, SignalReadings, join_signals, no_readings
from ibpulse.core.statistics.plausible import Steps, lower_bound

MAX_JOBS = 1000
MAX_JOB_BYTES = 500_000
TIMES = ("began_ns", "began_uncertainty_ns", "ended_ns", "ended_uncertainty_ns")


def jobs_at_begin(records: Iterable[JobRecord], begin_ns: int, end_ns: int) -> tuple[JobRecord, ...]:
    """The jobs that ran between two wall times, by their begin, each with the ports that it had first in between.

    A job whose ports became known only later has none.
    """
    found = []
    for record in records:
        late = record.began_ns is not None and record.began_ns >= end_ns
        if late or (record.ended_ns is not None and record.ended_ns <= begin_ns):
            continue
        had = next((each.ports for each in record.holdings if each.overlaps(begin_ns, end_ns)), ())
        claim = replace(record.job.claim, gpus=(), gpu_indexes=(), devices=())
        job = PlacedJob(claim, had, record.job.basis if had else "")
        found.append(replace(record, job=job, holdings=(Holding(had),)))
    return tuple(sorted(found, key=lambda record: record.began_ns or 0))


def trace_holdings(jobs: Iterable[JobRecord], events: Iterable[Event]) -> tuple[JobRecord, ...]:
    """The jobs of a recording with all ports that they had in it, by its events."""
    found = list(jobs)
    # an event belongs to the last job of its id that had begun by then
    places: dict[Key, list[int]] = {}
    for place in sorted(range(len(found)), key=lambda place: found[place].began_ns or 0):
        places.setdefault(found[place].job.claim.key, []).append(place)
    for event in events:
        job = read_job(event.details) if event.kind in (BEGAN, CHANGED) else None
        mine = [] if job is None else places.get(job.claim.key, [])
        at = bisect_right(mine, event.time_ns, key=lambda place: found[place].began_ns or 0)
        if job is None or not at:
            continue
        record = found[mine[at - 1]]
        if record.ended_ns is None or event.time_ns <= record.ended_ns:
            begun = replace(record, holdings=(Holding(job.ports, event),))
            found[mine[at - 1]] = begun if event.kind == BEGAN else record.changed(job, event)
    return tuple(
        record
        if record.ended_ns is None
        else record.ended(Event(record.ended_ns, ENDED, "", "", record.ended_uncertainty_ns))
        for record in found
    )


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """The samples of a part of a recording: `count` of them from wall time `start_ns` on."""

    start_ns: int
    interval_ns: int
    count: int

    def at(self, event: Event | None, otherwise: int) -> int:
        """The sample at which an event was noticed; `otherwise` without an event, both within 0 to `count`."""
        sample = otherwise if event is None else (event.time_ns - self.start_ns) // self.interval_ns
        return min(max(0, sample), self.count)


def trace_owners(
    records: Iterable[JobRecord], names: Collection[str], states: PortHistory, samples: SampleTimes
) -> Mapping[str, Mapping[Key, list[tuple[int, int]]]]:
    """The jobs of each of the ports that had any, with the spans of samples, up to the end, exclusive, of each.

    A job that lost a port only because it disappeared keeps it meanwhile. `records` have their holdings; the ticks of
    `states` are samples.
    """
    found: dict[str, dict[Key, list[tuple[int, int]]]] = {}
    wanted = {*names}
    for record in records:
        held: set[str] = set()
        for holding in record.holdings:
            first, end = samples.at(holding.since, 0), samples.at(holding.until, samples.count)
            gone = {name for name in held if states.at(name, first) is None}
            held = gone | {str(port) for port in holding.ports} & wanted
            for name in held if first < end else ():
                found.setdefault(name, {}).setdefault(record.job.claim.key, []).append((first, end))
    return found


def jobs_to_json(jobs: Iterable[JobRecord]) -> list[dict[str, Any]]:
    """The jobs as values of JSON; members that are empty or 0, and times that are not known, are absent."""
    return [
        {**job_details(record.job), **{name: time_ns for name in TIMES if (time_ns := getattr(record, name))}}
        for record in jobs
    ]


def jobs_from_json(members: object) -> tuple[JobRecord, ...]:
    """The jobs of `jobs_to_json`.

    Raises:
        ValueError: they are too many or not jobs; the message continues a sentence that begins with the file name.
    """
    if not isinstance(members, list):
        raise ValueError("has invalid metadata: jobs are not a list")  # noqa: TRY004 (a fault of the value)
    if len(members) > MAX_JOBS:
        raise ValueError(f"has {len(members)} jobs; at most {MAX_JOBS} are read")
    return tuple(job_from_json(each) for each in members)


def job_from_json(members: object) -> JobRecord:
    """One of the jobs of `jobs_to_json`.

    Raises:
        ValueError: it is not a job; the message continues as in `jobs_from_json`.
    """
    job = read_job(members) if isinstance(members, dict) else None
    if job is None:
        raise ValueError("has invalid metadata: jobs: a job is not an object with an id")
    assert isinstance(members, dict)
    numbers = {name: members.get(name) for name in TIMES}
    for name, number in numbers.items():
        if not (number is None or (type(number) is int and 0 <= number <= MAX_INTEGER)):
            raise ValueError(f"has invalid metadata: jobs: {name} of job {job.claim.id} is not a time in nanoseconds")
    return JobRecord(
        job,
        numbers["began_ns"],
        numbers["began_uncertainty_ns"] or 0,
        numbers["ended_ns"],
        numbers["ended_uncertainty_ns"] or 0,
        (Holding(job.ports),),
    )


def limit_jobs(jobs: Iterable[JobRecord]) -> tuple[tuple[JobRecord, ...], int]:
    """The jobs that a recording can hold, by their begin, and the number of those left out: the first that ended."""
    every = list(jobs)
    going = sorted(every, key=lambda record: MAX_INTEGER if record.ended_ns is None else record.ended_ns)
    sizes = [len(orjson.dumps(jobs_to_json([record]))) for record in going]
    total, left_out = sum(sizes), 0
    while len(going) - left_out > MAX_JOBS or total > MAX_JOB_BYTES:
        total, left_out = total - sizes[left_out], left_out + 1
    gone = {id(record) for record in going[:left_out]}
    return tuple(record for record in every if id(record) not in gone), left_out


Number = TypeVar("Number", bound=np.generic)
# the number of slots of a ring
MAX_PORTS = 256
MAX_INTERVAL_NS = 3_600_000_000_000
LATEST_NS = 2**63 - 1
# a counter that jumps by all its 64 bits in a microsecond makes 7e25; squares and sums of such rates are finite
MAX_BYTES_PER_SECOND = 1e27
MAX_SECONDS = LATEST_NS / 1e9
# about 400 bytes of JSON each
MAX_EVENTS = 4000
MAX_EVENT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class RecordedPort:
    """One port of a recording, as of the beginning of the recording, or as of its appearance if that was later.

    `rate_bytes_per_second` is the data rate of one direction, None if unknown. `source` names the counters, which were
    read every `stride` intervals; `resolution_seconds` is the time between their changes, None if not measured.
    `physical`, `problem` and `role` are as in `PortState`. `signals` are its counters that are signs of congestion.
    """

    device: str
    port: int
    rate_bytes_per_second: float | None = None
    rail: bool = True
    active: bool = True
    state: str = ""
    source: str = ""
    stride: int = 1
    resolution_seconds: float | None = None
    identity: PortIdentity = field(default_factory=PortIdentity)
    physical: str = ""
    problem: str = ""
    role: str = UNKNOWN_ROLE
    signals: tuple[Signal, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", settle_role(self.rail, self.role))
        if not self.device or not 0 <= self.port <= MAX_PORT_NUMBER:
            raise ValueError(f"{self.device!r}:{self.port} names no port")
        if self.stride < 1:
            raise ValueError(f"port {self.id} has a stride of {self.stride}; the least is 1")

    @classmethod
    def of(cls, port: Port, source: str, stride: int) -> RecordedPort:
        """The current state of a port whose counters `source` are read every `stride` intervals."""
        return cls(
            device=port.id.device,
            port=port.id.port,
            rate_bytes_per_second=port.rate_bytes_per_second,
            rail=port.rail,
            role=port.role,
            active=port.active,
            state=port.state,
            source=source,
            stride=stride,
            identity=port.identity,
            signals=port.signals.signals if port.signals else (),
        )

    @property
    def id(self) -> PortId:
        """Device and number; as text `mlx5_0:1`."""
        return PortId(self.device, self.port)

    @property
    def first_state(self) -> PortState:
        """The properties that belong to a moment."""
        return PortState(**{name: getattr(self, name) for name in _STATE_MEMBERS})

    def in_state(self, state: PortState) -> RecordedPort:
        """The port with another first state."""
        return replace(self, **{name: getattr(state, name) for name in _STATE_MEMBERS})


_STATE_MEMBERS = tuple(member.name for member in fields(PortState))


@dataclass(frozen=True, slots=True)
class RecordingMeta:
    """Metadata of a recording.

    `source` names its origin: `capture`, `record`, or another word. `reason`, `labels` and `trigger_ns` (wall time)
    belong to captures. `complete` is false if the recording was cut off before it was finished. `events` are in order
    of time; the states of the ports follow from `ports` and from them. `events_left_out` counts those above the limit.
    `simulated`: the ports were those of a simulator or a replay. `jobs` ran within the recording; each has the ports
    that it had first in it, and later ones follow from the events. `jobs_left_out` counts those above the limit.
    """

    host: str
    interval_ns: int
    ports: tuple[RecordedPort, ...]
    source: str
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    trigger_ns: int | None = None
    ibpulse_version: str = __version__
    complete: bool = True
    events: tuple[Event, ...] = ()
    events_left_out: int = 0
    simulated: bool = False
    jobs: tuple[JobRecord, ...] = ()
    jobs_left_out: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.interval_ns <= MAX_INTERVAL_NS:
            raise ValueError(f"an interval of {self.interval_ns} ns is out of bounds; at most an hour, above 0")
        if not 0 < len(self.ports) <= MAX_PORTS:
            raise ValueError(f"{len(self.ports)} ports; a recording has 1 to {MAX_PORTS}")
        if len({port.id for port in self.ports}) < len(self.ports):
            raise ValueError("a port is listed twice")
        if len(self.events) > MAX_EVENTS:
            raise ValueError(f"{len(self.events)} events; a recording has at most {MAX_EVENTS}")
        if len(self.jobs) > MAX_JOBS:
            raise ValueError(f"{len(self.jobs)} jobs; a recording has at most {MAX_JOBS}")

    def named_rows(self, names: Collection[str]) -> tuple[list[int], list[str]]:
        """The rows of the ports with these names, where that of a device is of all its ports; and the names of none."""
        own = [{str(port.id), port.device} for port in self.ports]
        known = set[str]().union(*own)
        return [row for row, each in enumerate(own) if each & set(names)], [name for name in names if name not in known]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Rates of `meta.ports`, in their order, from wall time `start_ns` on, one sample every `meta.interval_ns`.

    `bytes_per_second` is float64 (ports, 2, samples), transmit and receive: the mean rate since the previous sample,
    NaN for a missing sample. `seconds`, of the same shape, is the measured time of each rate, 0 for a missing sample.
    `steps`, of the same shape, is the uncertainty of each rate in steps of 0.1 %; `merged` marks rates that are the
    mean of several samples, because one was above the line rate. They are None if nothing is known about them.
    `signals` has an entry for each port, or none at all.

    Invariant: without missing samples, the sum of `bytes_per_second * seconds` is the increase of the counter.
    """

    meta: RecordingMeta
    start_ns: int
    bytes_per_second: Floats
    seconds: Floats
    steps: Steps | None = None
    merged: Bools | None = None
    signals: tuple[PortSignals, ...] = ()

    def __post_init__(self) -> None:
        shape = self.bytes_per_second.shape
        if len(shape) != 3 or shape[:2] != (len(self.meta.ports), 2) or self.seconds.shape != shape:
            raise ValueError(f"arrays of {shape} and {self.seconds.shape} do not fit {len(self.meta.ports)} ports")
        if self.start_ns < 0 or self.start_ns + shape[2] * self.meta.interval_ns > LATEST_NS:
            raise ValueError(f"{shape[2]} ticks from {self.start_ns} ns on are outside of 1970 to 2262")
        if any(each is not None and each.shape != shape for each in (self.steps, self.merged)):
            raise ValueError(f"uncertainties or marks do not fit the rates, of {shape}")
        holes = np.isnan(self.bytes_per_second)
        sound = (self.seconds >= 0) & (self.seconds <= MAX_SECONDS)
        sound &= ((self.bytes_per_second >= 0) & (self.bytes_per_second <= MAX_BYTES_PER_SECOND)) | holes
        if not sound.all():
            raise ValueError("a rate or its time is negative or not finite, or higher than counters can make it")
        if self.seconds[holes].any():
            raise ValueError("a missing sample has a duration; its seconds must be 0")
        if self.signals:
            widths = [each.counters.shape[1] for each in self.signals]
            if widths != [len(port.signals) for port in self.meta.ports]:
                raise ValueError(f"readings of {widths} signals do not fit the ports")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recording):
            return NotImplemented
        return (
            (self.meta, self.start_ns) == (other.meta, other.start_ns)
            and np.array_equal(self.bytes_per_second, other.bytes_per_second, equal_nan=True)
            and np.array_equal(self.seconds, other.seconds)
            and _same(self.steps, other.steps)
            and _same(self.merged, other.merged)
            and self.every_signals == other.every_signals
        )

    def __hash__(self) -> int:
        return hash((self.start_ns, self.seconds.shape))

    @property
    def every_signals(self) -> tuple[PortSignals, ...]:
        """The signals of each port."""
        return self.signals or tuple(no_readings(len(port.signals)) for port in self.meta.ports)

    def readings(self, row: int) -> SignalReadings:
        """The readings of the signals of a port by its row."""
        signals = self.meta.ports[row].signals
        return self.every_signals[row].readings(signals, self.start_ns, self.meta.interval_ns)

    @property
    def ticks(self) -> int:
        """Number of samples per port."""
        return int(self.bytes_per_second.shape[2])

    @property
    def peaks(self) -> Floats:
        """The certain part of the rates, for every statistic that is a maximum."""
        return self.bytes_per_second if self.steps is None else lower_bound(self.bytes_per_second, self.steps)

    @property
    def end_ns(self) -> int:
        """Wall time at which the next sample would be."""
        return self.start_ns + self.ticks * self.meta.interval_ns

    @property
    def states(self) -> PortHistory:
        """The states of its ports; ticks are the indices of its samples. Each access computes it again.

        A port that did not exist at the beginning has no state until it appeared.
        """
        return history_of(self.meta, self.start_ns)

    def time_ns(self) -> Counts:
        """Wall time of each sample in ns since the epoch: int64 (samples,)."""
        return self.start_ns + self.meta.interval_ns * np.arange(self.ticks, dtype=np.int64)

    def cut(self, first: int, end: int) -> Recording:
        """The samples from index `first` up to but not including `end`, as views.

        The metadata is that of the whole recording; `states` counts from the first sample of the part.
        """
        first, end, _ = slice(first, end).indices(self.ticks)
        start_ns = self.start_ns + first * self.meta.interval_ns
        part = np.s_[:, :, first:end]
        steps = None if self.steps is None else self.steps[part]
        merged = None if self.merged is None else self.merged[part]
        signals = tuple(each.cut(first, end) for each in self.signals)
        return Recording(self.meta, start_ns, self.bytes_per_second[part], self.seconds[part], steps, merged, signals)


def _same(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> bool:
    """Whether both are equal; None stands for zeros."""
    if one is None or other is None:
        return not any(each is not None and each.any() for each in (one, other))
    return np.array_equal(one, other)


def history_of(meta: RecordingMeta, start_ns: int) -> PortHistory:
    """The states of the ports of a recording; ticks are intervals after the sample at wall time `start_ns`."""
    ports = {str(port.id): port.first_state for port in meta.ports}
    history = PortHistory()
    for event in meta.events:
        if event.subject in ports and (event.before, event.after) != (None, None):
            history.change(event.subject, (event.time_ns - start_ns) // meta.interval_ns, event.before, event.after)
    for name, state in ports.items():
        history.begin(name, state)
    return history


def meta_with(meta: RecordingMeta, events: Iterable[Event], begin_ns: int, end_ns: int) -> RecordingMeta:
    """The metadata of a recording that grew from `begin_ns` up to `end_ns`, with its events, and the jobs by them.

    Events of jobs from before it are only followed.
    """
    told = sorted((event for event in events if event.time_ns < end_ns), key=lambda event: event.time_ns)
    jobs, jobs_left_out = limit_jobs(jobs_at_begin(trace_jobs(told, meta.jobs), begin_ns, end_ns))
    kept, left_out = limit_events(event for event in told if event.time_ns >= begin_ns)
    return replace(meta, events=kept, events_left_out=left_out, jobs=jobs, jobs_left_out=jobs_left_out)


def meta_between(meta: RecordingMeta, begin_ns: int, end_ns: int) -> RecordingMeta:
    """The metadata of the part of a recording from the sample at wall time `begin_ns` to before `end_ns`.

    It has the events and jobs of the part, and the ports as of its beginning.
    """
    history = history_of(meta, begin_ns)
    ports = []
    for port in meta.ports:
        state, later = history.at(str(port.id), -1), history.spans(str(port.id), -1, LATEST_NS)
        gone = replace(port.first_state, active=False, state="", physical="", problem="disappeared")
        appears = any(span.state is not None for span in later)
        ports.append(port if state is None and appears else port.in_state(state or gone))
    events = tuple(event for event in meta.events if begin_ns <= event.time_ns < end_ns)
    jobs = jobs_at_begin(trace_holdings(meta.jobs, meta.events), begin_ns, end_ns)
    return replace(meta, ports=tuple(ports), events=events, jobs=jobs)


def events_to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events as values of JSON, without their place in a ring and the ports of `started`, which it has itself."""
    return [to_json(replace(event, tick=0, ring=0, details=_details(event))) for event in events]


def _details(event: Event) -> Mapping[str, Any]:
    if event.kind != STARTED:
        return event.details
    return {name: value for name, value in event.details.items() if name != "ports"}


def events_from_json(members: object) -> tuple[Event, ...]:
    """The events of `events_to_json` in order of time.

    Raises:
        ValueError: they are too many or not events; the message continues a sentence that begins with the file name.
    """
    count = len(members) if isinstance(members, list) else 0
    if count > MAX_EVENTS:
        raise ValueError(f"has {count} events; at most {MAX_EVENTS} are read")
    try:
        events = [from_json(each) for each in (members if isinstance(members, list) else [members])]
    except ValueError as error:
        raise ValueError(f"has invalid metadata: events: {error}") from error
    return tuple(sorted(events, key=lambda event: event.time_ns))


def limit_events(events: Iterable[Event]) -> tuple[tuple[Event, ...], int]:
    """The events that a recording can hold, in order of time, and the number of those left out.

    If there are too many, the oldest of the port or device with most of them are left out, so that a flapping port
    cannot push out the others.
    """
    subjects: dict[str, deque[tuple[int, Event]]] = {}
    count = total_bytes = left_out = 0
    for event in sorted(events, key=lambda event: event.time_ns):
        size = len(orjson.dumps(events_to_json([event])))
        subjects.setdefault(event.subject, deque()).append((size, event))
        count, total_bytes = count + 1, total_bytes + size
    while count > MAX_EVENTS or total_bytes > MAX_EVENT_BYTES:
        size, _ = max(subjects.values(), key=len).popleft()
        count, total_bytes, left_out = count - 1, total_bytes - size, left_out + 1
    kept = [event for queue in subjects.values() for _, event in queue]
    return tuple(sorted(kept, key=lambda event: event.time_ns)), left_out


def concatenate(pieces: Sequence[Recording]) -> Recording:
    """Contiguous pieces as one recording.

    Raises:
        ValueError: there are no pieces, or they are not contiguous.
    """
    if not pieces:
        raise ValueError("there is no piece to put together")
    first = pieces[0]
    for before, after in itertools.pairwise(pieces):
        if after.start_ns != before.end_ns or after.meta != first.meta:
            raise ValueError(
                f"a piece begins at {after.start_ns} ns, not at {before.end_ns} ns where the last one ends"
            )
    return Recording(
        first.meta,
        first.start_ns,
        np.concatenate([piece.bytes_per_second for piece in pieces], axis=2),
        np.concatenate([piece.seconds for piece in pieces], axis=2),
        _join([piece.steps for piece in pieces], pieces),
        _join([piece.merged for piece in pieces], pieces),
        _join_signals(pieces),
    )


def _join_signals(pieces: Sequence[Recording]) -> tuple[PortSignals, ...]:
    if not any(piece.signals for piece in pieces):
        return ()
    ticks = [piece.ticks for piece in pieces]
    return tuple(join_signals(parts, ticks) for parts in zip(*(piece.every_signals for piece in pieces), strict=True))


def _join(arrays: Sequence[npt.NDArray[Number] | None], pieces: Sequence[Recording]) -> npt.NDArray[Number] | None:
    """The arrays of pieces, zeros in place of None; None if all are."""
    some = next((each for each in arrays if each is not None), None)
    if some is None:
        return None
    pairs = zip(arrays, pieces, strict=True)
    return np.concatenate(
        [np.zeros(piece.seconds.shape, some.dtype) if each is None else each for each, piece in pairs], axis=2
    )
