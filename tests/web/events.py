"""A reader of server-sent events over a real socket. It asserts nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from tests.running import HANG_SECONDS


@dataclass(frozen=True)
class Event:
    """One event; `id` is empty where it has none."""

    name: str
    id: str
    data: Any


class Listener:
    """The events of one connection, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._chunks = answer.aiter_text()
        self._rest = ""

    async def next(self, name: str = "") -> Event:
        """The next event, or the next of that name; fails when none comes within some seconds."""
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                event = await self._one()
                if name in ("", event.name):
                    return event

    async def _one(self) -> Event:
        while "\n\n" not in self._rest:
            self._rest += await anext(self._chunks)
        text, _, self._rest = self._rest.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
        if "event" not in fields:
            return await self._one()
        return Event(fields["event"], fields.get("id", ""), orjson.loads(fields["data"]))

    async def ended(self) -> bool:
        """Whether the server ended the answer, after the events that are left."""
        async with asyncio.timeout(HANG_SECONDS):
            async for _ in self._chunks:
                pass
        return True


@asynccontextmanager
async def listening(client: httpx.AsyncClient, query: str = "", last: str = "") -> AsyncIterator[Listener]:
    """A connection to the stream."""
    headers = {"Last-Event-ID": last} if last else {}
    async with client.stream("GET", f"/api/v1/stream{query}", headers=headers) as answer:
        yield Listener(answer)
