"""Compares the ports of a node with those of the moment before, and records as events what changed.

What the aggregator finds, resets of counters and phases of a job, becomes events here too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ibpulse.base.clocks import Clock
from ibpulse.base.text import natural_key
from ibpulse.base.units import SECOND_NS, format_rate
from ibpulse.core.events.event import STARTED, Event, state_to_json
from ibpulse.core.events.log import EventLog
from ibpulse.core.model import ByteSource, Port, PortId, PortIdentity, PortState
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.statistics.steps.phases import CHECKPOINT, Phase

UNREADABLE, HUNG, DISAPPEARED, NO_COUNTERS = "unreadable", "hung", "disappeared", "no-counters"
GONE_TEXT = "it disappeared: check the device, its driver and the kernel log"
HUNG_TEXT = "a read of its device does not return"
RESET_TEXTS = {
    "counter-reset": "a byte counter was lower than before: a counter reset",
    "counter-jump": "a byte counter increased by more than the line can carry, which is not counted",
}
NOTICED_NOW = frozenset({UNREADABLE, "readable", "role-change", "interval-change"})


@dataclass(frozen=True, slots=True)
class SeenPort:
    """A port as it was just seen.

    `time_ns` is the wall time of the last reading of its state, `previous_ns` of the one before it, 0 if there was
    none. `problem` is a word of `PROBLEMS` or empty, `reason` a sentence. Without `link_known` the state of the link
    could not be read, and the last one stays. `downs` is the value of `link_downed`.
    """

    port: Port
    time_ns: int
    previous_ns: int = 0
    physical: str = ""
    stride: int = 1
    problem: str = ""
    reason: str = ""
    downs: int | None = None
    link_known: bool = True


def state_of(seen: SeenPort, before: PortState | None) -> PortState:
    """The state of a port; while its link is down or unknown, the last known line rate stays."""
    port, known = seen.port, before is None or seen.link_known
    rate = port.rate_bytes_per_second
    if before is not None and rate is None and not (port.active and known):
        rate = before.rate_bytes_per_second
    problem = seen.problem or (NO_COUNTERS if port.source is None else "")
    if before is not None and not known:
        return replace(
            before, rate_bytes_per_second=rate, rail=port.rail, role=port.role, stride=seen.stride, problem=problem
        )
    return PortState(port.state, seen.physical, port.active, rate, port.rail, seen.stride, problem, port.role)


def find_changes(
    name: str, before: PortState, wanted: PortState, reason: str, interval_ns: int
) -> Iterator[tuple[str, str, PortState]]:
    """The changes from one state to another, one property after the other; `reason` explains the problem.

    Each is the kind of its event, a sentence, and the state after it.
    """
    if before == wanted:
        return
    after = replace(before, active=wanted.active, state=wanted.state, physical=wanted.physical)
    words = ", ".join(filter(None, (after.state, after.physical))) or "in an unknown state"
    if before.active != after.active:
        way = "up" if after.active else "down"
        yield f"link-{way}", f"{name}: link {way} ({words})", after
    elif before != after and not after.active:
        # an ACTIVE link that retrains keeps its state
        yield "link-change", f"{name}: link is {words}", after
    before, after = after, replace(after, rate_bytes_per_second=wanted.rate_bytes_per_second)
    if before != after:
        yield ("rate-change", f"{name}: line rate is {_rate_text(after)}, was {_rate_text(before)}", after)
    before, after = after, replace(after, rail=wanted.rail, role=wanted.role)
    if before != after:
        yield ("role-change", f"{name}: role is {after.role}, was {before.role}", after)
    before, after = after, replace(after, problem=wanted.problem)
    if before != after and wanted.problem:
        yield ("unreadable", f"{name}: {reason or wanted.problem}", after)
    elif before != after:
        yield ("readable", f"{name} can be read again", after)
    if after.stride != wanted.stride:
        now, then = (f"{state.stride * interval_ns / 1e6:g} ms" for state in (wanted, after))
        yield ("interval-change", f"{name}: sampled every {now}, was {then}", wanted)


def _rate_text(state: PortState) -> str:
    rate = state.rate_bytes_per_second
    return "unknown" if rate is None else format_rate(round(rate))


@dataclass(frozen=True, slots=True)
class KnownPort:
    """A port that exists, or that disappeared within the history of the ring.

    `port` is the last scan's. `state` is the state in force, None for a port that disappeared. It holds since the wall
    time `since_ns`, None if it did not change as far as the events go back. `problem` is a sentence, empty if all is
    well. `down_seconds` and `state_changes` count from the start of this process.
    """

    port: Port
    state: PortState | None
    since_ns: int | None = None
    problem: str = ""
    down_seconds: float = 0.0
    state_changes: int = 0

    @property
    def word(self) -> str:
        """The state in one word: the kernel's word for the link, or the reason why nothing is known."""
        if self.state is None:
            return DISAPPEARED
        return self.state.problem if self.state.problem in (UNREADABLE, HUNG) else self.state.state


