"""What is known of the ports of the last minutes: a rail that vanished is the one that a capture is about."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ibpulse.aggregator.snapshot import PortSnapshot, Snapshot
from ibpulse.model import PortId
from ibpulse.recordings import RecordedPort
from ibpulse.recordings.recording import MAX_PORTS

GONE = "GONE"


@dataclass(frozen=True, slots=True)
class KnownPort:
    """A port as it was at a tick."""

    port: RecordedPort
    tick: int


class KnownPorts:
    """The last word on each port, for as long as the ring may hold samples of it."""

    def __init__(self, history_ticks: int) -> None:
        self._history_ticks = history_ticks
        self._seen: dict[PortId, KnownPort] = {}
        self._latest_tick = 0

    def update(self, snapshot: Snapshot) -> None:
        """Take the ports of one more second."""
        tick = self._latest_tick = snapshot.end_tick
        here = {port.port.id: port for port in snapshot.ports if port.directions}
        for number, port in here.items():
            self._seen[number] = KnownPort(
                _describe(port, self._seen.get(number), snapshot.sampler.interval_seconds), tick
            )
        for number in self._seen.keys() - here.keys():
            seen = self._seen[number]
            if seen.tick < tick - self._history_ticks:
                del self._seen[number]
            elif seen.port.state != GONE:
                self._seen[number] = replace(seen, port=replace(seen.port, active=False, state=GONE))

    def since(self, tick: int) -> tuple[RecordedPort, ...]:
        """The ports that were there at this tick or later, by name; a tick after the last second is in it."""
        begin = min(tick, self._latest_tick)
        chosen = sorted((number, seen.port) for number, seen in self._seen.items() if seen.tick >= begin)
        return tuple(port for _, port in chosen[:MAX_PORTS])


def _describe(seen: PortSnapshot, before: KnownPort | None, interval_seconds: float) -> RecordedPort:
    port = seen.port
    # a port that went down has no rate, but had one while it carried what the capture shows
    rate = port.rate_bytes_per_second or (before.port.rate_bytes_per_second if before else None)
    stride = max(1, round(seen.sampling_interval_seconds / interval_seconds))
    known = RecordedPort.of(port, port.source.name if port.source else "", stride)
    return replace(known, rate_bytes_per_second=rate, resolution_seconds=seen.effective_resolution_seconds)
