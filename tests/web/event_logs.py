"""Logs of events in closed form, for a node at the time of `full_node`."""

from __future__ import annotations

from ibpulse.events import Event, EventLog
from ibpulse.model import PortState
from tests.web.rings import EPOCH

NOW_NS = (EPOCH + 1005) * 10**7 + 1
UP = PortState("ACTIVE", "LinkUp", True, 5e10, True)
DOWN = PortState("DOWN", "Polling", False, 5e10, True)
KINDS_USED = ("link-down", "link-up", "quarantined")
SUBJECTS = ("mlx5_0:1", "mlx5_1:1", "mlx5_0", "mlx5_7:1", "")


def make_log(count: int) -> EventLog:
    """An event every 2 s, the newest 1 s ago, with kinds and subjects in turn, added oldest first."""
    log = EventLog()
    for number in range(count):
        time_ns = NOW_NS - 10**9 * (2 * (count - number) - 1)
        kind, subject = KINDS_USED[number % 3], SUBJECTS[number % 5]
        states = (UP, DOWN) if kind == "link-down" else (None, None)
        log.add(Event(time_ns, kind, subject, f"event {number}", 1_500_001, *states, details={"number": number}))
    return log