@dataclass(slots=True)
class _Watched:
    """A port as it was last seen, at the wall time `seen_ns`, 0 if this process never saw it; and its counts."""

    port: Port
    problem: str = ""
    seen_ns: int = 0
    down_seconds: float = 0.0
    state_changes: int = 0
    last_downs: int | None = None
    unexplained_downs: int = 0


class PortWatch:
    """Keeps the port history of an event log up to date, and records each change as an event."""

    def __init__(self, log: EventLog, reader: RingReader, clock: Clock = time) -> None:
        self._log, self._reader, self._clock = log, reader, clock
        self._ring = reader.ring.words[at.H_CREATED_WALL_NS]
        self._watched: dict[str, _Watched] = {}
        self._updated: float | None = None
        self._since = {event.subject: event.time_ns for event in log.events() if event.before != event.after}
        self._segments = reader.ring.words[at.H_SEGMENTS]
        self._listed_ns = self._updated_ns = find_last_sign(log, reader)

    def update(self, seen: Sequence[SeenPort], listed_ns: int, silent: Collection[str] = ()) -> None:
        """Record the changes since the last call.

        The node's ports were listed at the wall time `listed_ns`. `silent` devices did not answer, so nothing is known
        of their ports.
        """
        now = self._clock.monotonic()
        elapsed, first = 0.0 if self._updated is None else now - self._updated, self._updated is None
        self._updated = now
        history = self._log.history
        fresh = first and not history.names()
        self._note_missing({str(each.port.id): each.time_ns for each in seen}, silent)
        for each in seen:
            name = str(each.port.id)
            watched = self._watched.setdefault(name, _Watched(each.port))
            before = history.now(name)
            if before is not None and not before.active and not first:
                watched.down_seconds += elapsed
            since_ns = each.previous_ns or watched.seen_ns or self._listed_ns
            if fresh:
                history.begin(name, state_of(each, None))
            elif before is None:
                self._appear(each, since_ns)
            else:
                self._change(each, before, watched, since_ns)
            watched.port, watched.problem = each.port, each.reason or each.port.problem
            watched.seen_ns, watched.last_downs = each.time_ns, each.downs
        if first:
            self._record_start()
        self._listed_ns, self._updated_ns = listed_ns, self._clock.time_ns()
        self._note_clock_steps()
        history.forget_before(self._reader.oldest_tick())
        for name in [name for name in self._watched if name not in history]:
            del self._watched[name]
            self._since.pop(name, None)

    def confirm(self, listed_ns: int) -> None:
        """The node's ports were also those of the last call at this wall time."""
        self._listed_ns = max(self._listed_ns, listed_ns)

    def known_ports(self) -> tuple[KnownPort, ...]:
        """The ports that exist, and those that disappeared within the history, in natural order."""
        found = []
        for name in self._log.history.names():
            state, each = self._log.history.now(name), self._watched.get(name) or _Watched(_remember(name))
            problem, since_ns = GONE_TEXT if state is None else each.problem, self._since.get(name)
            found.append(KnownPort(each.port, state, since_ns, problem, each.down_seconds, each.state_changes))
        return tuple(found)

    def _appear(self, seen: SeenPort, since_ns: int) -> None:
        name, guid = str(seen.port.id), seen.port.identity.guid
        old = next(
            (
                other
                for other, each in self._watched.items()
                if guid and other != name and (each.port.identity.guid, each.port.id.port) == (guid, seen.port.id.port)
            ),
            "",
        )
        text = f"{name} appeared" + (f"; it has the GUID of {old}" if old else "")
        since_ns = max(since_ns, self._listed_ns)
        self._record(seen, "appeared", text, None, state_of(seen, None), since_ns, {"guid": guid})

    def _change(self, seen: SeenPort, before: PortState, watched: _Watched, since_ns: int) -> None:
        wanted = state_of(seen, before)
        watched.state_changes += self._count_downs(seen, before, wanted, watched, since_ns)
        name = str(seen.port.id)
        for kind, text, after in find_changes(name, before, wanted, seen.reason, self._reader.interval_ns):
            watched.state_changes += kind in ("link-down", "link-up")
            # a problem is seen at every look, even without a reading of the link
            known_ns = watched.seen_ns if kind == "readable" else 0
            self._record(seen, kind, text, before, after, max(since_ns, known_ns), {})
            before = after

    def _count_downs(self, seen: SeenPort, before: PortState, after: PortState, port: _Watched, since_ns: int) -> int:
        """Record a flap between two readings, which only `link_downed` shows; returns the changes of state in it."""
        last = port.last_downs
        if last is None or seen.downs is None:
            return 0
        port.unexplained_downs += max(0, seen.downs - last) - (before.active and not after.active)
        if not after.active:
            return 0
        flaps, port.unexplained_downs = max(0, port.unexplained_downs), 0
        if flaps:
            times = "once" if flaps == 1 else f"{flaps} times"
            text = f"{seen.port.id}: link went down and came back {times} between two readings"
            self._record(seen, "link-flap", text, None, None, since_ns, {"link_downed": flaps})
        return 2 * flaps

    def _note_missing(self, seen: Mapping[str, int], silent: Collection[str]) -> None:
        """Record the ports that are not among those `seen`, which come with the wall times of their readings."""
        history = self._log.history
        existing = history.existing()
        # a renamed device disappears before it appears: who sees the new name does not see the old one
        now_ns = min([self._clock.time_ns(), *(time_ns for name, time_ns in seen.items() if name not in existing)])
        for name in sorted(existing - seen.keys(), key=natural_key):
            before = history.now(name)
            assert before is not None
            watched = self._watched.setdefault(name, _Watched(_remember(name)))
            gone, since_ns = SeenPort(watched.port, now_ns), max(self._listed_ns, watched.seen_ns)
            if gone.port.id.device not in silent:
                details = {"guid": gone.port.identity.guid}
                # the open files of a renamed device can still be read, so only a listing shows that a name exists
                self._record(gone, DISAPPEARED, f"{name} disappeared", before, None, self._listed_ns, details)
            elif before.problem != HUNG:
                watched.problem = HUNG_TEXT
                self._record(
                    gone, UNREADABLE, f"{name}: {HUNG_TEXT}", before, replace(before, problem=HUNG), since_ns, {}
                )

    def _note_clock_steps(self) -> None:
        """Record each new segment of the wall clock; the first one of a ring is no step."""
        ring, interval_ns = self._reader.ring, self._reader.interval_ns
        count = ring.words[at.H_SEGMENTS]
        steps = count - max(1, self._segments)
        self._segments = count
        for (_, before), (tick, after) in list(pairwise(ring.segments()))[-steps:] if steps > 0 else ():
            seconds = (before - after) * interval_ns / SECOND_NS
            text = f"the wall clock was set {'forward' if seconds > 0 else 'back'} by {abs(seconds):g} s"
            time_ns = (tick - after) * interval_ns
            details = {"seconds": seconds}
            self._log.add(Event(time_ns, "clock-step", "", text, interval_ns, None, None, details, tick, self._ring))

    def _record_start(self) -> None:
        history, now_ns = self._log.history, self._clock.time_ns()
        found = {name: history.now(name) for name in history.names()}
        states = {name: state_to_json(state) for name, state in found.items() if state is not None}
        started = Event(now_ns, STARTED, "", f"the daemon started with {len(states)} ports", details={"ports": states})
        self._log.add(place_in_ring(started, self._reader))

    def _record(
        self,
        seen: SeenPort,
        kind: str,
        text: str,
        before: PortState | None,
        after: PortState | None,
        since_ns: int,
        details: Mapping[str, str | int],
    ) -> None:
        name = str(seen.port.id)
        time_ns, since_ns = self._find_time(kind, seen, since_ns)
        if before != after:
            self._since[name] = time_ns
        uncertainty_ns = max(0, time_ns - since_ns) if since_ns > 0 else 0
        known = {key: value for key, value in details.items() if value}
        event = Event(time_ns, kind, name, text, uncertainty_ns, before, after, known)
        self._log.add(place_in_ring(event, self._reader))

    def _find_time(self, kind: str, seen: SeenPort, since_ns: int) -> tuple[int, int]:
        """When a change was noticed, and the instant after which it happened; both wall time in ns.

        A link changed before its reading. What the reading does not tell is noticed now: the counters of a port are
        given up after several failures, and a hang and its end show after up to two seconds.
        """
        if kind not in NOTICED_NOW:
            return seen.time_ns, since_ns
        if kind == UNREADABLE:
            since_ns = min(since_ns, self._updated_ns - SECOND_NS)
        else:
            since_ns = self._updated_ns - 2 * SECOND_NS
        return self._clock.time_ns(), since_ns


