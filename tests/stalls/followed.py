"""Follows the cases as daemons and a gateway would, and judges them: the only module here that knows the function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ibpulse.core.statistics.silences import SilenceWatch, StorageWatch
from ibpulse.core.statistics.verdict import (
    NodeSilence,
    Pause,
    RailSilence,
    Verdict,
    judge,
    latest,
    notable_seconds,
)
from tests.stalls.material import NEVER, Case, Node

INTERVAL = 0.01
LEAST_RATE = 1e7
"""Bytes/s of a rail that are no traffic: a tenth of the active threshold of a node."""
SETTLED_SECONDS = 0.2
POLL_SECONDS = 2.0
NEWEST_PAUSES, LONGEST_PAUSES = 12, 8
CHUNK_SECONDS = 60.0
FIRST_TICK = 1000


@dataclass
class FollowedNode:
    """One node's daemon: it reads samples up to an instant, and counters of timeouts every `counted_every` seconds."""

    node: Node
    rails: tuple[str, ...]
    rng: np.random.Generator
    counted_every: float = 5.0
    begin: float = 0.0

    def __post_init__(self) -> None:
        self.watch = SilenceWatch(len(self.rails), INTERVAL, LEAST_RATE)
        self.storage = StorageWatch(INTERVAL, LEAST_RATE)
        self.stored: tuple[int, float] | None = None
        self.phase = self.rng.uniform(0, self.counted_every)
        self.next_tick = FIRST_TICK
        # of the connections before, until bytes are moved on the new ones
        self.closed: tuple[float | None, tuple[float, float] | None] = None, None

    def begin_again(self, at: float, now: float) -> None:
        """Follow the next run of the job, which made its connections at a true instant; its pauses stay known."""
        self.closed = self.connected(now)
        begun = FIRST_TICK + int((at + self.node.clock.offset - self.begin) / INTERVAL)
        self.next_tick = max(begun, self.next_tick)
        self.watch.pauses.begin_again(begun)
        self.watch = SilenceWatch(len(self.rails), INTERVAL, LEAST_RATE, self.watch.pauses)

    def _true(self, ticks: np.ndarray) -> np.ndarray:
        """True instants of ticks, which follow the clock of the node."""
        return (ticks - FIRST_TICK) * INTERVAL + self.begin - self.node.clock.offset

    def _wall(self, tick: float) -> float:
        return (tick - FIRST_TICK) * INTERVAL + self.begin

    def feed(self, until: float) -> None:
        """Take over the samples up to a true instant."""
        last = FIRST_TICK + int(np.floor((until - SETTLED_SECONDS + self.node.clock.offset - self.begin) / INTERVAL))
        while self.next_tick < last:
            end = min(last, self.next_tick + round(CHUNK_SECONDS / INTERVAL))
            ticks = np.arange(self.next_tick, end)
            times = self._true(ticks) + self.rng.exponential(60e-6, len(ticks))
            valid = self.rng.random(len(ticks)) >= self.node.lost_share
            for first, stop in self.node.lost:
                valid &= (times < first) | (times > stop)
            counters = np.stack(
                [[self.node.counter(rail, way, times) for way in ("sent", "received")] for rail in self.rails]
            )
            self.watch.add(
                self.next_tick, counters, np.broadcast_to(valid, counters.shape), np.ones(len(self.rails), np.int64)
            )
            self._store(ticks[99::100].tolist() or [int(ticks[-1])])
            self.next_tick = end

    def _store(self, ticks: list[int]) -> None:
        """The bytes of the storage ports, once a second."""
        at = self._true(np.array(ticks))
        totals = sum(self.node.counter(port, way, at) for port in self.node.storage for way in ("sent", "received"))
        for tick, total in zip(ticks, totals.tolist(), strict=True):
            if self.stored:
                silent = tick - self.watch.last > 0.5 / INTERVAL
                self.storage.add(self.stored[0], tick, total - self.stored[1], silent)
            self.stored = tick, total

    def silence(self, now: float, problem: str = "") -> NodeSilence | None:
        """What the node says at a true instant; None before the first samples."""
        watch, bound = self.watch, self.node.clock.bound
        if not watch.known:
            return None
        doubt = bound or 0.0

        def moment(low: float, high: float) -> tuple[float, float]:
            return self._wall(low) - doubt, self._wall(high) + INTERVAL / 2 + doubt

        regular = watch.pauses.regular()
        rails = {}
        for row, rail in enumerate(self.rails):
            sent, received = (
                moment(int(low), int(high)) if high else None
                for low, high in zip(watch.low[row], watch.high[row], strict=True)
            )
            lost, active = self._link(rail, now, doubt)
            retried, until = self._retried(rail, now, doubt)
            rails[rail] = RailSilence(sent, received, lost, active, retried, until, *self.connected(now))
        return NodeSilence(
            rails=rails,
            known_until=self._wall(watch.known) - doubt,
            regular=None if regular is None else regular * INTERVAL,
            longest=watch.pauses.longest * INTERVAL,
            pauses=tuple(
                Pause(moment(each.sent - 1, each.sent), self._wall(each.begin) - doubt, self._wall(each.end) + doubt)
                for each in watch.pauses.chosen(NEWEST_PAUSES, LONGEST_PAUSES)
            ),
            storage=latest(moment(*ticks) for ticks in (self.storage.last, watch.wrote) if ticks),
            ordered=bound is not None,
            problem=problem,
        )

    def _link(self, rail: str, now: float, doubt: float) -> tuple[tuple[float, float] | None, bool]:
        """When the link was last lost, and whether it is up, as far as the node has noticed."""
        wall = now + self.node.clock.offset
        noticed = [event for event in self.node.links if event.port == rail and event.noticed <= wall]
        down = [(event.seen_before - doubt, event.noticed + doubt) for event in noticed if not event.up]
        return (down[-1] if down else None), not noticed or noticed[-1].up

    def _retried(self, rail: str, now: float, doubt: float) -> tuple[tuple[float, float] | None, float | None]:
        """Between which readings the counter of timeouts last grew, and the newest reading."""
        if self.node.timeouts is None:
            return None, None
        read = self._readings(now)
        counted = np.searchsorted(np.sort(self.node.timeouts.get(rail, np.zeros(0))), read, side="right")
        grew = np.flatnonzero(np.diff(counted))
        shift = self.node.clock.offset
        until = float(read[-1]) + shift - doubt if len(read) else None
        if not len(grew):
            return None, until
        low, high = float(read[grew[-1]]), float(read[grew[-1] + 1])
        return (low + shift - doubt, high + shift + doubt), until

    def connected(self, now: float) -> tuple[float | None, tuple[float, float] | None]:
        """The newest reading that found the queue pairs, and the readings between which they went after the last byte.

        Those of a later run that has not moved bytes yet do not end that.
        """
        if self.node.connected is None or not self.watch.last:
            return self.closed
        read, shift, doubt = self._readings(now), self.node.clock.offset, self.node.clock.bound or 0.0
        there = np.any([(read >= first) & (read < last) for first, last in self.node.connected], axis=0)
        if not there.any():
            return None, None
        silent = float(self._true(np.array([self.watch.last]))[0])
        gone = np.flatnonzero(~there & (read > silent))
        until = float(read[there][-1]) + shift - doubt
        if not len(gone) or not there[: gone[0]].any():
            return until, None
        low, high = float(read[gone[0] - 1]), float(read[gone[0]])
        return until, (low + shift - doubt, high + shift + doubt)

    def _readings(self, now: float) -> np.ndarray:
        """True instants of the readings up to one: regular, and every second while the node has just fallen silent."""
        silent = float(self._true(np.array([self.watch.last]))[0])
        regular = np.arange(self.phase, now, self.counted_every)
        return np.sort(np.concatenate((regular, np.arange(silent + 1.5, min(now, silent + 60), 1.0))))


