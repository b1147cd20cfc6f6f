"""Steps of a job, and the exact bytes of a workload at every instant."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ibpulse.base.units import WORD_BYTES
from ibpulse.core.arrays import Counts, Floats

NODE_RAILS = 8
LINE_BYTES_PER_SECOND = 50e9  # 400 Gb/s, one direction
BLOCK_NS = 1_000_000_000
BLOCKS_IN_MEMORY = 128
BLOCKS_REACHABLE = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job: segments in order, each with a constant rate.

    `durations_ns` is int64 and positive. `rates_bytes_per_second` is float64: the bytes per second of one port of
    full weight, in one direction.
    """

    durations_ns: Counts
    rates_bytes_per_second: Floats


class Workload(Protocol):
    """A job as the network sees it. It is a value: all random numbers come from the generator passed to `step`."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    def step(self, rng: np.random.Generator) -> Step:
        """The next step."""
        ...

    def weights(self, rails: int) -> Floats:
        """The share of the step's rate that each rail carries, (rails, 2): transmit, receive."""
        ...


def even_weights(rails: int, idle_rails: tuple[int, ...] = ()) -> Floats:
    """Full weight on every rail except the idle ones of each node of eight, (rails, 2).

    A fabric of more than eight rails repeats the node; a smaller one is cut from it.
    """
    busy = [0.0 if rail % NODE_RAILS in idle_rails else 1.0 for rail in range(rails)]
    return np.repeat(np.array(busy), 2).reshape(rails, 2)


def build_step(spans: list[tuple[float, float, float]], length_seconds: float) -> Step:
    """The step of `length_seconds` in which each span (begin, end, rate) is busy and the rest is silent.

    Spans are in seconds, in order, and do not overlap. Edges are rounded to whole nanoseconds; spans that round to
    nothing are dropped.
    """
    edges = [0]
    rates: list[float] = []
    for begin, end, rate in spans:
        edges += [round(begin * 1e9), round(end * 1e9)]
        rates += [0.0, rate]
    edges.append(round(length_seconds * 1e9))
    rates.append(0.0)
    instants: Counts = np.array(edges, dtype=np.int64)
    durations = instants[1:] - instants[:-1]
    keep = durations > 0
    return Step(durations[keep], np.array(rates)[keep])


@dataclass(frozen=True, slots=True)
class ScheduleBlock:
    """Whole steps of at least one second together. `words` counts 4-octet words since the schedule began."""

    edges_ns: Counts
    words: Counts
    step_starts_ns: Counts
    edge_list: list[int]