class CounterResets:
    """Records the resets and jumps of byte counters, which the aggregator counts."""

    def __init__(self, log: EventLog, reader: RingReader, clock: Clock = time) -> None:
        self._log, self._reader, self._clock = log, reader, clock
        self._noted: dict[str, Mapping[str, int]] = {}
        self._noted_ns = self._clock.time_ns()

    def note(self, resets: Mapping[str, int], jumps: Mapping[str, int]) -> None:
        """Record the increase of each port's resets and jumps since the last call."""
        now_ns, noted = self._clock.time_ns(), {"counter-reset": resets, "counter-jump": jumps}
        for kind, numbers in noted.items():
            before = self._noted.get(kind, {})
            for name, number in numbers.items():
                if number > before.get(name, 0):
                    uncertainty_ns = max(0, now_ns - self._noted_ns) + SECOND_NS
                    event = Event(now_ns, kind, name, f"{name}: {RESET_TEXTS[kind]}", uncertainty_ns)
                    self._log.add(place_in_ring(event, self._reader))
        self._noted, self._noted_ns = noted, now_ns


def place_in_ring(event: Event, reader: RingReader) -> Event:
    """The event with the tick at its wall time, and the ring that has this tick."""
    return replace(event, tick=reader.tick_at(event.time_ns), ring=reader.ring.words[at.H_CREATED_WALL_NS])


