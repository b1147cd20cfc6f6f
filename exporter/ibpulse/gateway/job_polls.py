"""Reads the newest samples, statistics and events of the nodes of a job, each node on its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ibpulse.base.errors import DaemonError
from ibpulse.base.internal_errors import Occurrences
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.events import EventAnswer, EventsAnswer
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.client.transport import NodeArray, read_array
from ibpulse.core.jobs.claims import Key
from ibpulse.core.window_values import Statistic
from ibpulse.gateway.job_node import JobNode
from ibpulse.gateway.job_nodes import FleetJob, list_jobs
from ibpulse.gateway.node_samples import NodeSamples
from ibpulse.gateway.nodes.nodes import Node, ask_node
from ibpulse.gateway.parts import GatewayParts

log = logging.getLogger(__name__)

KEPT_MS = 61_000
FIRST_MS = 11_000
SUMMARY_MS = 10_000
# of statistics and events
SLOW_SECONDS = 5.0
# of the last traffic of the job
TRAFFIC_SECONDS = 1.0
FAILED_SECONDS = 2.0
MAX_EVENTS = 1000
# if all nodes were asked at once, on a busy machine each answer would take as long as all of them together
MAX_ASKED = 8
# a node that hangs keeps others waiting for so long at most
PLACE_SECONDS = 0.1
MAX_WINDOW_BYTES = 8_000_000
# nodes that are no longer listed, whose rows stay
MAX_GONE = 64
GONE = ("gone", "its source no longer lists it")
WAITING = ("no-answer", "it was not asked yet")


async def ask_samples(node: Node, job: str, span: Sequence[tuple[str, str]], statistic: Statistic = "max") -> NodeArray:
    """The samples of a job's rails in a span (`last`, or `from` and `to`); for peaks, the certain part of each.

    Raises:
        DaemonError: there is no answer, or not this one.
    """
    query = [("job", job), ("format", "npy"), ("statistic", statistic), *span]
    return read_array(await node.get("/api/v1/window", query, max_bytes=MAX_WINDOW_BYTES))


def describe_event(node: str, event: EventAnswer) -> dict[str, Any]:
    """An event as in `/api/v1/stream`, with its node."""
    details = {name: event.details[name] for name in ("name",) if event.kind == "capture" and name in event.details}
    return {
        "node": node,
        "time_ms": event.time_ms,
        "uncertainty_ms": event.uncertainty_ms,
        "kind": event.kind,
        "subject": event.subject,
        "text": event.text,
        "details": details,
    }


class NodePoll:
    """What was read of one node, with the task that reads it now."""

    def __init__(self, data: JobNode, note: Callable[[list[dict[str, Any]]], None], parts: GatewayParts) -> None:
        self.data, self._clock, self._table = data, parts.clock, parts.table
        self._note = note
        self._slow_at = self._traffic_at = 0.0
        self._events_from_ms: int | None = None
        self._known: deque[tuple[Any, ...]] = deque(maxlen=MAX_EVENTS)
        self.again_at = 0.0
        self.task: asyncio.Task[None] | None = None

    async def read(self, node: Node, job: str) -> None:
        """Read what is new; statistics, events and the last traffic less often."""
        samples = self.data.samples
        try:
            window = await ask_samples(node, job, self._span())
            self.data.samples = (samples or NodeSamples(window.head.interval_ms, KEPT_MS)).add(window)
            self.data.history_ms = max(0, window.head.history.newest_ms - window.head.history.oldest_ms)
            self.data.problem = ("", "")
            if self._clock.monotonic() >= self._traffic_at:
                self._traffic_at = self._clock.monotonic() + TRAFFIC_SECONDS
                self._table.note_jobs(node.name, await ask_node(node, JobsAnswer, "/api/v1/jobs"))
            if self._clock.monotonic() >= self._slow_at:
                self._slow_at = self._clock.monotonic() + SLOW_SECONDS
                query = [("job", job), ("last", f"{SUMMARY_MS}ms")]
                self.data.summary = await ask_node(node, SummaryAnswer, "/api/v1/summary", query)
                await self._read_events(node)
        except DaemonError as error:
            # a node whose clock was set back refuses what is in its future
            if error.status == 422:
                self.data.samples = self._events_from_ms = None
            # statistics of another time are not those of now
            self.data.summary, self._slow_at = None, 0.0
            self.data.problem = (error.kind, str(error))
            self.again_at = self._clock.monotonic() + FAILED_SECONDS

    def _span(self) -> list[tuple[str, str]]:
        samples, known = self.data.samples, self.data.state
        if samples is None or not samples.end_ms:
            return [("last", f"{FIRST_MS}ms")]
        offset = known.offset.offset_ns if known and known.offset else 0
        if self._clock.time_ns() + offset - samples.end_ms * MILLISECOND_NS > FIRST_MS * MILLISECOND_NS:
            return [("last", f"{FIRST_MS}ms")]
        return [("from", str(samples.end_ms))]

    async def _read_events(self, node: Node) -> None:
        query = [("limit", str(MAX_EVENTS))]
        query += [] if self._events_from_ms is None else [("from", str(self._events_from_ms))]
        found = (await ask_node(node, EventsAnswer, "/api/v1/events", query)).events
        news = [each for each in found if (each.time_ms, each.kind, each.subject, each.text) not in self._known]
        self._known.extend((each.time_ms, each.kind, each.subject, each.text) for each in news)
        self._events_from_ms = max((each.time_ms for each in found), default=self._events_from_ms)
        if news:
            self._note([describe_event(node.name, each) for each in news])


class _Place:
    """A place among the nodes that are asked now, which is left once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = True

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._places.release()


