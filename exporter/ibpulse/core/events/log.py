"""The events of the node, bounded: in memory, with the port history that follows from them, and in a file.

The file is text, written by one process and read by any number. Its first line is `ibpulse-events 1`, with the version
of the format. Each other line is the JSON of one event. A reader skips lines that are not. The writer appends; to drop
old events, it writes a new file and renames it.
"""

from __future__ import annotations

import bisect
import json
import logging
import os
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from ibpulse.base import owned_files
from ibpulse.base.text import natural_key
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.events.event import (
    JOB_BEGAN,
    JOB_ENDED,
    JOB_KINDS,
    KINDS,
    STARTED,
    Event,
    concerns,
    from_json,
    is_port_name,
    job_of,
    started_states,
    to_json,
)
from ibpulse.core.model import PortState
from ibpulse.core.statistics.plausible import UNLIMITED, LineRate

log = logging.getLogger(__name__)

NAME = "events"
VERSION = 1
HEAD = b"ibpulse-events "
# the log's own bounds keep lines and files far below these
MAX_LINE_BYTES = 1_000_000
MAX_FILE_BYTES = 64_000_000
MAX_PER_KIND = 1000
# a file has at most twice as many as the log
MAX_READ = 2 * MAX_PER_KIND * (len(KINDS) + 1)
# each holds the states of all ports
MAX_STARTED = 20
# appends before another attempt to shorten a file that could not be shortened
PATIENCE = 100


