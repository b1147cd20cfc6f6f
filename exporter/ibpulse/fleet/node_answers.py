"""The known answers of a daemon, checked member by member; nothing else of an answer is passed on.

Names with control characters are refused, sentences with them are escaped. Unknown members are dropped. An answer is
encoded anew from its model. `web.schemas` describes the same members to clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ibpulse.answers.members import (
    MAX_JOBS,
    MAX_PORTS,
    NOT_OURS,
    Amount,
    AnswerPart,
    Count,
    Name,
    Names,
    Part,
    Sentences,
    at_most,
    read_members,
)
from ibpulse.errors import DaemonError
from ibpulse.fleet.http_peer import JSON_TYPE, MAX_BYTES, PeerAnswer
from ibpulse.fleet.nodes import Node
from ibpulse.text import escape_controls, show


class NodeJobTraffic(AnswerPart):
    """Until when a job moved bytes on a node: at most the uncertainty before each time, if it ended at all."""

    since_ms: Count
    known_until_ms: Count | None
    step_period_seconds: Amount | None
    last_ms: Count | None
    last_uncertainty_ms: Count
    last_transmit_ms: Count | None
    last_transmit_uncertainty_ms: Count
    last_receive_ms: Count | None
    last_receive_uncertainty_ms: Count

    @property
    def instants(self) -> tuple[int | None, ...]:
        """The last traffic of either direction, of transmit and of receive."""
        return self.last_ms, self.last_transmit_ms, self.last_receive_ms

    @property
    def silent_seconds(self) -> float:
        """For how long it has certainly been silent, 0 if it is not."""
        if self.last_ms is None or self.known_until_ms is None:
            return 0.0
        return max(0, self.known_until_ms - self.last_ms) / 1000


class NodeJob(AnswerPart):
    """One job of `/api/v1/jobs`."""

    job_id: Name
    scheduler: Name
    source: Name
    name: Name = ""
    namespace: Name = ""
    ports: Annotated[list[Name], at_most(MAX_PORTS)]
    basis: Name = ""
    gpus: Names = []
    devices: Names = []
    running: bool
    began: Name | None = None
    began_ms: Count | None
    began_uncertainty_ms: Count = 0
    ended: Name | None = None
    ended_ms: Count | None
    ended_uncertainty_ms: Count = 0
    traffic: NodeJobTraffic | None = None


class NodeJobs(AnswerPart):
    """`/api/v1/jobs`."""

    known: bool
    sources: Names = []
    jobs: Annotated[list[NodeJob], at_most(MAX_JOBS)]
    pods: Names = []
    notices: Sentences = []


def read_answer(model: type[Part], answer: PeerAnswer) -> Part:
    """The checked answer.

    Raises:
        DaemonError: it is not JSON, or a member is missing or wrong.
    """
    return read_members(model, read_json(answer))


def read_json(answer: PeerAnswer) -> bytes:
    """The body of an answer whose media type is JSON.

    Raises:
        DaemonError: it has another type.
    """
    if answer.media_type != JSON_TYPE:
        sent = show(escape_controls(answer.media_type))
        raise DaemonError(f"its answer is {sent}, not JSON; {NOT_OURS}", kind="bad-answer")
    return answer.body


async def ask_node(
    node: Node, model: type[Part], path: str, query: Sequence[tuple[str, str]] = (), max_bytes: int = MAX_BYTES
) -> Part:
    """The checked answer of a node at a path.

    Raises:
        DaemonError: there is no answer, the node refuses, or the answer is not the expected one.
    """
    return read_answer(model, await node.get(path, query, max_bytes=max_bytes))