class JobPolls:
    """Polls the nodes of a job. What a node answers is in `nodes` at once; one that hangs does not hold up others."""

    def __init__(self, parts: GatewayParts, key: Key) -> None:
        self._parts, self._key = parts, key
        self._polls: dict[str, NodePoll] = {}
        self._failures = Occurrences()
        self._places = asyncio.Semaphore(MAX_ASKED)
        # those that the viewers have, and those that they get next
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._new_events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.job = FleetJob(key)
        self.refresh()

    @property
    def nodes(self) -> dict[str, JobNode]:
        """The nodes of the job by name."""
        return {name: poll.data for name, poll in self._polls.items()}

    def refresh(self) -> None:
        """Take over the nodes that the job has now; nodes that it had keep what was read."""
        states = {state.name: state for state in self._parts.table.rows()}
        found = list_jobs(states.values()).get(self._key)
        for name, job in found.nodes.items() if found else ():
            self.job.nodes[name] = job
        for name, job in self.job.nodes.items():
            poll, state = self._polls.get(name), states.get(name)
            if poll is None:
                self._polls[name] = NodePoll(JobNode(job, state, WAITING), self._new_events.extend, self._parts)
            else:
                problem, samples = (poll.data.problem, poll.data.samples) if state else (GONE, None)
                state = state or poll.data.state
                poll.data = replace(poll.data, job=job, state=state, problem=problem, samples=samples)
        # a node that has another name at each poll would fill the memory
        gone = [name for name, poll in self._polls.items() if name not in states and poll.task is None]
        for name in gone[:-MAX_GONE]:
            del self._polls[name], self.job.nodes[name]

    def start(self) -> list[asyncio.Task[None]]:
        """Begin a poll of every node that is not polled now, and that did not just fail; returns the running ones."""
        for name, poll in self._polls.items():
            node = self._parts.nodes.get(name)
            if node is not None and poll.task is None and self._parts.clock.monotonic() >= poll.again_at:
                poll.task = asyncio.create_task(self._read(poll, node), name=f"job {name}")
                poll.task.add_done_callback(partial(self._end, name, poll))
        return [poll.task for poll in self._polls.values() if poll.task is not None]

    async def _read(self, poll: NodePoll, node: Node) -> None:
        """Read what is new from a node once there is a place."""
        await self._places.acquire()
        place = _Place(self._places)
        leaving = asyncio.get_running_loop().call_later(PLACE_SECONDS, place.leave)
        try:
            await poll.read(node, self.job.text)
        finally:
            leaving.cancel()
            place.leave()

    async def stop(self) -> None:
        """Cancel the polls."""
        tasks = [poll.task for poll in self._polls.values() if poll.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def known_events(self) -> list[dict[str, Any]]:
        """The events that were taken."""
        return list(self._events)

    def take_events(self) -> list[dict[str, Any]]:
        """The events that were not taken yet."""
        found = list(self._new_events)
        self._new_events.clear()
        self._events.extend(found)
        return found

    def _end(self, name: str, poll: NodePoll, task: asyncio.Task[None]) -> None:
        poll.task = None
        error = None if task.cancelled() else task.exception()
        # a fault of ours with this one node; the others go on
        if error is not None:
            poll.data.problem = ("bad-answer", "internal error of the gateway; see its log")
            poll.again_at = self._parts.clock.monotonic() + FAILED_SECONDS
            if self._failures.is_news((type(error), name)):
                log.error("internal error while reading the samples of %s", name, exc_info=error)
