"""The past samples of one node, asked of its daemon or through a gateway, as pieces of a recording."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np

from ibpulse.analysis.plausible import MOST_STEPS, STEPS
from ibpulse.answers.events import MAX_EVENTS, EventsAnswer
from ibpulse.answers.members import NOT_OURS
from ibpulse.answers.window import WindowHead
from ibpulse.errors import DaemonError
from ibpulse.events import Event
from ibpulse.fleet.node_answers import ask_node
from ibpulse.fleet.node_table import NodeState
from ibpulse.fleet.nodes import Node
from ibpulse.fleet.window_answers import NodeArray, read_array
from ibpulse.model import DIRECTIONS
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.recordings.event_sources import job_from_answer
from ibpulse.recordings.recorded_jobs import limit_jobs
from ibpulse.recordings.recording import limit_events, meta_between
from ibpulse.recordings.source import describe_answer
from ibpulse.ring.window import ticks_to_settle, widest_stride
from ibpulse.units import MILLISECOND_NS, SECOND_NS

MADE_BY = "fleet collect"
# of one answer, so that the node answers without delay: rates and uncertainties
MAX_VALUES = 100_000
ANSWER_SECONDS = 10.0
# a node or a gateway that is busy, and a short break of the network
ATTEMPTS, PAUSE_SECONDS = 4, 1.0
BUSY = (0, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The samples that a node still has, all of them settled: from `begin_ns` to before `end_ns` by its clock."""

    interval_ns: int
    begin_ns: int
    end_ns: int


class NodeSource:
    """One node with the ports that count bytes."""

    def __init__(self, node: Node, name: str, state: NodeState) -> None:
        """Nothing is asked yet; `name` is that of the node in the dataset, and `state` has its ports.

        Raises:
            DaemonError: none of its ports counts bytes.
        """
        assert state.ports is not None
        self.name, self._node, self._state = name, node, state
        self.interval_ns = state.ports.interval_ns
        self.ports = describe_answer(state.ports)
        if not self.ports:
            raise DaemonError("has no ports with byte counters", kind="bad-answer")
        self._plain = RecordingMeta(name, self.interval_ns, self.ports, MADE_BY)

    async def ask_history(self) -> KeptSamples:
        """What the node has now.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
        head = (await self._ask([("last", "1s"), ("statistic", "mean")])).head
        self._check_grid(head)
        settle_ns = (
            ticks_to_settle(self.interval_ns, widest_stride(port.stride for port in self.ports)) * self.interval_ns
        )
        return KeptSamples(
            self.interval_ns,
            head.history.oldest_ms * MILLISECOND_NS,
            head.history.newest_ms * MILLISECOND_NS - settle_ns + self.interval_ns,
        )

    async def describe(self, begin_ns: int, end_ns: int) -> RecordingMeta:
        """The metadata of a recording of a span, with the ports as of its begin, its events and its jobs.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
        events, left_out = limit_events(await self._ask_events(begin_ns))
        known = self._state.jobs.jobs if self._state.jobs else ()
        try:
            jobs, jobs_left_out = limit_jobs(map(job_from_answer, known))
            meta = RecordingMeta(
                self.name,
                self.interval_ns,
                self.ports,
                MADE_BY,
                f"from {self._node.target.url}",
                events=events,
                events_left_out=left_out,
                simulated=bool(self._state.ports and self._state.ports.simulated),
                jobs=jobs,
                jobs_left_out=jobs_left_out,
            )
            return meta_between(meta, begin_ns, end_ns)
        except ValueError as error:
            raise DaemonError(f"its answers make no recording: {error}; {NOT_OURS}", kind="bad-answer") from error

    async def _ask_events(self, begin_ns: int) -> tuple[Event, ...]:
        query = [("from", str(begin_ns // MILLISECOND_NS)), ("limit", str(MAX_EVENTS))]
        return (await ask_node(self._node, EventsAnswer, "/api/v1/events", query)).values

    def cut(self, begin_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """The spans of the answers that together have the samples of a span."""
        step_ns = max(1, MAX_VALUES // (4 * len(self.ports))) * self.interval_ns
        while begin_ns < end_ns:
            yield begin_ns, min(begin_ns + step_ns, end_ns)
            begin_ns += step_ns

    async def ask_samples(self, begin_ns: int, end_ns: int) -> Recording:
        """The samples from `begin_ns` to before `end_ns`, which are multiples of the interval, without events.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
        span = [("from", str(begin_ns // MILLISECOND_NS)), ("to", str(end_ns // MILLISECOND_NS))]
        window = await self._ask([("statistic", "mean"), *span])
        self._check_grid(window.head)
        ticks = (end_ns - begin_ns) // self.interval_ns
        if (window.head.start_ms * MILLISECOND_NS, window.head.points) != (begin_ns, ticks):
            raise DaemonError(f"its answer has another span than asked for; {NOT_OURS}", kind="bad-answer")
        try:
            return _make_piece(self._plain, begin_ns, window)
        except ValueError as error:
            raise DaemonError(f"its samples are not as expected: {error}; {NOT_OURS}", kind="bad-answer") from error

    def _check_grid(self, head: WindowHead) -> None:
        sampled_ns = {head.interval_ms * MILLISECOND_NS, head.resolution_ms * MILLISECOND_NS}
        if sampled_ns != {self.interval_ns} or (head.statistic, head.unit) != ("mean", "bytes_per_second"):
            raise DaemonError(f"its samples are not those of every {self.interval_ns / 1e6:g} ms", kind="bad-answer")

    async def _ask(self, query: list[tuple[str, str]]) -> NodeArray:
        """The answer of one of several attempts."""
        query = [*query, ("uncertainty", "true"), ("format", "npy")]
        for attempt in range(ATTEMPTS):
            try:
                return read_array(await self._node.get("/api/v1/window", query, seconds=ANSWER_SECONDS))
            except DaemonError as error:
                if error.status not in BUSY or error.kind == "bad-answer" or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("an attempt returns or raises")


def _make_piece(meta: RecordingMeta, start_ns: int, window: NodeArray) -> Recording:
    rows = {name: row for row, name in enumerate(window.head.series)}
    shape = len(meta.ports), 2, window.head.points
    rates, unsure = np.full(shape, np.nan), np.zeros(shape)
    for place, port in enumerate(meta.ports):
        for way, direction in enumerate(DIRECTIONS):
            row = rows.get(f"{port.id} {direction}")
            if row is not None:
                rates[place, way] = window.values[row]
            doubt = rows.get(f"{port.id} {direction} uncertainty")
            if doubt is not None:
                unsure[place, way] = np.nan_to_num(window.values[doubt])
    seconds = np.where(np.isnan(rates), 0.0, meta.interval_ns / SECOND_NS)
    steps = np.rint(np.minimum(unsure, MOST_STEPS / STEPS) * STEPS).astype(np.uint16)
    return Recording(meta, start_ns, rates, seconds, steps, _find_merged(meta, window))


def _find_merged(meta: RecordingMeta, window: NodeArray) -> Any:
    merged = np.zeros((len(meta.ports), 2, window.head.points), dtype=np.bool_)
    places = {
        f"{port.id} {direction}": (place, way)
        for place, port in enumerate(meta.ports)
        for way, direction in enumerate(DIRECTIONS)
    }
    for row, first, count in window.head.implausible.places:
        name = window.head.series[row] if row < len(window.head.series) else ""
        if name in places:
            merged[(*places[name], slice(first, first + count))] = True
    return merged
