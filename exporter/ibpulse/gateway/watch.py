"""Watches all jobs for silence, without viewers: asks their nodes, judges silent jobs, takes captures, pushes alerts.

A node that is slow or gone delays no other: each has at most one request at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from functools import partial

from ibpulse.base.errors import DaemonError
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import CapturesAnswer, PendingAnswer, SilencesAnswer, StoredAnswer
from ibpulse.core.defaults import HISTORY_NS
from ibpulse.core.jobs import Key
from ibpulse.core.statistics.lateness import MeasuredOffset
from ibpulse.core.statistics.silences import Stall
from ibpulse.gateway.captures import CAPTURES, MIN_NS, WantedCapture, capture_job, missing_nodes_text
from ibpulse.gateway.jobs import FleetJob, list_jobs
from ibpulse.gateway.nodes.requests import Node, ask_node
from ibpulse.gateway.nodes.targets import MAX_TARGETS
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.verdicts import WatchedJob

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
SILENCES = "/api/v1/silences"
MAX_ANSWER_BYTES = 2_000_000
# so that the loop wakes seldom
MAX_GROUPS = 40
# a node that misses one poll may be busy
MISSED_POLLS = 2
# for all nodes of a job that may have fallen silent
ASK_SECONDS = 0.7
# between two judgements of a job, before it has a verdict and afterwards; the first waits for all its nodes
SOON_SECONDS, LATER_SECONDS = ASK_SECONDS, 1.0
# the newest samples of a node are older
SAMPLED_SECONDS = 0.4
# captures begin within this time of their verdict
CAPTURE_SECONDS = 1.0
REASON = "stall"


class StallWatch:
    """The watch over the jobs of all nodes; `parts.verdicts` has what it finds."""

    def __init__(self, parts: GatewayParts, unexplained_ns: int, errors: InternalErrors | None = None) -> None:
        self._parts, self._unexplained = parts, unexplained_ns / SECOND_NS
        self._errors = errors or InternalErrors(parts=GATEWAY_PARTS)
        self._jobs: dict[Key, FleetJob] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        # the problems of nodes that did not answer since their last answer, and those that ever answered
        self._missed: dict[str, list[str]] = {}
        self._heard: set[str] = set()
        self._complete = False
        self._planned: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # a node waits for no other
        self._parallel = asyncio.Semaphore(MAX_TARGETS)

    async def run(self) -> None:
        """Ask every node with a job every `POLL_SECONDS`, forever."""
        await self._parts.discovery.asked.wait()
        loop = asyncio.get_running_loop()
        try:
            while True:
                begin = loop.time()
                with self._errors.boundary("stalls"):
                    await self._ask_all(begin)
                await asyncio.sleep(max(0.0, begin + POLL_SECONDS - loop.time()))
        finally:
            tasks = [*self._running.values(), *self._tasks]
            for handle in self._planned.values():
                handle.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_all(self, begin: float) -> None:
        """Begin a request to every node with a job, spread over the time of a poll."""
        nodes, loop = self._refresh(), asyncio.get_running_loop()
        groups = min(MAX_GROUPS, len(nodes))
        for place in range(groups):
            await asyncio.sleep(max(0.0, begin + place * POLL_SECONDS / groups - loop.time()))
            for node in nodes[place::groups]:
                if node.name not in self._running:
                    self._running[node.name] = task = asyncio.create_task(self._poll(node))
                    task.add_done_callback(partial(self._end, node.name))

    def _end(self, name: str, _: asyncio.Task[None]) -> None:
        del self._running[name]

    def _refresh(self) -> Sequence[Node]:
        """Take over the jobs of all nodes; returns the nodes with a job that runs."""
        rows = self._parts.table.rows()
        self._jobs, self._complete = list_jobs(rows), all(row.state != "waiting" for row in rows)
        verdicts = self._parts.verdicts
        verdicts.keep(self._jobs)
        running = {name for job in self._jobs.values() for name, each in job.nodes.items() if each.running}
        for job in verdicts:
            for name in job.nodes.keys() - set(self._nodes_of(job)):
                del job.nodes[name]
            # a job that ended has no node, and its stall ends with it
            self._consider(job)
        self._missed = {name: problems for name, problems in self._missed.items() if name in running}
        self._heard &= running
        self._parts.push.fire(verdicts.alerts())
        return self._parts.nodes.choose(sorted(running))[0]

    async def _poll(self, node: Node) -> None:
        with self._errors.boundary("stalls", node.name):
            try:
                answer = await self._ask(node)
            except DaemonError as error:
                self._miss(node.name, str(error))
            else:
                self._hear(node.name, answer)

    async def _ask(self, node: Node) -> SilencesAnswer:
        return await ask_node(node.limited_by(self._parallel), SilencesAnswer, SILENCES, max_bytes=MAX_ANSWER_BYTES)

    def _miss(self, name: str, problem: str) -> None:
        """Note that a node did not answer."""
        self._missed[name] = [*self._missed.get(name, ()), problem][-MISSED_POLLS:]
        if len(self._missed[name]) < MISSED_POLLS:
            return
        for job in self._parts.verdicts:
            if name in job.nodes:
                job.nodes[name].problem = problem
                self._consider(job)

    def _hear(self, name: str, answer: SilencesAnswer) -> None:
        """Take over the answer of a node, and judge its jobs if they are silent."""
        self._missed.pop(name, None)
        self._heard.add(name)
        state = self._parts.table.row(name)
        clock = MeasuredOffset(state.offset, self._parts.clock.time_ns()) if state and state.offset else None
        said = {(each.scheduler, each.job_id): each for each in answer.jobs}
        for key, each in said.items():
            job = self._parts.verdicts.job(key)
            job.hear(name, each, clock)
            self._consider(job)
        for job in self._parts.verdicts:
            if name in job.nodes and job.key not in said:
                del job.nodes[name]
                self._consider(job)

    def _consider(self, job: WatchedJob) -> None:
        """Judge a job that may be silent: as soon as all its nodes were asked, and then again and again."""
        if not job.stall and not any(each.answer.notable for each in job.nodes.values()):
            job.asked = False
        elif not job.asked:
            job.asked = True
            job.judged_at = self._parts.clock.monotonic()
            self._start(self._examine(job))
        elif self._parts.clock.monotonic() - job.judged_at >= (LATER_SECONDS if job.stall else SOON_SECONDS):
            self._judge(job)

    async def _examine(self, job: WatchedJob) -> None:
        """Ask all nodes of a job for what they know now, and judge it."""
        nodes, _ = self._parts.nodes.choose(self._nodes_of(job))
        async for node, answer in self._parts.nodes.ask_each(nodes, self._ask, ASK_SECONDS):
            if isinstance(answer, SilencesAnswer):
                self._hear(node.name, answer)
        self._judge(job)

    def _nodes_of(self, job: WatchedJob) -> list[str]:
        """The nodes on which a job runs."""
        known = self._jobs.get(job.key)
        return [name for name, each in known.nodes.items() if each.running] if known else []

    def _judge(self, job: WatchedJob) -> None:
        job.judged_at = self._parts.clock.monotonic()
        problems = {name: self._missed.get(name, []) for name in self._nodes_of(job) if name not in self._heard}
        if not self._complete or any(len(each) < MISSED_POLLS for each in problems.values()):
            # a gateway that has just started does not know all nodes yet
            return
        strangers = {name: each[-1] for name, each in problems.items()}
        begun, ended = job.review(self._parts.clock.time_ns(), self._unexplained, strangers)
        verdicts, name = self._parts.verdicts, ":".join(job.key)
        if ended:
            verdicts.withdrawn[ended.verdict.kind] += ended.resumed
            log.info("job %s: %s", name, "traffic returned" if ended.resumed else "it ended in its stall")
        if job.stall and (verdict := job.stall.verdict).kind not in job.stall.said:
            job.stall.said.add(verdict.kind)
            verdicts.given[verdict.kind] += 1
            log.warning("job %s: %s", name, verdict.sentence)
        if begun and job.key in self._jobs:
            self._start(self._capture(self._jobs[job.key], begun))
        self._parts.push.fire(verdicts.alerts())
        self._plan(job)

    def _plan(self, job: WatchedJob) -> None:
        """Ask all nodes again at the moment at which the silence of a job becomes worth telling."""
        stall = job.stall
        if stall is None or stall.pushed or job.key in self._planned:
            return
        left = stall.verdict.since[1] + stall.verdict.push_after + SAMPLED_SECONDS - self._parts.clock.time()
        if left < POLL_SECONDS:
            loop = asyncio.get_running_loop()
            self._planned[job.key] = loop.call_later(max(SOON_SECONDS, left), self._examine_now, job)

    def _examine_now(self, job: WatchedJob) -> None:
        del self._planned[job.key]
        if self._parts.verdicts.jobs.get(job.key) is job:
            self._start(self._examine(job))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        async def run() -> None:
            with self._errors.boundary("stalls"):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _capture(self, job: FleetJob, stall: Stall) -> None:
        """Take a capture on all nodes of a job from before the silence on, unless another gateway has."""
        # gateways come to their verdicts at the same moment
        await asyncio.sleep(random.uniform(0, CAPTURE_SECONDS))
        since_ns, settings = round(1e9 * stall.verdict.since[0]), self._parts.captures
        if await self._is_captured(job, since_ns):
            return
        age_ns = self._parts.clock.time_ns() - since_ns
        before_ns = max(MIN_NS, min(settings.before_ns + age_ns, HISTORY_NS - settings.after_ns))
        labels = {"job_id": job.key[1], "verdict": stall.verdict.kind}
        reason, clock = f"{REASON}-{stall.verdict.kind}", self._parts.clock
        wanted = WantedCapture(reason, labels, before_ns, settings.after_ns, clock.monotonic_ns(), clock)
        taken = await capture_job(self._parts, job, wanted)
        if not taken["nodes"]:
            log.warning("%s", missing_nodes_text(taken))

    async def _is_captured(self, job: FleetJob, since_ns: int) -> bool:
        """Whether a node has a capture of this silence, as from another gateway, or from before a restart."""
        nodes, _ = self._parts.nodes.choose(sorted(name for name in job.nodes if name not in self._missed)[:1])
        found = await self._parts.nodes.ask_all(nodes, lambda node: ask_node(node, CapturesAnswer, CAPTURES))
        listed: list[StoredAnswer | PendingAnswer] = []
        for answer in found.answers.values():
            listed += [*answer.captures, *answer.pending]
        return any(
            each.reason.startswith(f"{REASON}-") and each.trigger_ms * MILLISECOND_NS >= since_ns for each in listed
        )
