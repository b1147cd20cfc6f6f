"""The daemon as its web server sees it, and the limits of the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ibpulse.agent.node.node import CurrentSnapshot, Node
from ibpulse.base.clocks import ClockState, read_clock_state
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.application import RequestLimits, ServerParts


@dataclass(frozen=True, slots=True)
class WebLimits(RequestLimits):
    """The limits of a daemon.

    A request is wide if it reads or returns more than `wide_values` values. `max_values` limits one response.
    """

    max_wide_requests: int = 2
    wide_values: int = 100_000
    max_values: int = 200_000
    max_ports: int = 256

    def wide_requests(self, running: str, instead: str) -> ParallelRequests:
        """The wide requests of one kind; the refusal names those that are `running`, and what to ask for `instead`."""
        limit = self.max_wide_requests
        return ParallelRequests(limit, running, instead, name="max_wide_requests", wide_values=self.wide_values)


@dataclass(slots=True, kw_only=True)
class WebParts(ServerParts):
    """The daemon, as the routes see it: its node with the current statistics, and its own limits."""

    node: Node
    current: CurrentSnapshot
    limits: WebLimits = field(default_factory=WebLimits)
    clock_state: Callable[[], ClockState | None] = read_clock_state
