"""Reads the stream of a daemon: server-sent events of bounded length."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from ibpulse.base.errors import DaemonError
from ibpulse.core.answers.members import NOT_OURS, AnswerPart, read_members
from ibpulse.core.answers.stream import EVENTS

STREAM_TYPE = "text/event-stream"
MAX_EVENT_BYTES = 4_000_000


async def read_events(
    content: AsyncIterator[bytes],
) -> AsyncGenerator[tuple[str, int | None, AnswerPart] | None, None]:
    """Name, id and checked data of each event in the body of a stream; None for a comment. Unknown events are dropped.

    Raises:
        DaemonError: an event is too long, or its data is not as expected.
    """
    rest = bytearray()
    async for part in content:
        # the mark may begin in the part before
        looked = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", looked)) >= 0:
            text, looked = bytes(rest[:end]), 0
            del rest[: end + 2]
            found = _read_event(text)
            if found is not None or text.startswith(b":"):
                yield found
        if len(rest) > MAX_EVENT_BYTES:
            raise DaemonError(f"an event of its stream is longer than {MAX_EVENT_BYTES} bytes", kind="bad-answer")


def _read_event(text: bytes) -> tuple[str, int | None, AnswerPart] | None:
    fields = {name: value for name, _, value in (line.partition(b": ") for line in text.split(b"\n"))}
    name = fields.get(b"event", b"").decode("ascii", "replace")
    model = EVENTS.get(name)
    if model is None:
        return None
    identity = fields.get(b"id")
    if identity is not None and not (identity.isdigit() and len(identity) <= 18):
        raise DaemonError(f"the id of an event of its stream is not a number; {NOT_OURS}", kind="bad-answer")
    return name, None if identity is None else int(identity), read_members(model, fields.get(b"data", b""))
