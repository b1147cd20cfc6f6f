"""Remembers the ports of the last minutes, because a capture is often about a rail that just disappeared."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ibpulse.agent.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.core.model import PortId
from ibpulse.core.recordings import RecordedPort
from ibpulse.core.recordings.recording import MAX_PORTS

GONE = "GONE"


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A port and the last sample at which it was present."""

    port: RecordedPort
    tick: int


class KnownPorts:
    """The latest description of each port, kept for as long as the ring may hold samples of it."""

    def __init__(self, history_ticks: int) -> None:
        self._history_ticks = history_ticks
        self._seen: dict[PortId, LastSeen] = {}
        self._latest_tick = 0
        self.simulated = False
        """Whether the ports are those of a simulator or a replay."""

    def update(self, snapshot: Snapshot) -> None:
        """Update from the snapshot of one more second."""
        tick = self._latest_tick = snapshot.end_tick
        self.simulated = snapshot.fabric.simulated
        here = {port.port.id: port for port in snapshot.ports if port.directions}
        for number, port in here.items():
            self._seen[number] = LastSeen(
                _describe(port, self._seen.get(number), snapshot.sampler.interval_seconds), tick
            )
        for number in self._seen.keys() - here.keys():
            seen = self._seen[number]
            if seen.tick < tick - self._history_ticks:
                del self._seen[number]
            elif seen.port.state != GONE:
                self._seen[number] = replace(seen, port=replace(seen.port, active=False, state=GONE))

    def since(self, tick: int) -> tuple[RecordedPort, ...]:
        """The ports present at this sample or later, sorted by name; future samples count as the latest."""
        begin = min(tick, self._latest_tick)
        chosen = sorted((number, seen.port) for number, seen in self._seen.items() if seen.tick >= begin)
        return tuple(port for _, port in chosen[:MAX_PORTS])


def _describe(seen: PortSnapshot, before: LastSeen | None, interval_seconds: float) -> RecordedPort:
    port = seen.port
    # a port that went down has no rate, but had one while it carried the traffic in the capture
    rate = port.rate_bytes_per_second or (before.port.rate_bytes_per_second if before else None)
    stride = max(1, round(seen.sampling_interval_seconds / interval_seconds))
    known = RecordedPort.of(port, port.source.name if port.source else "", stride)
    return replace(known, rate_bytes_per_second=rate, resolution_seconds=seen.effective_resolution_seconds)
