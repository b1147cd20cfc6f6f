"""Events and states of ports for the tests of this folder."""

from __future__ import annotations

from typing import Any

from ibpulse.core.events.event import Event, state_to_json
from ibpulse.core.model import PortState

RING = 77
UP = PortState("ACTIVE", "LinkUp", active=True, rate_bytes_per_second=50e9, rail=True)
DOWN = PortState("DOWN", "Polling", active=False, rate_bytes_per_second=50e9, rail=True)
SLOW = PortState("ACTIVE", "LinkUp", active=True, rate_bytes_per_second=12.5e9, rail=True)


def numbered(number: int, subject: str = "mlx5_0:1", kind: str = "link-down") -> Event:
    """An event that says which it is in every member."""
    return Event(number, kind, subject, f"event {number}", number, details={"number": number}, tick=number, ring=RING)


def moved(number: int, subject: str, before: PortState | None, after: PortState | None) -> Event:
    """An event at tick `number` that changed the state of a port."""
    if before is None or after is None:
        kind = "appeared" if before is None else "disappeared"
    else:
        kind = "link-up" if after.active else "link-down"
    return Event(number, kind, subject, "", 0, before, after, tick=number, ring=RING)


def started(number: int, **ports: PortState) -> Event:
    """The start of a daemon that finds these ports; `mlx5_0` stands for `mlx5_0:1`."""
    details: dict[str, Any] = {"ports": {f"{device}:1": state_to_json(state) for device, state in ports.items()}}
    return Event(number, "started", "", "the daemon started", details=details, tick=number, ring=RING)
