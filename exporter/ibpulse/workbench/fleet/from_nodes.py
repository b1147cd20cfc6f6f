"""Collects past samples of many nodes from their daemons, or through a gateway, into a dataset."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from time import time_ns
from typing import TypeVar

import numpy as np

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError, DiscoveryError
from ibpulse.base.text import names_text, natural_key
from ibpulse.core.answers.members import NOT_OURS
from ibpulse.core.answers.node import EventsAnswer, is_node_name
from ibpulse.core.answers.samples import SignalsAnswer
from ibpulse.core.client.connection import GatewayNodes, events_query
from ibpulse.core.client.transport import HttpPeer, NodeArray, PeerAnswer, Query, read_answer, read_array, read_window
from ibpulse.core.recordings import Recording, RecordingMeta, save_pieces
from ibpulse.gateway.nodes.discovery import MAX_LIST_BYTES, SOURCE_SECONDS, Discovery, NodeConfigFile, TargetSource
from ibpulse.gateway.nodes.requests import Node, Nodes, ask_node
from ibpulse.gateway.nodes.table import NodeState, PolledNode
from ibpulse.gateway.nodes.targets import MAX_LABELS, Target, parse_address
from ibpulse.workbench.fleet.collection import CollectionResult, CoveredSpans, MissingSpan, cut_span, write_missing
from ibpulse.workbench.fleet.dataset import MISSING, RAW, DatasetStore, Part
from ibpulse.workbench.fleet.tiers import PartOrigin, PartSummary, finish_part
from ibpulse.workbench.recorder.from_daemon import (
    DaemonSamples,
    KeptSamples,
    describe_answer,
    job_from_answer,
    name_signals,
    past_meta,
    place_signals,
    signals_query,
    wants_signals,
)

T = TypeVar("T")
Answer = TypeVar("Answer")
# a gateway serves few windows at a time
PARALLEL, GATEWAY_PARALLEL = 16, 4
NOT_THERE = "its history begins later"
NOT_YET = "its newest sample is older"
NO_SAMPLES = "it has no samples of this time"
MADE_BY = "fleet collect"
ANSWER_SECONDS = 10.0
# a node or a gateway that is busy, and a short break of the network
ATTEMPTS, PAUSE_SECONDS = 4, 1.0
BUSY = (0, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


@dataclass(frozen=True, slots=True)
class NodeCollection:
    """The span to collect in ns by the nodes' own clocks, and the id of their job, or an empty text.

    A job may also be named by its scheduler and its id (`slurm:42`). `parallel` nodes are asked in parallel.
    """

    begin_ns: int
    end_ns: int
    job: str = ""
    parallel: int = PARALLEL


async def collect_nodes(
    store: DatasetStore, discovery: Discovery, wanted: NodeCollection, computing: Executor
) -> CollectionResult:
    """Collect the samples of all nodes that the discovery finds, or of those that have the job.

    Nodes and spans without samples are recorded in the dataset. Complete parts are not requested again.
    """
    nodes, result = Nodes(), CollectionResult()
    threads = ThreadPoolExecutor(wanted.parallel, "collect")
    try:
        await discovery.refresh()
        for problem in discovery.problems:
            result.add_problem(problem)
        nodes.update(discovery.targets, discovery.access)
        with tempfile.TemporaryDirectory(prefix="ibpulse-", ignore_cleanup_errors=True) as folder:
            collector = _Collector(store, wanted, result, computing, threads, Path(folder))
            await _together(
                collector.collect(node) for node in sorted(nodes.all(), key=lambda node: natural_key(node.name))
            )
        if wanted.job and not collector.found:
            running = f"running: {names_text(collector.running)}" if collector.running else "no running job is known"
            result.add_problem(f"no node is known to have job {wanted.job!r}; {running}")
        # the stages may take longer than the requests
        result.written += await _together(collector.stages)
    finally:
        # a thread may wait for a request of this loop
        threads.shutdown(wait=False, cancel_futures=True)
        await nodes.close()
        await discovery.close()
    await asyncio.to_thread(write_missing, store, result.missing)
    return result


async def _together(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all; the first error ends the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class _Collector:
    """Collects nodes, at most `wanted.parallel` in parallel; `stages` compute the small tiers.

    `found` is whether a node has the wanted job; `running` are the jobs of the other nodes.
    """

    def __init__(
        self,
        store: DatasetStore,
        wanted: NodeCollection,
        result: CollectionResult,
        computing: Executor,
        threads: Executor,
        folder: Path,
    ) -> None:
        self.stages: list[asyncio.Future[PartSummary]] = []
        self._store, self._wanted, self._result = store, wanted, result
        self._computing, self._threads, self._folder = computing, threads, folder
        self._places = asyncio.Semaphore(wanted.parallel)
        self._covered = CoveredSpans.read(store, wanted.job, wanted.begin_ns, wanted.end_ns)
        self._absent = set(store.parts(MISSING))
        self._names: set[str] = set()
        self.running, self.found = set[str](), False

    async def collect(self, node: Node) -> None:
        """Collect one node; spans that it does not give are missing in the result."""
        async with self._places:
            polled = PolledNode(node.target)
            await polled.poll(node)
            state = polled.view(node.target)
            name = self._name(state)
            try:
                source = await self._open(node, name, state)
                history = None if source is None else await source.ask_history()
            except DaemonError as error:
                self._miss(Part(self._wanted.job, name, self._wanted.begin_ns), self._wanted.end_ns, str(error))
                return
            if source is None or history is None:
                return
            wanted_ns = self._wanted.begin_ns, self._wanted.end_ns
            self._result.kept.update(self._covered.within(name, *wanted_ns))
            for begin_ns, end_ns in self._covered.left(name, *wanted_ns):
                for part_ns, until_ns in cut_span(begin_ns, end_ns, source.meta.interval_ns, len(source.meta.ports)):
                    part = Part(self._wanted.job, name, part_ns)
                    if await self._collect_part(source, history, part, until_ns):
                        # once more, for its clock
                        await polled.poll(node)
                        self._finish(part, polled.view(node.target))

    def _name(self, state: NodeState) -> str:
        """The name of a node: that of its source, or else the one that its daemon gives, if no other node has it."""
        own = state.clock.node if state.clock and not state.target.named else ""
        name = own if own and own not in self._names else state.name
        self._names.add(name)
        return name

    async def _open(self, node: Node, name: str, state: NodeState) -> NodeSource | None:
        """The samples of a node, None if it does not have the job.

        Raises:
            DaemonError: it does not answer, or it is not known whether it has the job.
        """
        if state.ports is None:
            raise DaemonError(state.problem)
        if self._wanted.job and not (state.jobs and state.jobs.known):
            raise DaemonError("it does not say which jobs it has")
        jobs = state.jobs.jobs if state.jobs else ()
        given = {each for job in jobs for each in (job.job_id, f"{job.scheduler}:{job.job_id}")}
        if self._wanted.job and self._wanted.job not in given:
            self.running.update(job.job_id for job in jobs if job.running)
            return None
        self.found = True
        return NodeSource(node, name, state)

    async def _collect_part(self, source: NodeSource, history: KeptSamples, part: Part, end_ns: int) -> bool:
        """Write the raw file of a part; false if there is none. Spans that the node does not have are missing."""
        wanted_ns, interval_ns = _first_sample(end_ns, history.interval_ns), history.interval_ns
        begin_ns = _first_sample(max(part.start_ns, history.begin_ns), interval_ns)
        until_ns = min(wanted_ns, history.end_ns)
        if begin_ns >= until_ns:
            # a span without a tick of the node misses nothing
            if _first_sample(part.start_ns, interval_ns) < wanted_ns:
                self._miss(part, end_ns, NOT_THERE if history.begin_ns >= end_ns else NOT_YET)
            return False
        try:
            first = await _first_piece(source, begin_ns, until_ns)
            if first is None:
                self._miss(part, end_ns, NO_SAMPLES)
                return False
            await self._write_raw(source, part, first, until_ns)
        except DaemonError as error:
            self._miss(part, end_ns, str(error))
            return False
        if part in self._absent:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._store.remove, part.path(MISSING))
        if first.start_ns - part.start_ns >= interval_ns:
            self._miss(part, first.start_ns, NOT_THERE)
        if wanted_ns - until_ns >= interval_ns:
            self._miss(replace(part, start_ns=until_ns), end_ns, NOT_YET)
        return True

    async def _write_raw(self, source: NodeSource, part: Part, first: Recording, until_ns: int) -> None:
        """Write the raw file of a part, whose first samples are given, up to a time.

        Raises:
            DaemonError: the node does not answer.
            IbpulseError: the file cannot be written.
        """
        loop = asyncio.get_running_loop()
        meta = await source.describe(first.start_ns, until_ns)
        pieces = itertools.chain([first], _pieces(source, first.end_ns, until_ns, loop))
        file = self._folder / f"{id(source)}.parquet"
        try:
            await loop.run_in_executor(self._threads, save_pieces, file, meta, pieces)
            await loop.run_in_executor(self._threads, self._store.copy_in, RAW, part, file)
        finally:
            file.unlink(missing_ok=True)

    def _finish(self, part: Part, state: NodeState) -> None:
        synchronised = state.clock.synchronised if state.clock else None
        measured_ns = time_ns() if state.offset else None
        origin = PartOrigin(state.target.url, dict(state.target.labels), state.offset, synchronised, measured_ns)
        submitted = self._computing.submit(finish_part, self._store.text, part, origin)
        self.stages.append(asyncio.wrap_future(submitted))

    def _miss(self, part: Part, to_ns: int, reason: str) -> None:
        self._result.missing.append(MissingSpan(part, to_ns, reason))


class NodeSource(DaemonSamples):
    """One node with the ports that count bytes."""

    def __init__(self, node: Node, name: str, state: NodeState) -> None:
        """Nothing is asked yet; `name` is that of the node in the dataset, and `state` has its ports.

        Raises:
            DaemonError: none of its ports counts bytes.
        """
        assert state.ports is not None
        ports, simulated = describe_answer(state.ports), state.ports.simulated
        if not ports:
            raise DaemonError("has no ports with byte counters", kind="bad-answer")
        reason = f"from {node.target.url}"
        super().__init__(RecordingMeta(name, state.ports.interval_ns, ports, MADE_BY, reason, simulated=simulated))
        self._node, self._jobs = node, state.jobs.jobs if state.jobs else ()

    async def ask_history(self) -> KeptSamples:
        """The samples that the node has now.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
        kept = self.kept(await self._ask(self.query()))
        self.meta = name_signals(self.meta, await self._ask_signals())
        return kept

    async def describe(self, begin_ns: int, end_ns: int) -> RecordingMeta:
        """The metadata of a recording of a span, with the ports as of its begin, its events and its jobs."""
        events = (await ask_node(self._node, EventsAnswer, "/api/v1/events", events_query(begin_ns))).values
        try:
            return past_meta(self.meta, events, map(job_from_answer, self._jobs), begin_ns, end_ns)
        except ValueError as error:
            raise DaemonError(f"its answers make no recording: {error}; {NOT_OURS}", kind="bad-answer") from error

    async def ask_samples(self, begin_ns: int, end_ns: int) -> Recording:
        """The samples from `begin_ns` to before `end_ns`, which are multiples of the interval, without events.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
        window = await self._ask(self.query(begin_ns, end_ns))
        ticks = (end_ns - begin_ns) // self.meta.interval_ns
        if (window.start_ns, window.head.points) != (begin_ns, ticks):
            raise DaemonError(f"its answer has another span than asked for; {NOT_OURS}", kind="bad-answer")
        try:
            piece = self.read(window)
            return place_signals(piece, await self._ask_signals(piece)) if wants_signals(piece) else piece
        except ValueError as error:
            raise DaemonError(f"its samples are not as expected: {error}; {NOT_OURS}", kind="bad-answer") from error

    async def _ask_signals(self, piece: Recording | None = None) -> list[SignalsAnswer]:
        """The signals of the ports."""
        return (await self._attempt(signals_query(piece), read_window)).signals or []

    async def _ask(self, query: Query) -> NodeArray:
        return await self._attempt([*query, ("format", "npy")], read_array)

    async def _attempt(self, query: Query, read: Callable[[PeerAnswer], Answer]) -> Answer:
        """The answer of one of several attempts."""
        for attempt in range(ATTEMPTS):
            try:
                return read(await self._node.get("/api/v1/window", query, seconds=ANSWER_SECONDS))
            except DaemonError as error:
                if error.status not in BUSY or error.kind == "bad-answer" or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("an attempt returns or raises")


def _first_sample(time_ns: int, interval_ns: int) -> int:
    """The first multiple of the interval at or after a time."""
    return -(-time_ns // interval_ns) * interval_ns


async def _first_piece(source: NodeSource, begin_ns: int, end_ns: int) -> Recording | None:
    """The first samples of a span from the first one on that is not missing; None if all are missing.

    The ring of a node begins before its daemon did.
    """
    for first_ns, until_ns in source.cut(begin_ns, end_ns):
        piece = await source.ask_samples(first_ns, until_ns)
        known = np.flatnonzero(~np.isnan(piece.bytes_per_second).all(axis=(0, 1)))
        if len(known):
            return piece.cut(int(known[0]), piece.ticks)
    return None


def _pieces(source: NodeSource, begin_ns: int, end_ns: int, loop: asyncio.AbstractEventLoop) -> Iterator[Recording]:
    """The pieces of a span, in a thread beside the loop: each is asked for when the last one is written."""
    for first_ns, until_ns in source.cut(begin_ns, end_ns):
        yield asyncio.run_coroutine_threadsafe(source.ask_samples(first_ns, until_ns), loop).result()


class GatewaySource(TargetSource):
    """The nodes of a gateway, each at its place below `/node/`, with the access of the gateway."""

    def __init__(self, url: str, config: NodeConfigFile) -> None:
        """Nothing is asked yet.

        Raises:
            ValueError: the URL is not that of a server.
        """
        super().__init__(url)
        _, self._url = parse_address(url)
        self._config = config

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes of the gateway at this moment."""
        peer = HttpPeer(self._url, self._config.access)
        try:
            answer = await peer.get("/api/v1/nodes", max_bytes=MAX_LIST_BYTES, seconds=SOURCE_SECONDS)
            found = read_answer(GatewayNodes, answer)
        except DaemonError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise DiscoveryError(["has no list of nodes, so it is no gateway; give the address of one"]) from error
            raise DiscoveryError([str(error)]) from error
        finally:
            await peer.close()
        return tuple(
            Target(node.node, f"{self._url}/node/{node.node}", dict(list(node.labels.items())[:MAX_LABELS]))
            for node in found.nodes
            if is_node_name(node.node)
        )
