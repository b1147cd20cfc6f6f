"""The event log: the events of the node in memory and on disk, bounded, and the port history that follows from them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping

from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.events.event import (
    JOB_BEGAN,
    JOB_ENDED,
    JOB_KINDS,
    KINDS,
    STARTED,
    Event,
    concerns,
    is_port_name,
    job_of,
    started_states,
)
from ibpulse.core.events.event_file import EventFile
from ibpulse.core.events.port_history import PortHistory

__all__ = ["MAX_PER_KIND", "MAX_STARTED", "STARTED", "EventLog"]

MAX_PER_KIND = 1000
# each holds the states of all ports
MAX_STARTED = 20
# appends before another attempt to shorten a file that could not be shortened
PATIENCE = 100


class EventLog:
    """The events of this node, at most `MAX_PER_KIND` of each kind.

    If a kind has too many, the oldest event of the port or device with most of them is forgotten, so that a flapping
    port cannot push out the others. The begin of a job is forgotten together with its end, and never while it runs.
    Kinds of a later version count as one kind. Without a file the events are only in memory. One process writes; it
    uses the log in one thread. `interval_ns` is the time between two ticks.
    """

    def __init__(self, file: EventFile | None = None, interval_ns: int = MILLISECOND_NS) -> None:
        self.history = PortHistory()
        self._interval_ns = interval_ns
        self._file = file
        self._kinds: dict[str, dict[str, deque[tuple[int, Event]]]] = {}
        self._sizes: Counter[str] = Counter()
        self._next = 0
        self._loaded = 0
        self._unwritten: int | None = None
        """Number of the first event that is not in the file; None if all are."""
        self._shorten_from = 0
        self._sorted: tuple[tuple[int, Event], ...] | None = None
        self._counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    @property
    def added(self) -> int:
        """The number of events added by this process."""
        return self._next - self._loaded

    def load(self, ring: int) -> None:
        """Take over the events of the file, once, before any is added.

        Ticks of events of another ring than this one are unknown; their states come before its first tick.
        """
        if self._file is None:
            return
        for event in self._file.open():
            self._keep(event)
            self._follow(event, event.tick if event.ring == ring else 0)
        self._loaded = self._next

    def add(self, event: Event) -> None:
        """Add an event, to the file as well."""
        number = self._keep(event)
        self._follow(event, event.tick)
        self._counts[event.kind] += 1
        if self._file is None or self._unwritten is not None:
            return
        if not self._file.append(event):
            self._unwritten = number
        elif self._file.records > max(2 * self._sizes.total() + MAX_STARTED, self._shorten_from):
            self._shorten_from = 0 if self._file.rewrite(self.events()) else self._file.records + PATIENCE

    def retry(self) -> None:
        """Write the events that could not be written before, or whose file was deleted."""
        if self._file is None:
            return
        if not self._file.is_writable:
            self._unwritten = None if self._file.rewrite(self.events()) else self._unwritten or 0
            return
        if self._unwritten is None:
            return
        for number, event in self._numbered(self._unwritten):
            self._unwritten = number
            if not self._file.append(event):
                return
        self._unwritten = None

    def events(self) -> tuple[Event, ...]:
        """All events in the order in which they were added."""
        return tuple(event for _, event in self._numbered(0))

    def between(self, from_ns: int, to_ns: int, kinds: Collection[str] = (), subject: str = "") -> list[Event]:
        """The events that were noticed from wall time `from_ns` up to `to_ns`, exclusive, by time.

        `kinds` and `subject`, a port or a device, choose among them; without, all are returned.
        """
        found = [
            event
            for event in self.events()
            if from_ns <= event.time_ns < to_ns
            and (not kinds or event.kind in kinds)
            and (not subject or concerns(event, subject))
        ]
        return sorted(found, key=lambda event: event.time_ns)

    def after(self, number: int) -> Iterator[Event]:
        """The events that this process added after the first `number`, as far as they are still kept."""
        return (event for _, event in self._numbered(self._loaded + number))

    def counts(self) -> Mapping[str, int]:
        """The number of events added by this process, for every kind."""
        return self._counts

    def close(self) -> None:
        """Write what could not be written before, if that is possible now, and close the file."""
        self.retry()
        if self._file is not None:
            self._file.close()

    def _numbered(self, first: int) -> tuple[tuple[int, Event], ...]:
        """The events with their numbers, from the number `first` on."""
        if self._sorted is None:
            every = [pair for subjects in self._kinds.values() for queue in subjects.values() for pair in queue]
            self._sorted = tuple(sorted(every, key=_number))
        return self._sorted[bisect_left(self._sorted, first, key=_number) :]

    def _keep(self, event: Event) -> int:
        """The number of an event, which is now kept."""
        number, self._next = self._next, self._next + 1
        kind = event.kind if event.kind in KINDS else ""
        subject = event.subject or job_of(event)
        self._kinds.setdefault(kind, {}).setdefault(subject, deque()).append((number, event))
        self._sizes[kind] += 1
        while self._sizes[kind] > (MAX_STARTED if kind == STARTED else MAX_PER_KIND):
            self._forget(kind)
        self._sorted = None
        return number

    def _forget(self, kind: str) -> None:
        """Forget the oldest event of the subject with most of a kind; of a job, all of the first time that it ran."""
        subjects = self._kinds[kind]
        ends = self._kinds.get(JOB_ENDED, {}) if kind in (JOB_BEGAN, JOB_ENDED) else {}
        # of subjects with equally many, the one with the oldest event
        chosen = max(
            subjects.keys() & ends.keys() or subjects,
            key=lambda subject: (len(subjects[subject]), -subjects[subject][0][0]),
        )
        kinds, first = (JOB_KINDS, ends[chosen][0]) if chosen in ends else ((kind,), subjects[chosen][0])
        for each in kinds:
            self._drop(each, chosen, first[0])

    def _drop(self, kind: str, subject: str, last: int) -> None:
        """Drop the events of a kind and a subject up to the number `last`."""
        subjects = self._kinds.get(kind, {})
        queue = subjects.get(subject)
        if queue is None:
            return
        while queue and queue[0][0] <= last:
            queue.popleft()
            self._sizes[kind] -= 1
        if not queue:
            del subjects[subject]

    def _follow(self, event: Event, tick: int) -> None:
        """Take over the states of ports; the tick is 0 if it is unknown. A file may hold names that no port has."""
        states, earlier = started_states(event), -(-event.uncertainty_ns // self._interval_ns)
        if states is not None:
            # events of the time before may have been lost
            for name in {*self.history.names(), *filter(is_port_name, states)}:
                self.history.begin(name, states.get(name))
                self.history.change(name, tick or None, None, states.get(name), earlier)
        elif is_port_name(event.subject) and (event.before is not None or event.after is not None):
            self.history.change(event.subject, tick or None, event.before, event.after, earlier)


def _number(pair: tuple[int, Event]) -> int:
    return pair[0]