def find_last_sign(log: EventLog, reader: RingReader) -> int:
    """The wall time until which an earlier daemon certainly watched the ports; 0 if there was none."""
    newest = reader.ring.latest_tick()
    sampled_ns = 0
    if newest:
        segments = reader.ring.segments() or [(0, 0)]
        sampled_ns = (newest - segments[-1][1]) * reader.interval_ns
    return max([sampled_ns, *(event.time_ns for event in log.events()[-1:])])


def _remember(name: str) -> Port:
    """A port of which only the name is known any more."""
    device, _, number = name.rpartition(":")
    return Port(PortId(device, int(number)), PortIdentity(), False, DISAPPEARED, None, ByteSource("", (), (), 1))


def note_phases(log: EventLog, reader: RingReader, phases: Iterable[Phase]) -> None:
    """Add phases, whose samples are ticks of the ring: a first traffic at its first one, a checkpoint at its last."""
    interval_ns, ring = reader.interval_ns, reader.ring.words[at.H_CREATED_WALL_NS]
    for phase in phases:
        details: dict[str, float | int] = {"silent_seconds": round(phase.silent_seconds, 3)}
        if phase.kind == CHECKPOINT:
            tick, seconds = phase.end - 1, (phase.end - phase.first) * interval_ns / 1e9
            details |= {
                "seconds": round(seconds, 3),
                "transmitted_bytes": round(phase.transmitted),
                "received_bytes": round(phase.received),
            }
            text = f"checkpoint: {phase.transmitted / 1e9:.2f} GB to storage in {seconds:.2f} s, rails silent"
        else:
            tick, text = phase.first, f"first traffic on the rails, after {phase.silent_seconds:.2f} s of silence"
        uncertainty_ns = phase.uncertainty * interval_ns
        log.add(Event(reader.wall_of(tick), phase.kind, "", text, uncertainty_ns, None, None, details, tick, ring))