@dataclass
class Told:
    """One silence as it was judged: the verdict at each poll that had one, and when one was first pushed."""

    begin: float
    end: float
    verdicts: list[tuple[float, Verdict]] = field(default_factory=list)
    pushed: tuple[float, Verdict] | None = None

    def note(self, now: float, verdict: Verdict | None) -> None:
        """Add the verdict of a poll."""
        if verdict is not None:
            self.verdicts.append((now, verdict))
            if self.pushed is None and verdict.seconds >= verdict.push_after:
                self.pushed = now, verdict


class FollowedJob:
    """A gateway over the nodes of a case, which asks every two seconds; a node has a new daemon if its job is new."""

    def __init__(self, case: Case, seed: int, rails: int | None = None, counted_every: float = 5.0) -> None:
        self.case, self._rng = case, np.random.default_rng(seed)
        self._rails, self._every = rails, counted_every
        self._nodes: dict[str, tuple[tuple[int, int], FollowedNode]] = {}

    def _here(self, now: float) -> dict[str, tuple[FollowedNode, str]]:
        """The nodes on which the job runs, with why they do not answer."""
        here = {}
        for node in self.case.nodes:
            place = _find(node.present, now)
            if place is None:
                self._nodes.pop(node.name, None)
                continue
            old, connection = self._nodes.get(node.name), _find(node.connected or [], now)
            made = old[0][1] if old and connection is None else connection or 0
            if old is None or old[0][0] != place:
                begin = max(0.0, node.present[place][0])
                old = (place, made), FollowedNode(node, node.rails[: self._rails], self._rng, self._every, begin)
            elif old[0][1] != made and node.connected:
                old[1].begin_again(node.connected[made][0], now)
                old = (place, made), old[1]
            self._nodes[node.name] = old
            until = max((last for first, last in node.answers if first <= now), default=-NEVER)
            here[node.name] = old[1], "" if now <= until else "no answer"
        return here

    def feed(self, now: float) -> None:
        """All nodes follow their samples up to an instant; one that is gone was asked up to two seconds before."""
        for followed, problem in self._here(now).values():
            last = followed.node.answers[-1][1]
            followed.feed(now if not problem else last - last % POLL_SECONDS)

    def silences(self, now: float) -> dict[str, NodeSilence]:
        """What all nodes say at an instant."""
        self.feed(now)
        told = {}
        for name, (followed, problem) in self._here(now).items():
            last = followed.node.answers[-1][1]
            silence = followed.silence(min(now, last), problem)
            if silence is not None:
                told[name] = silence
        return told

    def judge(self, now: float) -> Verdict | None:
        """The verdict at an instant, if a node has a notable silence."""
        said = self.silences(now)
        silent = ((each.known_until - each.last[1], each.regular) for each in said.values() if each.last)
        return judge(said) if any(seconds > notable_seconds(regular) for seconds, regular in silent) else None

    def threshold(self, now: float) -> float:
        """The shortest silence of which a node would say that it is notable."""
        regular = [each.regular for each in self.silences(now).values()]
        return min(map(notable_seconds, regular), default=NEVER)


