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

    @property
    def rank(self) -> float:
        """Orders exchanges by their uncertainty at any later time: all grow by the same drift."""
        return self.half_ns - DRIFT * self.at_ns

    def uncertainty_ns(self, now_ns: int) -> int:
        return self.half_ns + round(DRIFT * abs(now_ns - self.at_ns))


class ClockOffsets:
    """The exchanges with one node. Times are those of the monotonic clock, in nanoseconds."""

    def __init__(self) -> None:
        # the best one first; those after it are younger and, until it is too old, worse
        self._kept: deque[_Exchange] = deque()

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
        best = self._find_best(new.at_ns)
        stepped = best is not None and abs(new.lead_ns - best.lead_ns) > new.half_ns + best.uncertainty_ns(new.at_ns)
        if stepped:
            self._kept.clear()
        while self._kept and self._kept[-1].rank >= new.rank:
            self._kept.pop()
        self._kept.append(new)
        return stepped

    def offset(self, now_ns: int, wall_ns: int) -> ClockOffset | None:
        """The offset at this moment, at which this clock is `wall_ns`; None without an exchange in the last minutes."""
        best = self._find_best(now_ns)
        if best is None:
            return None
        return ClockOffset(best.lead_ns - (wall_ns - now_ns), best.uncertainty_ns(now_ns))

    def _find_best(self, now_ns: int) -> _Exchange | None:
        """The best exchange that is not too old; older ones are forgotten."""
        while self._kept and now_ns - self._kept[0].at_ns > KEPT_NS:
            self._kept.popleft()
        return self._kept[0] if self._kept else None
