"""How far the clock of a node is from this one, from requests and their replies, and how certain that is.

A node answers at some moment between request and reply, so its clock minus the middle of both is its offset, at most
half the round trip off. The quickest exchange of the last minutes is the best one, except that clocks drift: every
second since adds 50 µs. Exchanges are kept by the monotonic clock, so that a step of the own clock disturbs nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

DRIFT = 50e-6
KEPT_NS = 300_000_000_000
MAX_KEPT = 256


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The clock of a node minus this one, in nanoseconds, and by how much that may be wrong either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A request and its reply: the node's clock minus the monotonic clock, half the round trip, and when."""

    lead_ns: int
    half_ns: int
    at_ns: int

    def uncertainty_ns(self, now_ns: int) -> int:
        return self.half_ns + round(DRIFT * abs(now_ns - self.at_ns))


class ClockOffsets:
    """The exchanges with one node. Times are those of the monotonic clock, in nanoseconds."""

    def __init__(self) -> None:
        self._kept: deque[_Exchange] = deque(maxlen=MAX_KEPT)
        self.steps = 0
        self.stepped_at_ns: int | None = None

    def add(self, sent_ns: int, received_ns: int, node_ns: int) -> bool:
        """Add an exchange, in which the node's clock was `node_ns`; whether that clock was stepped since the last ones.

        A step is an offset that neither round trips nor drift explain. All exchanges before it are forgotten.

        Raises:
            ValueError: the reply is older than the request.
        """
        if received_ns < sent_ns:
            raise ValueError(f"a reply {sent_ns - received_ns} ns before its request")
        middle_ns = (sent_ns + received_ns) // 2
        new = _Exchange(node_ns - middle_ns, -(-(received_ns - sent_ns) // 2), middle_ns)
        while self._kept and new.at_ns - self._kept[0].at_ns > KEPT_NS:
            self._kept.popleft()
        best = self._best(new.at_ns)
        stepped = best is not None and abs(new.lead_ns - best.lead_ns) > new.half_ns + best.uncertainty_ns(new.at_ns)
        if stepped:
            self._kept.clear()
            self.steps += 1
            self.stepped_at_ns = new.at_ns
        self._kept.append(new)
        return stepped

    def offset(self, now_ns: int, wall_ns: int) -> ClockOffset | None:
        """The offset at this moment, at which this clock is `wall_ns`; None without an exchange in the last minutes."""
        best = self._best(now_ns)
        if best is None or now_ns - best.at_ns > KEPT_NS:
            return None
        return ClockOffset(best.lead_ns - (wall_ns - now_ns), best.uncertainty_ns(now_ns))

    def _best(self, now_ns: int) -> _Exchange | None:
        return min(self._kept, key=lambda exchange: exchange.uncertainty_ns(now_ns), default=None)


def apart(first: ClockOffset | None, second: ClockOffset | None) -> ClockOffset | None:
    """The clock of the first node minus that of the second one; None if either is unknown."""
    if first is None or second is None:
        return None
    return ClockOffset(first.offset_ns - second.offset_ns, first.uncertainty_ns + second.uncertainty_ns)


def is_after(
    first_ns: int, second_ns: int, first: ClockOffset | None, second: ClockOffset | None, own_ns: int = 0
) -> bool | None:
    """Whether a moment by the first node's clock is after one by the second node's; None if nobody can know.

    `own_ns` is by how much the moments themselves may be wrong, together.
    """
    between = apart(first, second)
    if between is None:
        return None
    later_ns = first_ns - second_ns - between.offset_ns
    return None if abs(later_ns) <= between.uncertainty_ns + own_ns else later_ns > 0
