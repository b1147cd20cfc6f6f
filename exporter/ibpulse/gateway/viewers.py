"""The viewers of all streams of the gateway, of nodes and of jobs, which share its places."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ibpulse.metrics.web import WebCounts
from ibpulse.units import SECOND_NS
from ibpulse.web.stream.hub import Viewer, make_room


class Viewers:
    """Up to `limit` viewers, the oldest first; `counts` has their number."""

    def __init__(self, counts: WebCounts, limit: int, ending: asyncio.Event) -> None:
        self._counts, self._limit, self._ending = counts, limit, ending
        self._viewers: dict[Viewer, None] = {}

    def make_room(self, client: str) -> None:
        """Make room for a viewer of a client: if there is none, the newest of the client with most viewers ends.

        Raises:
            ProblemError: the gateway ends, or no client has more viewers than this one.
        """
        make_room(self._viewers, client, self._limit, ending=self._ending.is_set())

    def add(self, client: str, first: Iterator[bytes]) -> Viewer:
        """Add a viewer, for which there is room; it gets `first` before all that it is offered."""
        viewer = Viewer(client, SECOND_NS, first, self._count_dropped)
        self._viewers[viewer] = None
        self._counts.stream_viewers = len(self._viewers)
        return viewer

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer, however it ended."""
        self._viewers.pop(viewer, None)
        self._counts.stream_viewers = len(self._viewers)

    def _count_dropped(self) -> None:
        self._counts.stream_dropped_events += 1
