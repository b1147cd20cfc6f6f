"""The event log: the events of the node in memory and on disk, bounded, and the port history that follows from them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from itertools import count

from ibpulse.events.event import KINDS, Event, concerns, state_from_json
from ibpulse.events.event_file import EventFile
from ibpulse.events.port_history import PortHistory

MAX_PER_KIND = 1000
# each holds the states of all ports
MAX_STARTED = 20
STARTED = "started"


class EventLog:
    """The events of this node, at most `MAX_PER_KIND` of each kind.

    If a kind has too many, the oldest event of the port or device with most of them is forgotten, so that a flapping
    port cannot push out the others. Without a file the events are only in memory. One process writes; it uses the log
    in one thread.
    """

    def __init__(self, file: EventFile | None = None) -> None:
        self.history = PortHistory()
        self.added = 0
        """The number of events added by this process."""
        self._file = file
        self._kinds: dict[str, dict[str, deque[tuple[int, Event]]]] = {}
        self._sizes: Counter[str] = Counter()
        self._numbers = count()
        self._sorted: tuple[Event, ...] | None = None
        self._counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    def load(self, ring: int) -> None:
        """Take over the events of the file. Ticks of events of another ring than this one are unknown."""
        if self._file is None:
            return
        for event in self._file.open():
            self._keep(event)
            self._follow(event, event.tick if event.ring == ring else 0)

    def add(self, event: Event) -> None:
        """Add an event, to the file as well."""
        self._keep(event)
        self._follow(event, event.tick)
        self._counts[event.kind] += 1
        self.added += 1
        if self._file is None:
            return
        self._file.append(event)
        if self._file.records > 2 * self._sizes.total() + MAX_STARTED:
            self._file.rewrite(self.events())

    def retry(self) -> None:
        """Write the file again if it could not be written."""
        if self._file is not None and self._file.behind:
            self._file.rewrite(self.events())

    def events(self) -> tuple[Event, ...]:
        """All events in the order in which they were added."""
        if self._sorted is None:
            every = [pair for subjects in self._kinds.values() for queue in subjects.values() for pair in queue]
            self._sorted = tuple(event for _, event in sorted(every, key=lambda pair: pair[0]))
        return self._sorted

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
        fresh = self.added - number
        return iter(self.events()[-fresh:] if fresh > 0 else ())

    def counts(self) -> Mapping[str, int]:
        """The number of events added by this process, for every kind."""
        return self._counts

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _keep(self, event: Event) -> None:
        subjects = self._kinds.setdefault(event.kind, {})
        subjects.setdefault(event.subject, deque()).append((next(self._numbers), event))
        self._sizes[event.kind] += 1
        if self._sizes[event.kind] > (MAX_STARTED if event.kind == STARTED else MAX_PER_KIND):
            most = max(subjects, key=lambda subject: len(subjects[subject]))
            subjects[most].popleft()
            self._sizes[event.kind] -= 1
            if not subjects[most]:
                del subjects[most]
        self._sorted = None

    def _follow(self, event: Event, tick: int) -> None:
        """Take over the states of ports."""
        if event.kind == STARTED:
            for name, members in event.details.get("ports", {}).items():
                self.history.begin(name, state_from_json(members))
        elif event.before is not None or event.after is not None:
            self.history.change(event.subject, tick, event.before, event.after)