def _find(spans: Sequence[tuple[float, float]], now: float) -> int | None:
    """The place of the span that has an instant."""
    return next((place for place, (first, last) in enumerate(spans) if first <= now < last), None)


def follow_stall(case: Case, seed: int, rails: int | None = None, counted_every: float = 5.0) -> Told:
    """The verdicts on a stall, from its cause until traffic returns, the job ends or the recording does."""
    job, truth = FollowedJob(case, seed, rails, counted_every), case.truth
    end = min(truth.resumes, truth.ends, case.end)
    told = Told(max(node.last_byte(end) for node in case.nodes), end)
    first = np.ceil(truth.stopped / POLL_SECONDS) * POLL_SECONDS
    for now in np.arange(first, end, POLL_SECONDS):
        told.note(float(now), job.judge(float(now)))
    return told


def follow_healthy(case: Case, seed: int) -> Iterator[Told]:
    """The verdicts on the silences of a healthy job that were judged at all."""
    job = FollowedJob(case, seed, rails=1)
    for begin, end in silences(case):
        job.feed(begin)
        wait = job.threshold(begin + 2 * SETTLED_SECONDS)
        told = Told(begin, end)
        first = np.ceil((begin + wait) / POLL_SECONDS) * POLL_SECONDS
        for now in np.arange(first, end, POLL_SECONDS):
            told.note(float(now), job.judge(float(now)))
        if told.verdicts:
            yield told


def silences(case: Case) -> Iterator[tuple[float, float]]:
    """True spans of more than a second in which no node has traffic, apart from a few bytes."""
    spans = []
    for node in case.nodes:
        flow = node.job[node.rails[0], "sent"]
        large = flow.volumes > 1e6
        spans.append(np.column_stack((flow.begins[large], flow.ends[large])))
    table = np.concatenate(spans)
    table = table[np.argsort(table[:, 0])]
    ends = np.maximum.accumulate(table[:, 1])
    for place in np.flatnonzero(table[1:, 0] - ends[:-1] > 1.0):
        yield float(ends[place]), float(table[place + 1, 0])
    yield float(ends[-1]), case.truth.ends
