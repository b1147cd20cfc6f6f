"""The last state of every node: what it answered, how far its clock is off, or why it does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ibpulse.base.clocks import Clock
from ibpulse.base.errors import DaemonError, DaemonFault
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.text import names_text, natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.answers.node import ClockAnswer, PortsAnswer
from ibpulse.core.client.transport import read_answer
from ibpulse.core.statistics.lateness import ClockOffset, ClockOffsets
from ibpulse.gateway.nodes.discovery import Discovery
from ibpulse.gateway.nodes.requests import MAX_PARALLEL, Node, NodeFigures, Nodes, ask_figures, ask_node
from ibpulse.gateway.nodes.targets import Target

POLL_SECONDS = 5.0
# how long a source is asked again after a node fell silent: a pod that is replaced gets another address
REPLACED_NS = 60 * SECOND_NS
# for the names of new nodes, and between two readings of the sources
MEET_SECONDS = 1.0
# they change seldom
FIGURES_EVERY = 6
# exchanges with the clock of a node in a poll, until it is known well enough
MAX_EXCHANGES, CERTAIN_NS = 4, 500_000
MAX_STATE_BYTES, MAX_CLOCK_BYTES = 1_000_000, 1000
NO_FIGURES = NodeFigures(None)
State = Literal["down", "degraded", "waiting", "up"]
STATES: Sequence[State] = ("down", "degraded", "waiting", "up")
"""No answer about its ports; an answer with problems; not asked yet; all well. The order of the table."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as of its last answers. What was never answered is None.

    `problem` is a sentence, empty if all is well, and `kind` how the daemon fails, if it does; `since_ns` is the wall
    time at which that changed, None if it never did. `offset` is None until its clock was asked often enough. A node
    that is down keeps its last answers. `idle_since_ns` is when its first rail became idle, None if it was when it was
    first asked. `jobs_problem` is a sentence if its last answer about jobs was refused, so that `jobs` is an earlier
    one.
    """

    target: Target
    state: State = "waiting"
    problem: str = ""
    kind: DaemonFault | None = None
    since_ns: int | None = None
    ports: PortsAnswer | None = None
    jobs: JobsAnswer | None = None
    clock: ClockAnswer | None = None
    offset: ClockOffset | None = None
    figures: NodeFigures = NO_FIGURES
    idle_since_ns: int | None = None
    jobs_problem: str = ""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.target.name


class PolledNode:
    """The state of one node, brought up to date by polls."""

    def __init__(self, target: Target, clock: Clock = time) -> None:
        self.state = NodeState(target)
        self._clock = clock
        self._offsets = ClockOffsets()
        self._polls = 0

    async def poll(self, node: Node) -> None:
        """Ask the node for its ports, clock and jobs, and now and then for its figures."""
        try:
            ports = await ask_node(node, PortsAnswer, "/api/v1/ports", max_bytes=MAX_STATE_BYTES)
        except DaemonError as error:
            self._settle("down", str(error), error.kind)
            return
        self.state = replace(self.state, ports=_with_last_rates(ports, self.state.ports))
        other = await self._poll_others(node)
        problem = "; ".join(filter(None, (_find_problem(ports), "" if other is None else str(other))))
        self._settle("degraded" if problem else "up", problem, None if other is None else other.kind)

    def is_newly_silent(self) -> bool:
        """Whether it answered until a moment ago."""
        state = self.state
        return (
            state.kind == "no-answer"
            and state.since_ns is not None
            and self._clock.time_ns() - state.since_ns < REPLACED_NS
        )

    def fail(self) -> None:
        """Say that the gateway itself failed with this node."""
        self._settle("down", "internal error of the gateway; see its log", "bad-answer")

    def _settle(self, state: State, problem: str, kind: DaemonFault | None) -> None:
        old = self.state
        since_ns = old.since_ns if kind == old.kind or old.state == "waiting" else self._clock.time_ns()
        self.state = replace(old, state=state, problem=problem, kind=kind, since_ns=since_ns)

    async def _poll_others(self, node: Node) -> DaemonError | None:
        """Read what is not about ports; why the first of them cannot be read, or None. The last values stay."""
        found = None
        # the clock first, on the connection that is open now, for a short round trip
        for what, read in (("clock", self._read_clock), ("jobs", self._read_jobs), ("metrics", self._read_figures)):
            try:
                await read(node)
            except DaemonError as error:
                found = found or DaemonError(f"its {what} cannot be read: {error}", error.status, error.kind)
                # a wrong answer says nothing about the others, but silence does
                if error.kind == "no-answer":
                    break
        self._polls += 1
        return found

    def view(self, target: Target) -> NodeState:
        """The state at this moment, with the name and the labels of `target`."""
        offset = self._offsets.offset(*read_clocks(self._clock)) if self.state.clock else None
        return replace(self.state, target=target, offset=offset)

    async def _read_clock(self, node: Node) -> None:
        for _ in range(MAX_EXCHANGES):
            answer = await node.get("/api/v1/clock", max_bytes=MAX_CLOCK_BYTES)
            clock = read_answer(ClockAnswer, answer)
            self.state = replace(self.state, clock=clock)
            self._offsets.add(answer.sent_ns, answer.received_ns, clock.time_ns)
            found = self._offsets.offset(*read_clocks(self._clock))
            if found is not None and found.uncertainty_ns <= CERTAIN_NS:
                return

    async def _read_jobs(self, node: Node) -> None:
        try:
            jobs = await ask_node(node, JobsAnswer, "/api/v1/jobs", max_bytes=MAX_STATE_BYTES)
        except DaemonError as error:
            if error.kind == "bad-answer":
                self.state = replace(self.state, jobs_problem=str(error))
            raise
        self.state = replace(self.state, jobs=jobs, jobs_problem="")

    async def _read_figures(self, node: Node) -> None:
        old = self.state.figures
        if old.version is None or self._polls % FIGURES_EVERY == 0:
            figures = await ask_figures(node)
            since_ns = self.state.idle_since_ns if old.idle else self._clock.time_ns()
            idle_since_ns = since_ns if figures.idle and old.version is not None else None
            self.state = replace(self.state, figures=figures, idle_since_ns=idle_since_ns)


def read_clocks(clock: Clock = time) -> tuple[int, int]:
    """The monotonic clock and the wall clock at one moment, of several attempts the one that took the least time."""
    reads = ((clock.monotonic_ns(), clock.time_ns(), clock.monotonic_ns()) for _ in range(3))
    before, wall, after = min(reads, key=lambda read: read[2] - read[0])
    return (before + after) // 2, wall


def describe_clock(row: NodeState) -> dict[str, Any] | None:
    """The offset of the clock of a node from this one; None if it is unknown."""
    if row.offset is None:
        return None
    return {
        "offset_ms": row.offset.offset_ns / MILLISECOND_NS,
        "uncertainty_ms": row.offset.uncertainty_ns / MILLISECOND_NS,
        "synchronised": row.clock.synchronised if row.clock else None,
    }


def _with_last_rates(ports: PortsAnswer, before: PortsAnswer | None) -> PortsAnswer:
    """The ports of an answer; those whose links are down keep the data rates that they had."""
    last = {port.name: port.rate_bytes_per_second for port in before.ports} if before else {}
    kept = []
    for port in ports.ports:
        rate = port.rate_bytes_per_second or last.get(port.name)
        kept.append(port.model_copy(update={"rate_bytes_per_second": rate}))
    return ports.model_copy(update={"ports": kept})


def _find_problem(ports: PortsAnswer) -> str:
    """The problems of the rails of a node as a sentence, empty without any."""
    if not ports.ports:
        return "it has no ports"
    silent = [port.name for port in ports.ports if port.rail and port.problem]
    down = [port.name for port in ports.ports if port.rail and not port.active and port.name not in silent]
    parts = [f"no samples of {names_text(silent)}"] if silent else []
    parts += [f"{names_text(down)} {'is' if len(down) == 1 else 'are'} not ACTIVE"] if down else []
    return "; ".join(parts)


class NodeTable:
    """The states of all nodes of a discovery; the polls are spread evenly over `POLL_SECONDS`."""

    def __init__(
        self, discovery: Discovery, nodes: Nodes, errors: InternalErrors | None = None, clock: Clock = time
    ) -> None:
        self._clock = clock
        self._discovery, self._nodes = discovery, nodes
        self._errors = errors or InternalErrors(parts=GATEWAY_PARTS)
        # pages do not wait for polls of nodes that hang
        self._parallel = asyncio.Semaphore(MAX_PARALLEL)
        self._polled: dict[str, PolledNode] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        # by the keys of nodes that their source does not name: the name that each has, and why not its own one
        self._names: dict[str, str] = {}
        self._unnamed: dict[str, str] = {}

    def rows(self) -> tuple[NodeState, ...]:
        """The states of all nodes, those with problems first, then by name."""
        found: dict[State, list[NodeState]] = {state: [] for state in STATES}
        for name in self._polled:
            if row := self.row(name):
                found[row.state].append(row)
        return tuple(row for rows in found.values() for row in rows)

    def row(self, name: str) -> NodeState | None:
        """The state of a node by name; None if it is not listed."""
        node = self._nodes.get(name)
        return self._view(node) if node and name in self._polled else None

    def _view(self, node: Node) -> NodeState:
        state = self._polled[node.name].view(node.target)
        reason = self._unnamed.get(node.target.key)
        if not reason or state.state == "down":
            return state
        return replace(state, state="degraded", problem="; ".join(filter(None, (state.problem, reason))))

    def update(self) -> None:
        """Take over the nodes that the discovery lists now; states and clocks of nodes that stay are kept."""
        old = {polled.state.target.key: polled for polled in self._polled.values()}
        targets = self._discovery.targets
        self._find_names(targets, old)
        named = [replace(target, name=self._names.get(target.key, target.name)) for target in targets]
        self._nodes.update(named, self._discovery.access)
        self._polled = {}
        for node in sorted(self._nodes.all(), key=lambda node: natural_key(node.name)):
            known = old.get(node.target.key)
            same = known is not None and known.state.target.url == node.target.url
            self._polled[node.name] = known if known is not None and same else PolledNode(node.target, self._clock)

    def _find_names(self, targets: Sequence[Target], polled: Mapping[str, PolledNode]) -> None:
        """Give nodes without a name those of their daemons. The first node with a name keeps it."""
        clocks = {key: each.state.clock for key, each in polled.items()}
        wanted = {
            target.key: clock.node
            for target in targets
            if not target.named and (clock := clocks.get(target.key)) and clock.node
        }
        kept = {key: name for key, name in self._names.items() if wanted.get(key) == name}
        taken = {target.name for target in targets}
        self._names, self._unnamed = {}, {}
        for key, name in (kept | wanted).items():
            if name in taken:
                self._unnamed[key] = f"its daemon calls itself {name!r}, as another node is called; give it a name"
            else:
                self._names[key] = name
                taken.add(name)

    async def run(self) -> None:
        """Poll every node every `POLL_SECONDS`, forever, once the sources of nodes were asked."""
        await self._discovery.asked.wait()
        loop = asyncio.get_running_loop()
        try:
            while True:
                begin = loop.time()
                with self._errors.boundary("nodes"):
                    await self._start_all(begin)
                await asyncio.sleep(max(0.0, begin + POLL_SECONDS - loop.time()))
        finally:
            tasks = [*self._running.values(), *filter(None, [self._looking])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_all(self, begin: float) -> None:
        """Begin a poll of every node that is listed now, one after the other, from this time of the loop on."""
        await self._meet()
        loop, nodes = asyncio.get_running_loop(), self._nodes.all()
        for place, node in enumerate(nodes):
            await asyncio.sleep(max(0.0, begin + place * POLL_SECONDS / len(nodes) - loop.time()))
            self._start(node)

    async def _meet(self) -> None:
        """Take over the nodes that are listed now, and ask new ones at once whose names only their daemons know."""
        self.update()
        unknown = [node for node in self._nodes.all() if not node.target.named]
        new = [self._start(node) for node in unknown if self._polled[node.name].state.state == "waiting"]
        if running := [task for task in new if task]:
            await asyncio.wait(running, timeout=MEET_SECONDS)
            self.update()

    async def _look_again(self) -> None:
        """Read the sources before their time."""
        with self._errors.boundary("nodes"):
            await self._discovery.refresh()
            await self._meet()
        await asyncio.sleep(MEET_SECONDS)

    def _start(self, node: Node) -> asyncio.Task[None] | None:
        """Begin a poll, unless the last one of this node still runs or the node is gone."""
        polled = self._polled.get(node.name)
        if polled is None or node.name in self._running or self._nodes.get(node.name) is not node:
            return None
        task = asyncio.create_task(self._poll(polled, node))
        self._running[node.name] = task
        task.add_done_callback(partial(self._end, node.name))
        return task

    def _end(self, name: str, _: asyncio.Task[None]) -> None:
        del self._running[name]

    async def _poll(self, polled: PolledNode, node: Node) -> None:
        with self._errors.boundary("nodes", node.name):
            await polled.poll(node.limited_by(self._parallel))
            if polled.is_newly_silent() and (self._looking is None or self._looking.done()):
                self._looking = asyncio.create_task(self._look_again())
            return
        polled.fail()
