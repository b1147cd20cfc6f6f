"""The past samples of one node, asked of its daemon or through a gateway, as pieces of a recording."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from ibpulse.answers.events import EventsAnswer
from ibpulse.answers.members import NOT_OURS
from ibpulse.client.connection import events_query
from ibpulse.client.transport import Query
from ibpulse.client.windows import NodeArray, read_array
from ibpulse.errors import DaemonError
from ibpulse.fleet.node_table import NodeState
from ibpulse.fleet.nodes import Node, ask_node
from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.recordings.from_daemon import DaemonSamples, KeptSamples, describe_answer, job_from_answer, past_meta

MADE_BY = "fleet collect"
ANSWER_SECONDS = 10.0
# a node or a gateway that is busy, and a short break of the network
ATTEMPTS, PAUSE_SECONDS = 4, 1.0
BUSY = (0, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


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
        return self.kept(await self._ask(self.query()))

    async def describe(self, begin_ns: int, end_ns: int) -> RecordingMeta:
        """The metadata of a recording of a span, with the ports as of its begin, its events and its jobs.

        Raises:
            DaemonError: there is no answer, or it is not the expected one.
        """
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
            return self.read(window)
        except ValueError as error:
            raise DaemonError(f"its samples are not as expected: {error}; {NOT_OURS}", kind="bad-answer") from error

    async def _ask(self, query: Query) -> NodeArray:
        """The answer of one of several attempts."""
        for attempt in range(ATTEMPTS):
            try:
                asked = [*query, ("format", "npy")]
                return read_array(await self._node.get("/api/v1/window", asked, seconds=ANSWER_SECONDS))
            except DaemonError as error:
                if error.status not in BUSY or error.kind == "bad-answer" or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("an attempt returns or raises")
