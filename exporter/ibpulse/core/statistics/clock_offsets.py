"""The offset of a node's clock from this one with its uncertainty, from requests and their replies.

A node reads its clock at some moment between request and reply. Its clock minus that of the asker is therefore at least
as much as if it had answered with the reply, and at most as much as if it had answered with the request. The highest
lower bound and the lowest upper bound of all exchanges count, so a quick request and a quick reply are enough, even if
never both at the same time. Clocks drift: with every second, each bound is 50 µs less sharp. Bounds are relative to the
monotonic clock, so that a step of the own clock does not affect them.
"""

from __future__ import annotations

from dataclasses import dataclass

DRIFT = 50e-6
KEPT_NS = 300_000_000_000


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The clock of a node minus this one, in nanoseconds, and the largest possible error either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class MeasuredOffset:
    """The offset of a node's clock as it was at a wall time of this one."""

    offset: ClockOffset
    at_ns: int

    def bounds(self, low_ms: int, high_ms: int) -> tuple[float, float]:
        """A time between two of the node's clock on this one, in seconds; clocks drift until they are measured."""
        shift = self.offset.offset_ns / 1e9
        doubt = (self.offset.uncertainty_ns + DRIFT * abs(self.at_ns - 1e6 * high_ms + self.offset.offset_ns)) / 1e9
        return low_ms / 1000 - shift - doubt, high_ms / 1000 - shift + doubt


_Bound = tuple[int, int]
"""The least or the most that the node's clock was ahead of the monotonic clock, and when."""


class ClockOffsets:
    """The exchanges with one node. Times are those of the monotonic clock, in nanoseconds."""

    def __init__(self) -> None:
        self._bounds: tuple[_Bound, _Bound] | None = None
        self._newest_ns = 0

    def add(self, sent_ns: int, received_ns: int, node_ns: int) -> bool:
        """Add an exchange, in which the node's clock was `node_ns`; true if that clock was stepped since the last ones.

        A step is an offset that neither round trips nor drift explain. Earlier exchanges are dropped then.

        Raises:
            ValueError: the reply is older than the request.
        """
        if received_ns < sent_ns:
            raise ValueError(f"a reply {sent_ns - received_ns} ns before its request")
        new = (node_ns - received_ns, received_ns), (node_ns - sent_ns, sent_ns)
        known, self._newest_ns = self._bounds or new, received_ns
        (least_ns, most_ns), (new_least_ns, new_most_ns) = _drifted(known, received_ns), _drifted(new, received_ns)
        stepped = new_least_ns > most_ns or new_most_ns < least_ns
        # all bounds become less sharp at the same rate, so the sharper one stays so
        sharper = new[0] if new_least_ns >= least_ns else known[0], new[1] if new_most_ns <= most_ns else known[1]
        self._bounds = new if stepped else sharper
        return stepped

    def offset(self, now_ns: int, wall_ns: int) -> ClockOffset | None:
        """The offset at this moment, at which this clock is `wall_ns`; None without an exchange in the last minutes."""
        if self._bounds is None or now_ns - self._newest_ns > KEPT_NS:
            return None
        least_ns, most_ns = _drifted(self._bounds, now_ns)
        return ClockOffset((least_ns + most_ns) // 2 - (wall_ns - now_ns), -(-(most_ns - least_ns) // 2))


def _drifted(bounds: tuple[_Bound, _Bound], now_ns: int) -> tuple[int, int]:
    """The least and the most at a moment."""
    least_drift_ns, most_drift_ns = (round(DRIFT * max(0, now_ns - at_ns)) for _, at_ns in bounds)
    return bounds[0][0] - least_drift_ns, bounds[1][0] + most_drift_ns