class Schedule:
    """The cumulative bytes of every rail of a workload that starts at `start_ns` of any clock.

    A block of steps is made from (seed, block number) and can be dropped and made again: time is unbounded but
    memory is not. The last 100,000 blocks (more than a day) can be requested in any order. Thread safe.
    """

    def __init__(self, workload: Workload, seed: int = 0, rails: int = 8, start_ns: int = 0) -> None:
        self.workload = workload
        self.seed = seed
        self.rails = rails
        self.start_ns = start_ns
        self.weights = workload.weights(rails)
        self._starts_ns = [start_ns]
        self._start_words = [0]
        self._first = 0
        self._blocks: OrderedDict[int, ScheduleBlock] = OrderedDict()
        self._lock = threading.Lock()

    def cumulative_bytes(self, time_ns: int | Counts) -> Counts:
        """Bytes since the start, shape of `time_ns` + (rails, 2): transmit, receive.

        Never decreases with time, always a multiple of four, 0 before the start. Raises ValueError for a time that is
        no longer available.
        """
        words = self._unit_words(np.asarray(time_ns, dtype=np.int64))
        return np.floor(words[..., None, None] * self.weights).astype(np.int64) * WORD_BYTES

    def port_bytes(self, time_ns: int, rail: int, direction: int) -> int:
        """Bytes since the start of one rail in one direction: the same values, for a single time."""
        weight = float(self.weights[rail, direction])
        if weight == 0.0 or time_ns <= self.start_ns:
            return 0
        with self._lock:
            block = self._block(self._block_number(time_ns))
        place = bisect_right(block.edge_list, time_ns) - 1
        before, after = int(block.words[place]), int(block.words[place + 1])
        begin, end = block.edge_list[place], block.edge_list[place + 1]
        return int((before + int((after - before) * ((time_ns - begin) / (end - begin)))) * weight) * WORD_BYTES

    def latest_within(self, begin_ns: int, end_ns: int, most_bytes: float) -> int:
        """The latest instant up to `end_ns` until which no port moves more than `most_bytes` after `begin_ns`."""
        rail, direction = divmod(int(self.weights.argmax()), 2)
        most = self.port_bytes(begin_ns, rail, direction) + most_bytes
        if self.port_bytes(end_ns, rail, direction) <= most:
            return end_ns
        while end_ns - begin_ns > 1:
            middle = (begin_ns + end_ns) // 2
            if self.port_bytes(middle, rail, direction) <= most:
                begin_ns = middle
            else:
                end_ns = middle
        return begin_ns

    def step_starts_ns(self, begin_ns: int, end_ns: int) -> Counts:
        """The instants in [begin, end) at which a step starts."""
        starts = np.concatenate([block.step_starts_ns for block in self._span(begin_ns, end_ns)])
        return starts[(starts >= begin_ns) & (starts < end_ns)]

    def _unit_words(self, time_ns: Counts) -> Counts:
        if time_ns.size == 0:
            return np.zeros(time_ns.shape, dtype=np.int64)
        moment = np.maximum(time_ns, self.start_ns)
        blocks = self._span(int(moment.min()), int(moment.max()))
        edges = np.concatenate([block.edges_ns[:-1] for block in blocks] + [blocks[-1].edges_ns[-1:]])
        words = np.concatenate([block.words[:-1] for block in blocks] + [blocks[-1].words[-1:]])
        place = np.searchsorted(edges, moment, side="right") - 1
        part = (moment - edges[place]) / (edges[place + 1] - edges[place])
        inside: Counts = ((words[place + 1] - words[place]) * part).astype(np.int64)
        return words[place] + inside

    def _span(self, begin_ns: int, end_ns: int) -> list[ScheduleBlock]:
        with self._lock:
            last = self._block_number(end_ns)
            return [self._block(number) for number in range(self._block_number(begin_ns), last + 1)]

    def _block_number(self, time_ns: int) -> int:
        while self._starts_ns[-1] <= time_ns:
            self._block(self._first + len(self._starts_ns) - 1)
        if time_ns < self._starts_ns[0]:
            raise ValueError(f"time {time_ns} ns is out of reach: the schedule now begins at {self._starts_ns[0]} ns")
        return self._first + bisect_right(self._starts_ns, time_ns) - 1

    def _block(self, number: int) -> ScheduleBlock:
        block = self._blocks.get(number)
        if block is None:
            block = self._make(number)
            self._blocks[number] = block
            if len(self._blocks) > BLOCKS_IN_MEMORY:
                self._blocks.popitem(last=False)
            self._register(number, block)
        return block

    def _make(self, number: int) -> ScheduleBlock:
        begin_ns, begin_words = self._starts_ns[number - self._first], self._start_words[number - self._first]
        rng = np.random.default_rng((self.seed, number))
        steps, starts, length_ns = [], [], 0
        while length_ns < BLOCK_NS:
            steps.append(self.workload.step(rng))
            starts.append(begin_ns + length_ns)
            length_ns += int(steps[-1].durations_ns.sum())
        durations = np.concatenate([step.durations_ns for step in steps])
        flowed = np.cumsum(durations * np.concatenate([step.rates_bytes_per_second for step in steps])) / 1e9
        edges = begin_ns + np.concatenate([[0], np.cumsum(durations)])
        words = begin_words + np.concatenate([[0], np.floor(flowed / WORD_BYTES).astype(np.int64)])
        return ScheduleBlock(edges, words, np.array(starts, dtype=np.int64), edges.tolist())

    def _register(self, number: int, block: ScheduleBlock) -> None:
        if number != self._first + len(self._starts_ns) - 1:
            return
        self._starts_ns.append(block.edge_list[-1])
        self._start_words.append(int(block.words[-1]))
        if len(self._starts_ns) > 2 * BLOCKS_REACHABLE:
            del self._starts_ns[:BLOCKS_REACHABLE], self._start_words[:BLOCKS_REACHABLE]
            self._first += BLOCKS_REACHABLE