@dataclass(frozen=True, slots=True)
class _Timeline:
    """The states of one port: `states[0]` before `ticks[0]`, then `states[n]` from `ticks[n - 1]` on.

    Each change may have happened at any tick from `earliest` on. `line` follows from the others.
    """

    states: tuple[PortState | None, ...]
    ticks: tuple[int, ...] = ()
    earliest: tuple[int, ...] = ()
    line: LineRate = UNLIMITED

    @classmethod
    def of(
        cls, states: tuple[PortState | None, ...], ticks: tuple[int, ...] = (), earliest: tuple[int, ...] = ()
    ) -> _Timeline:
        """A timeline with its line rate: the largest one wherever the tick of a change is uncertain."""
        rates = [(state and state.rate_bytes_per_second) or inf for state in states]
        changes = [n for n, (before, after) in enumerate(pairwise(rates)) if before != after]
        rates = [rates[0], *(rates[n + 1] for n in changes)]
        # the sample at the tick of a change covers the time before it
        begins = [-inf, *accumulate((earliest[n] for n in changes), max)]
        ends = [ticks[n] + 1 for n in changes]
        edges = sorted({*begins, *ends})
        highest = [max(rates[bisect.bisect_right(ends, at) : bisect.bisect_right(begins, at)]) for at in edges]
        return cls(states, ticks, earliest, LineRate(tuple(highest), tuple(int(at) for at in edges[1:])))

    def at(self, tick: int) -> PortState | None:
        return self.states[bisect.bisect_right(self.ticks, tick)]


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state and the ticks from `first` up to `end`, exclusive, in which a port was in it; None: it did not exist."""

    first: int
    end: int
    state: PortState | None


class PortHistory:
    """The states of the ports. Ticks are those of one ring; what was before the first change is assumed unchanged.

    One thread changes it; others may ask at the same time, because a timeline is replaced and never changed.
    """

    def __init__(self) -> None:
        self._ports: dict[str, _Timeline] = {}

    def begin(self, name: str, state: PortState | None) -> None:
        """Set the state before the first change of a port that is not known yet."""
        self._ports.setdefault(name, _Timeline.of((state,)))

    def change(
        self, name: str, tick: int | None, before: PortState | None, after: PortState | None, earlier: int = 0
    ) -> None:
        """A port is in another state from `tick` on, or already from up to `earlier` ticks before.

        A tick that is older than the last change, or unknown (None), counts as the last change; if there was none, the
        state of an unknown tick is that before the first change. `before` is only used for a port that is not known
        yet.
        """
        line = self._ports.setdefault(name, _Timeline.of((before,)))
        states, ticks, earliest = line.states, line.ticks, line.earliest
        first = 0 if tick is None else tick - earlier
        if ticks and (tick is None or tick <= ticks[-1]):
            first = earliest[-1] if tick is None else min(first, earliest[-1])
            tick, ticks, earliest, states = ticks[-1], ticks[:-1], earliest[:-1], states[:-1]
        if tick is None:
            states = (*states[:-1], after)
        elif after != states[-1]:
            states, ticks, earliest = (*states, after), (*ticks, tick), (*earliest, first)
        self._ports[name] = _Timeline.of(states, ticks, earliest)

    def forget_before(self, tick: int) -> None:
        """Forget changes before a tick, and ports that did not exist since."""
        for name in list(self._ports):
            line = self._ports[name]
            if line.ticks and line.ticks[0] <= tick:
                old = bisect.bisect_right(line.ticks, tick)
                line = self._ports[name] = _Timeline.of(line.states[old:], line.ticks[old:], line.earliest[old:])
            if line.states == (None,):
                del self._ports[name]

    def __contains__(self, name: str) -> bool:
        """Whether anything is known of a port."""
        return name in self._ports

    def names(self) -> list[str]:
        """The ports that existed at any time, in natural order."""
        return sorted((name for name, line in list(self._ports.items()) if line.states != (None,)), key=natural_key)

    def existing(self) -> set[str]:
        """The ports that exist now."""
        return {name for name, line in list(self._ports.items()) if line.states[-1] is not None}

    def now(self, name: str) -> PortState | None:
        """The newest state of a port; None if it does not exist."""
        line = self._ports.get(name)
        return None if line is None else line.states[-1]

    def at(self, name: str, tick: int) -> PortState | None:
        """The state of a port at a tick; None if it did not exist."""
        line = self._ports.get(name)
        return None if line is None else line.at(tick)

    def line_rate(self, name: str, otherwise: float | None) -> LineRate:
        """The highest line rate that a port may have had at each tick; `otherwise` if nothing is known of it."""
        line = self._ports.get(name)
        return LineRate.of(otherwise) if line is None else line.line

    def spans(self, name: str, first: int, end: int) -> list[StateSpan]:
        """The states of a port from tick `first` up to `end`, exclusive, oldest first, without gaps."""
        line = self._ports.get(name)
        if line is None or first >= end:
            return []
        low, high = bisect.bisect_right(line.ticks, first), bisect.bisect_left(line.ticks, end)
        edges = [first, *line.ticks[low:high], end]
        return [StateSpan(a, b, line.states[low + n]) for n, (a, b) in enumerate(pairwise(edges))]

    def during(self, first: int, end: int) -> dict[str, PortState]:
        """The ports that existed at any time from tick `first` up to `end`, in natural order, each with its last state.

        For a port that disappeared within the span it is the state before that.
        """
        found = {}
        for name in self.names():
            states = [span.state for span in self.spans(name, first, end) if span.state is not None]
            if states:
                found[name] = states[-1]
        return found

    def edges(self, names: Iterable[str], first: int, end: int) -> list[int]:
        """The ticks within a span at which any of these ports changes its state."""
        found: set[int] = set()
        for name in names:
            line = self._ports.get(name)
            # most ports never change
            if line is not None and line.ticks:
                found.update(line.ticks[bisect.bisect_right(line.ticks, first) : bisect.bisect_left(line.ticks, end)])
        return sorted(found)


def encode_event(event: Event) -> bytes:
    """The line of an event.

    Raises:
        ValueError: its details are not values of JSON.
        TypeError: as ValueError.
    """
    return json.dumps(to_json(event), separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def decode_event(line: bytes) -> Event | None:
    """The event of a line without its line end; None if it is damaged."""
    try:
        return from_json(json.loads(line))
    except (ValueError, RecursionError):
        return None


def read_events(path: Path) -> list[Event]:
    """The last `MAX_READ` events of a file in the order in which they were written; none if it does not exist.

    Of a file longer than `MAX_FILE_BYTES`, only the end is read.

    Raises:
        ValueError: the file is not an event log of this version.
        OSError: it cannot be read.
    """
    try:
        descriptor = owned_files.open_to_read(path)
    except FileNotFoundError as error:
        if os.path.lexists(path):
            raise ValueError(f"event log {path} is not a regular file") from error
        return []
    with open(descriptor, "rb") as file:
        head = file.readline(len(HEAD) + 20).rstrip(b"\n")
        if head != HEAD + b"%d" % VERSION:
            raise ValueError(f"event log {path} is not of version {VERSION}: it begins with {head!r}")
        file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - MAX_FILE_BYTES))
        found = (event for line in _read_lines(file) if (event := decode_event(line)) is not None)
        return list(deque(found, MAX_READ))


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The remaining lines without their ends; of a line that is too long, only the beginning."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line.rstrip(b"\n")
        if len(line) < MAX_LINE_BYTES and not line.endswith(b"\n"):
            return  # the last one, which is being written
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


class EventFile:
    """The one writer of an event file.

    Nothing here raises `OSError`: a failure is reported once in the program's log, until writing succeeds again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind = False
        """Whether the last attempt to write failed."""
        self.records = 0
        """The number of events in the file."""
        self._descriptor: int | None = None
        self._size = 0
        self._line_end = b""

    def open(self) -> list[Event]:
        """Open the file, remove damaged lines, and return its events.

        A file of another version, or one that cannot be read, is renamed to `events.old`. If no new file can be written
        on a full disk, the old one is continued.
        """
        try:
            events = read_events(self.path)
        except ValueError as error:
            self._set_aside(str(error))
            events = []
        except OSError as error:
            self._set_aside(f"event log {self.path} cannot be read: {error.strerror}")
            events = []
        if not self.rewrite(events):
            self._continue(len(events))
        return events

    @property
    def is_writable(self) -> bool:
        """Whether there is a file to append to: it was opened and has not been deleted since."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def append(self, event: Event) -> bool:
        """Add an event to the file, as a whole or not at all. Returns whether it is in the file."""
        line = self._line_end + encode_event(event)
        if self._descriptor is None or not self.is_writable:
            self.behind = True
            return False
        try:
            _write_all(self._descriptor, line, self._size)
        except OSError as error:
            self._cut()
            self._fail(error)
            return False
        self._size += len(line)
        self._line_end = b""
        self.records += 1
        self._succeed()
        return True

    def rewrite(self, events: Iterable[Event]) -> bool:
        """Replace the file by one with these events; if that fails, the old file stays. Returns whether it is new."""
        lines = [encode_event(event) for event in events]
        text = HEAD + b"%d\n" % VERSION + b"".join(lines)
        try:
            with owned_files.replacing(self.path) as fresh:
                _write_all(fresh, text, 0)
            descriptor = owned_files.open_to_write(self.path)
        except OSError as error:
            self._fail(error)
            return False
        self.close()
        self._descriptor, self._size, self._line_end, self.records = descriptor, len(text), b"", len(lines)
        self._succeed()
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _continue(self, records: int) -> None:
        """Open the existing file to append to it."""
        try:
            descriptor = owned_files.open_to_write(self.path)
        except OSError:
            return  # reported by `rewrite` already
        self._descriptor, self._size, self.records = descriptor, os.fstat(descriptor).st_size, records
        # an unfinished last line would otherwise swallow the next one
        self._line_end = b"\n"

    def _cut(self) -> None:
        """Remove a line that was written in part."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            self.close()  # `rewrite` makes a new file

    def _set_aside(self, reason: str) -> None:
        log.warning("%s; keeping it as %s.old and beginning a new one", reason, self.path)
        try:
            self.path.replace(f"{self.path}.old")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.behind:
            log.warning(
                "event log %s cannot be written: %s; events are kept in memory and written once ring.dir allows it",
                *(self.path, error.strerror),
            )
        self.behind = True

    def _succeed(self) -> None:
        if self.behind:
            log.info("event log %s can be written again", self.path)
        self.behind = False


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written


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
            self._sorted = tuple(sorted(every, key=itemgetter(0)))
        return self._sorted[bisect_left(self._sorted, first, key=itemgetter(0)) :]

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
