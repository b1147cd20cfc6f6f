"""Reads the answers of nodes: as JSON, as `ibpulse.answers` describes them, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from ibpulse.answers.members import NOT_OURS, Part, read_members
from ibpulse.errors import DaemonError
from ibpulse.fleet.http_peer import JSON_TYPE, MAX_BYTES, PeerAnswer
from ibpulse.fleet.nodes import Node
from ibpulse.text import escape_controls, show


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
