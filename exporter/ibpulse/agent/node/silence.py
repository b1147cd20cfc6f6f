"""Follows until when each job of the node moved bytes, which links it lost, and when lost packets were counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ibpulse.agent.aggregator.jobs import MAX_JOBS
from ibpulse.agent.jobs.owners import count_owners
from ibpulse.agent.jobs.watch import JobsView
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import (
    MomentAnswer,
    PauseAnswer,
    RailSilenceAnswer,
    SilenceAnswer,
    WatchedAnswer,
    describe_watched,
)
from ibpulse.core.arrays import Bools, Counts
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.event import JOB_RESUMED, JOB_STALLED, LOST_LINKS
from ibpulse.core.events.watch import place_in_ring
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.model import STORAGE, CounterReading, Fabric, Port, PortId
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import SETTLE_NS, RingPort, place_ports
from ibpulse.core.signals import MEANINGS
from ibpulse.core.statistics.silences import (
    LONGEST_PAUSES,
    NEWEST_PAUSES,
    SilenceWatch,
    Stall,
    StorageWatch,
    TickPause,
    follow,
    lasting,
)
from ibpulse.core.statistics.verdict import (
    MIN_SILENCE_SECONDS,
    UNKNOWN_STEPS_SECONDS,
    Rails,
    Verdict,
    judge,
    notable_seconds,
)

# samples read at a time, and how often in a row: a daemon that starts catches up with its ring
CHUNK_SECONDS, MAX_CHUNKS = 10, 3
# of the active threshold of a node, whose traffic is spread over rails and directions
LEAST_PART = 0.1
LOSSES = frozenset(
    f"ibpulse_{name}_total" for name, each in MEANINGS.items() if each.sign == "lost" and not each.of_peers
)
"""Counters that grow when a sender has to send packets again."""


@dataclass(slots=True)
class _Losses:
    """The last readings of the counters of lost packets of a port, and between which two of one it last grew.

    Times are monotonic.
    """

    readings: dict[str, CounterReading] = field(default_factory=dict)
    grew: tuple[int, int] | None = None

    @property
    def taken_ns(self) -> int:
        return max(each.taken_ns for each in self.readings.values())

    def add(self, readings: dict[str, CounterReading]) -> None:
        for name, each in readings.items():
            before = self.readings.get(name, each)
            if each.value > before.value:
                self.grew = before.taken_ns, each.taken_ns
        self.readings = readings


@dataclass(slots=True)
class _QueuePairs:
    """How many queue pairs the device of a rail has while its job moves bytes, and whether it still has them.

    `open_ns` is the last reading that found more than half of them. `closed` are the two readings between which they
    were destroyed since the last byte, None if they were not. Times are monotonic.
    """

    count: int = 0
    taken_ns: int = 0
    usual: int = 0
    open_ns: int | None = None
    closed: tuple[int, int] | None = None

    def add(self, reading: CounterReading, moved_ns: int) -> bool:
        """Take over a reading; whether it found them made anew. The job last moved bytes at `moved_ns`."""
        if reading.taken_ns <= self.taken_ns:
            return False
        if moved_ns > self.taken_ns:
            # those of before, because the last bytes may have been moved just before they were destroyed
            self.usual, self.closed = max(self.count, reading.value), None
        self.count, self.taken_ns = reading.value, reading.taken_ns
        if 2 * self.count > self.usual:
            self.open_ns = self.taken_ns
            return self.closed is not None
        if self.open_ns is not None:
            self.closed = self.closed or (self.open_ns, self.taken_ns)
        return False


@dataclass(slots=True)
class _Job:
    """A job: its rails, the watch over them, the next tick to read, and since when it is followed.

    It has the newest verdict, None without any, and its stalls, the last one first.
    """

    placed: PlacedJob
    rails: list[Port]
    watch: SilenceWatch
    next_tick: int
    since_tick: int
    losses: dict[str, _Losses] = field(default_factory=dict)
    queue_pairs: dict[str, _QueuePairs] = field(default_factory=dict)
    verdict: Verdict | None = None
    stalls: list[Stall] = field(default_factory=list)


class JobSilences:
    """The silences of the first jobs that share no port; all methods belong to one thread."""

    def __init__(self, reader: RingReader, events: EventLog, active_bytes_per_second: float) -> None:
        self._reader, self._events = reader, events
        self._least = LEAST_PART * active_bytes_per_second
        self._interval = reader.interval_ns / SECOND_NS
        self._jobs: dict[Key, _Job] = {}
        self._storage = StorageWatch(self._interval, self._least)
        self._stored: tuple[list[int], int, int] | None = None
        self._lost: dict[str, Event] = {}
        self._added = -1
        self._shift = 0
        # the newest tick, and the monotonic time of it
        self._newest = 0, 0

    def update(self, view: JobsView, fabric: Fabric) -> None:
        """Follow the jobs that run up to the newest samples that are settled."""
        self._refresh()
        newest = self._reader.newest_tick() - SETTLE_NS // self._reader.interval_ns
        self._follow(view, fabric, newest)
        for job in self._jobs.values():
            self._read(job, newest)
            self._note_readings(job, fabric)
        self._read_storage(fabric, newest)

    def _follow(self, view: JobsView, fabric: Fabric, newest: int) -> None:
        jobs = view.jobs or ()
        owners, ports = count_owners(jobs), {port.id: port for port in fabric.ports}
        kept: dict[Key, _Job] = {}
        for placed in jobs:
            known = self._jobs.get(placed.claim.key)
            rails = _find_rails(placed, ports, known.rails if known else [])
            if not rails or len(kept) >= MAX_JOBS or any(owners[rail.id] > 1 for rail in rails):
                continue
            if known is None or [rail.id for rail in known.rails] != [rail.id for rail in rails]:
                watch, since = SilenceWatch(len(rails), self._interval, self._least), self._begin(view, placed, newest)
                known = _Job(placed, rails, watch, since, since)
            known.placed, known.rails = placed, rails
            kept[placed.claim.key] = known
        self._jobs = kept

    def _begin(self, view: JobsView, placed: PlacedJob, newest: int) -> int:
        """The tick since which a job has had its ports, as far as the ring has it."""
        oldest = max(1, newest - self._reader.readable_ticks + 1)
        begun = [each for each in view.records if each.job.claim.key == placed.claim.key and each.ended_ns is None]
        since = begun[-1].holdings[-1].since if begun and begun[-1].holdings else None
        return oldest if since is None else min(newest, max(oldest, self._reader.tick_at(since.time_ns)))

    def _read(self, job: _Job, newest: int) -> None:
        slots = self._reader.ring.slots()
        placed = {each.port.id: each for each in place_ports(self._reader, job.rails, slots)}
        # what the ring no longer holds is missing
        job.next_tick = max(job.next_tick, newest - self._reader.readable_ticks + 1)
        for _ in range(MAX_CHUNKS):
            if job.next_tick > newest:
                return
            last = min(newest, job.next_tick + round(CHUNK_SECONDS / self._interval) - 1)
            counters, valid = self._counters([placed.get(rail.id) for rail in job.rails], job.next_tick, last)
            strides = np.array([placed[rail.id].stride if rail.id in placed else 1 for rail in job.rails])
            job.watch.add(job.next_tick, counters, valid, strides)
            job.next_tick = last + 1

    def _counters(self, ports: Sequence[RingPort | None], first: int, last: int) -> tuple[Counts, Bools]:
        """Bytes by the counters of some ports, (ports, 2, ticks), and where they were read; nowhere without a slot."""
        there = [row for row, port in enumerate(ports) if port is not None]
        block = self._reader.read([port.slot for port in ports if port is not None], first, last)
        counters = np.zeros((len(ports), 2, last - first + 1), dtype=np.int64)
        valid = np.zeros(counters.shape, dtype=np.bool_)
        counters[there] = block.counters().astype(np.int64) * block.scale[:, None, None]
        valid[there] = block.valid()
        return counters, valid

    def _read_storage(self, fabric: Fabric, newest: int) -> None:
        """Follow the sum of the storage ports, which are read at two instants only."""
        ports = [port for port in fabric.ports if port.role == STORAGE]
        placed = place_ports(self._reader, ports, self._reader.ring.slots()) if ports else []
        if not placed:
            return
        first = newest - round(0.5 / self._interval)
        counters, valid = self._counters(placed, first, newest)
        if not valid.any(axis=2).all():
            return
        last = valid.shape[2] - 1 - valid[..., ::-1].argmax(axis=2)
        total = int(np.take_along_axis(counters, last[..., None], axis=2).sum())
        slots, before, stored = self._stored or ([], 0, 0)
        self._stored = [port.slot for port in placed], newest, total
        if slots == self._stored[0] and total >= stored:
            silent = not self._jobs or all(
                job.watch.known - job.watch.last > 0.5 / self._interval for job in self._jobs.values()
            )
            self._storage.add(before, newest, total - stored, silent)

    def _note_readings(self, job: _Job, fabric: Fabric) -> None:
        mine, anew = {rail.id for rail in job.rails}, False
        for port in fabric.counters:
            if port.port not in mine:
                continue
            readings = {each.name: each for each in port.readings if each.name in LOSSES and not each.saturated}
            if readings:
                job.losses.setdefault(str(port.port), _Losses()).add(readings)
            if port.queue_pairs is not None and job.watch.last:
                found = job.queue_pairs.setdefault(str(port.port), _QueuePairs())
                anew |= found.add(port.queue_pairs, self._monotonic_of(job.watch.last))
        if anew:
            # the job starts again: its first steps may take as long as those of a new one
            job.since_tick, pauses = job.next_tick, job.watch.pauses
            pauses.begin_again(job.since_tick)
            job.watch = SilenceWatch(len(job.rails), self._interval, self._least, pauses)

    def judge(self, name: str) -> None:
        """Judge the silences by what this node, which has a name, knows alone; a new verdict and its end are events."""
        for job in self._jobs.values():
            told = _named(lasting(job.stalls))
            if told is None and self._silent_seconds(job.watch) < MIN_SILENCE_SECONDS:
                continue
            silence = self._describe(job).on(lambda low_ms, high_ms: (low_ms / 1000, high_ms / 1000))
            job.verdict = judge({name: silence}) if silence else None
            last, now_ns = silence.last if silence else None, self._reader.ring.clock.time_ns()
            _, ended = follow(job.stalls, job.verdict, last, now_ns)
            if ended:
                told = None
                self._note(job, JOB_RESUMED, "moves bytes again", ended.verdict)
            stall = lasting(job.stalls)
            if stall and _named(stall) != told:
                self._note(job, JOB_STALLED, f"is silent: {stall.verdict.sentence}", stall.verdict)

    def _note(self, job: _Job, kind: str, text: str, verdict: Verdict) -> None:
        now_ns, claim = self._reader.ring.clock.time_ns(), job.placed.claim
        details = {
            "job_id": claim.id,
            "scheduler": claim.scheduler,
            "kind": verdict.kind,
            "rails": [rail for _, rail in verdict.rails],
            "silent_seconds": round(verdict.seconds, 3),
            "evidence": list(verdict.evidence),
            "unknown": list(verdict.unknown),
        }
        # it was silent before, and moved bytes since the last look
        text, doubt_ns = f"job {claim.id} {text}", SECOND_NS
        self._events.add(place_in_ring(Event(now_ns, kind, "", text, doubt_ns, details=details), self._reader))

    def stalls(self) -> dict[str, bool]:
        """Whether each job that has moved bytes is silent for so long that it is worth telling, by its id."""
        return {
            job.placed.claim.id: job.verdict is not None and job.verdict.stalled
            for job in self._jobs.values()
            if job.watch.last
        }

    def verdicts(self) -> list[WatchedAnswer]:
        """The jobs with the verdicts of this node alone."""
        return [describe_watched(*key, bool(job.watch.last), job.stalls) for key, job in self._jobs.items()]

    def wants_counters(self) -> bool:
        """Whether a job has been silent for a second to a minute, and longer than usual.

        Lost packets are then worth a scan of the devices every second.
        """
        return any(self._is_suspicious(job.watch) for job in self._jobs.values())

    def _is_suspicious(self, watch: SilenceWatch) -> bool:
        silent = self._silent_seconds(watch)
        if not MIN_SILENCE_SECONDS < silent < UNKNOWN_STEPS_SECONDS:
            return False
        return silent > (watch.pauses.regular() or 0) * self._interval

    def _silent_seconds(self, watch: SilenceWatch) -> float:
        """For how long a job has been silent, 0 before its first traffic."""
        return (watch.known - watch.last) * self._interval if watch.last else 0.0

    def describe(self) -> list[SilenceAnswer]:
        """The jobs, as of the last update."""
        return [self._describe(job) for job in self._jobs.values()]

    def _refresh(self) -> None:
        """Read what descriptions need: the wall clock as it is now, and the last event of each lost link."""
        reader, clock = self._reader, self._reader.ring.clock
        shift = reader.ring.last_shift() or 0
        for job in self._jobs.values():
            if stall := lasting(job.stalls):
                stall.move((self._shift - shift) * self._interval)
        self._shift = shift
        now_ns, wall_ns = clock.monotonic_ns(), clock.time_ns()
        self._newest = reader.tick_at(wall_ns), now_ns - wall_ns % reader.interval_ns
        if self._added != self._events.added:
            self._added = self._events.added
            self._lost = {event.subject: event for event in self._events.events() if event.kind in LOST_LINKS}

    def _describe(self, job: _Job) -> SilenceAnswer:
        watch = job.watch
        regular = watch.pauses.regular()
        seconds = None if regular is None else regular * self._interval
        pauses = watch.pauses.chosen(NEWEST_PAUSES, LONGEST_PAUSES)
        stored = max((ticks for ticks in (self._storage.last, watch.wrote) if ticks), default=None)
        return SilenceAnswer.model_construct(
            job_id=job.placed.claim.id,
            scheduler=job.placed.claim.scheduler,
            since_ms=self._ms(job.since_tick),
            known_until_ms=self._ms(watch.known) if watch.known else None,
            notable=self._silent_seconds(watch) > notable_seconds(seconds),
            regular_ms=None if seconds is None else round(1000 * seconds),
            longest_ms=round(1000 * watch.pauses.longest * self._interval),
            storage=None if stored is None else self._moment(*stored),
            pauses=[self._describe_pause(each) for each in pauses],
            rails=[self._describe_rail(job, row, rail) for row, rail in enumerate(job.rails)],
        )

    def _describe_pause(self, pause: TickPause) -> PauseAnswer:
        return PauseAnswer.model_construct(
            sent=self._moment(pause.sent - 1, pause.sent), begin_ms=self._ms(pause.begin), end_ms=self._ms(pause.end)
        )

    def _describe_rail(self, job: _Job, row: int, rail: Port) -> RailSilenceAnswer:
        name, watch = str(rail.id), job.watch
        sent, received = (
            self._moment(int(low), int(high)) if high else None
            for low, high in zip(watch.low[row].tolist(), watch.high[row].tolist(), strict=True)
        )
        losses, pairs, event = job.losses.get(name), job.queue_pairs.get(name, _QueuePairs()), self._lost.get(name)
        return RailSilenceAnswer.model_construct(
            port=name,
            active=rail.active,
            sent=sent,
            received=received,
            lost=None if event is None else self._lost_at(event),
            retried=None if losses is None or losses.grew is None else _between(*map(self._wall_of, losses.grew)),
            counted_until_ms=None if losses is None else self._wall_of(losses.taken_ns) // MILLISECOND_NS,
            connected_until_ms=None if pairs.open_ns is None else self._wall_of(pairs.open_ns) // MILLISECOND_NS,
            closed=None if pairs.closed is None else _between(*map(self._wall_of, pairs.closed)),
        )

    def _lost_at(self, event: Event) -> MomentAnswer:
        if event.ring != self._reader.ring.words[H_CREATED_WALL_NS]:
            return _between(event.time_ns - event.uncertainty_ns, event.time_ns)
        high_ns = self._wall_ns(event.tick + 1)
        return _between(high_ns - event.uncertainty_ns - self._reader.interval_ns, high_ns)

    def _moment(self, low: int, high: int) -> MomentAnswer:
        """A moment between two ticks; a sample is read up to half an interval after its tick."""
        return _between(self._wall_ns(low), self._wall_ns(high) + self._reader.interval_ns // 2)

    def _ms(self, tick: int) -> int:
        return self._wall_ns(tick) // MILLISECOND_NS

    def _wall_ns(self, tick: int) -> int:
        """The time of a tick on the wall clock as it is now: a step during a silence does not change its length."""
        return (tick - self._shift) * self._reader.interval_ns

    def _monotonic_of(self, tick: int) -> int:
        """The end of the sample of a tick on the monotonic clock."""
        newest, newest_ns = self._newest
        return newest_ns + (tick + 1 - newest) * self._reader.interval_ns

    def _wall_of(self, monotonic_ns: int) -> int:
        """A monotonic time on the wall clock as it is now, like that of samples."""
        newest, newest_ns = self._newest
        ticks, rest_ns = divmod(monotonic_ns - newest_ns, self._reader.interval_ns)
        return self._wall_ns(newest + ticks) + rest_ns


def _named(stall: Stall | None) -> tuple[str, Rails] | None:
    """What a stall is told of by an event."""
    return (stall.verdict.kind, stall.verdict.rails) if stall else None


def _find_rails(placed: PlacedJob, ports: Mapping[PortId, Port], before: Sequence[Port]) -> list[Port]:
    """The rails of a job; those of `before` whose devices are gone stay, without a link, as that may be the cause."""
    rails = {name: ports[name] for name in placed.ports if name in ports and ports[name].rail}
    gone = {rail.id: replace(rail, active=False) for rail in before if rail.id not in ports}
    names = [rail.id for rail in before]
    every = rails | gone
    return [every[name] for name in names] if every.keys() == set(names) else list(rails.values())


def _between(low_ns: int, high_ns: int) -> MomentAnswer:
    """A moment between two wall times, rounded outwards."""
    high_ms = -(-high_ns // MILLISECOND_NS)
    return MomentAnswer.model_construct(ms=high_ms, uncertainty_ms=high_ms - low_ns // MILLISECOND_NS)
