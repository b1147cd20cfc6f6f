"""The events of a recording: from the log of its ring, or from a daemon; and the jobs of a daemon's node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ibpulse.answers.jobs import JobAnswer, JobsAnswer
from ibpulse.answers.members import read_members
from ibpulse.client import DaemonConnection, ask_events, reading
from ibpulse.errors import DaemonError
from ibpulse.events import Event, EventLog, PortHistory
from ibpulse.events.event import JOB_KINDS
from ibpulse.jobs.job_history import Holding, JobRecord, read_job
from ibpulse.recordings.recorded_jobs import MOST_JOBS
from ibpulse.recordings.recording import RecordedPort, limit_events
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.text import show
from ibpulse.units import MILLISECOND_NS, SECOND_NS

log = logging.getLogger(__name__)

# a daemon may notice an event this long after it happened, and lists it only then
LATE_NS = 60 * SECOND_NS
APPEARED = "appeared"


@dataclass(frozen=True, slots=True)
class RecordedTicks:
    """The ticks of a recording from `first` up to `end`, exclusive; the first sample is at wall time `start_ns`."""

    first: int
    end: int
    start_ns: int


def ports_at_begin(
    ports: Iterable[RecordedPort], history: PortHistory, ticks: RecordedTicks
) -> tuple[RecordedPort, ...]:
    """The ports as of the beginning of a recording; a port that appeared later, as of then.

    A port that the history does not know stays as it is.
    """
    return tuple(_at_begin(port, history, ticks) for port in ports)


def _at_begin(port: RecordedPort, history: PortHistory, ticks: RecordedTicks) -> RecordedPort:
    # a change at the first tick is an event of the recording
    spans = history.spans(str(port.id), ticks.first - 1, ticks.end)
    states = [span.state for span in spans if span.state is not None]
    return port.in_state(states[0]) if states else port


def events_in(log: EventLog, reader: RingReader, ticks: RecordedTicks) -> tuple[tuple[Event, ...], int]:
    """The events of a recording of a ring, and the number of those above its limit."""
    return limit_events(_within(log.events(), reader, ticks))


def place_events(events: Iterable[Event], reader: RingReader, ticks: RecordedTicks) -> list[Event]:
    """The events with their times in a recording of a ring, also those from before and after it.

    When the wall clock is set, the times of a recording go on at the interval, and so do those of its events. An event
    outside keeps its time unless that is on the other side or within.
    """
    ring, interval_ns = reader.ring.words[at.H_CREATED_WALL_NS], reader.interval_ns
    count, placed = ticks.end - ticks.first, []
    for event in events:
        sample = (event.time_ns - ticks.start_ns) // interval_ns
        here = event.tick - ticks.first if event.tick and event.ring == ring else sample
        is_right = here == sample or max(here, sample) < 0 or min(here, sample) >= count
        placed.append(event if is_right else replace(event, time_ns=ticks.start_ns + here * interval_ns))
    return placed


def _within(events: Iterable[Event], reader: RingReader, ticks: RecordedTicks) -> list[Event]:
    """The events of a recording of a ring by its times."""
    end_ns = ticks.start_ns + (ticks.end - ticks.first) * reader.interval_ns
    return [event for event in place_events(events, reader, ticks) if ticks.start_ns <= event.time_ns < end_ns]


class LogEvents:
    """The events of a log since the first tick of a recording of its ring, each once."""

    def __init__(
        self, events: EventLog, reader: RingReader, ticks: RecordedTicks, ports: Iterable[RecordedPort]
    ) -> None:
        self._log, self._reader, self._ticks = events, reader, ticks
        self._names = {str(port.id) for port in ports}
        self._number = 0

    async def read(self) -> Sequence[Event]:
        """The events that were added since the last call."""
        fresh = list(self._log.after(self._number))
        self._number = self._log.added
        return mark_others(_within(fresh, self._reader, self._ticks), self._names)


class DaemonEvents:
    """The events of a daemon's node since the beginning of a recording, each once.

    `begin` returns the wall time of the first sample, None until it is known.
    """

    def __init__(
        self, connection: DaemonConnection, begin: Callable[[], int | None], ports: Iterable[RecordedPort]
    ) -> None:
        self._connection, self._begin = connection, begin
        self._newest_ns = 0
        self._names = {str(port.id) for port in ports}
        self._seen: set[tuple[int, str, str, str]] = set()

    async def read(self) -> Sequence[Event]:
        """The events that the daemon lists since the last call; none while it does not answer."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> Sequence[Event]:
        first_ns = self._begin()
        if first_ns is None:
            return []
        # what happened to jobs since they were asked for is followed
        begin_ns = max(0, max(first_ns, self._newest_ns) - LATE_NS)
        try:
            events = ask_events(self._connection, begin_ns).values
        except DaemonError as error:
            # the source of samples reports it if it lasts
            log.debug("%s; retrying", error)
            return []
        fresh = [
            event
            for event in events
            if _key(event) not in self._seen and (event.time_ns >= first_ns or event.kind in JOB_KINDS)
        ]
        self._seen = {_key(event) for event in events}
        self._newest_ns = max([self._newest_ns, *(event.time_ns for event in events)])
        return mark_others(fresh, self._names)


def _key(event: Event) -> tuple[int, str, str, str]:
    return event.time_ns, event.kind, event.subject, event.text


def mark_others(events: Sequence[Event], names: Collection[str]) -> Sequence[Event]:
    """The events, with a note at the ports that appeared during a recording, because it does not contain them."""
    return [
        replace(event, text=f"{event.text}; it is not recorded")
        if event.kind == APPEARED and event.subject not in names
        else event
        for event in events
    ]


def ask_jobs(connection: DaemonConnection) -> tuple[JobRecord, ...]:
    """The jobs of a daemon's node: those that run and those that ended within its history.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    body = connection.get("/api/v1/jobs").body
    with reading(connection):
        return tuple(map(job_from_answer, read_members(JobsAnswer, body).jobs[:MOST_JOBS]))


def job_from_answer(answer: JobAnswer) -> JobRecord:
    """A job that a daemon describes.

    Raises:
        ValueError: its id or its basis is none.
    """
    job = read_job(vars(answer))
    if job is None:
        raise ValueError(f"{show(answer.job_id)} is not a job")
    return JobRecord(
        job,
        None if answer.began_ms is None else answer.began_ms * MILLISECOND_NS,
        answer.began_uncertainty_ms * MILLISECOND_NS,
        None if answer.ended_ms is None else answer.ended_ms * MILLISECOND_NS,
        answer.ended_uncertainty_ms * MILLISECOND_NS,
        (Holding(job.ports),),
    )
