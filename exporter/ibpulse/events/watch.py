"""Compares the ports of a node with those of the moment before, and records what changed."""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.model import Port, PortState


@dataclass(frozen=True, slots=True)
class KnownPort:
    """A port that exists, or that disappeared within the history of the ring.

    `port` is the last scan's. `state` is the state in force, None for a port that disappeared. It holds since the wall
    time `since_ns`, None if it did not change within the history. `problem` is a sentence, empty for a healthy port.
    """

    port: Port
    state: PortState | None
    since_ns: int | None = None
    problem: str = ""
