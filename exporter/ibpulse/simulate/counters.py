"""The counters of one simulated port: what traffic and faults make of them. It must not read a clock or a file."""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.simulate.faults import HEALTHY, DeviceFaults
from ibpulse.simulate.schedule import WORD_BYTES

START_WORDS = (205_143_497_464_492, 205_128_687_774_249)
PACKET_BYTES = 4096 + 26  # a full packet of a 4 KiB MTU and its headers
REQUEST_BYTES = 2**20  # a chunk of a collective, written in one request
_DIRECTION = {"xmit": 0, "rcv": 1}


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Where the counters stood when the faults last changed. Replaced as a whole, so readers need no lock."""

    flowed: tuple[int, int]
    words: tuple[int, int]
    flow: float
    requests: int = 0
    carried: float = 1.0


class PortCounters:
    """Counters that follow `flowed`, the bytes (transmit, receive) that the schedule has sent by an instant.

    From one change of the faults to the next the value depends on the instant alone, so it can be computed at any.
    """

    def __init__(self, words: tuple[int, int], flowed: tuple[int, int] = (0, 0)) -> None:
        self.faults = HEALTHY
        self.link_downed = 0
        self._anchor = _Anchor(flowed, words, 1.0)

    def words(self, direction: int, flowed: int) -> int:
        """The counter in 4-octet words."""
        anchor = self._anchor
        moved = max(0, flowed - anchor.flowed[direction])
        counted = moved if anchor.flow == 1.0 else int(moved * anchor.flow)
        return anchor.words[direction] + counted // WORD_BYTES

    def apply(self, faults: DeviceFaults, flowed: tuple[int, int]) -> None:
        """From `flowed` on the counters suffer these faults. Each is applied once, when it is new."""
        words = (self.words(0, flowed[0]), self.words(1, flowed[1]))
        if faults.reset and not self.faults.reset:
            words = (0, 0)
        if faults.down and not self.faults.down:
            self.link_downed += 1
        requests = self.requests(flowed[1])
        self.faults = faults
        self._anchor = _Anchor(flowed, words, faults.flow, requests, faults.carried)

    def start_over(self, flowed: tuple[int, int]) -> None:
        """Go on from where the counters stand at `flowed` with a flow that counts from zero."""
        words = (self.words(0, flowed[0]), self.words(1, flowed[1]))
        anchor = self._anchor
        self._anchor = _Anchor((0, 0), words, anchor.flow, self.requests(flowed[1]), anchor.carried)

    def requests(self, received: int) -> int:
        """Write requests received: they go on when the counters of the port are stuck, for they count elsewhere."""
        anchor = self._anchor
        return anchor.requests + int(max(0, received - anchor.flowed[1]) * anchor.carried) // REQUEST_BYTES

    def value(self, file: str, flowed: tuple[int, int]) -> int:
        """What a file of `counters/` reads: data, the packets that this makes, 0 for errors and multicast."""
        if file == "link_downed":
            return self.link_downed
        kind, _, what = file.partition("_")
        direction, _, unit = what.partition("_")
        if kind not in ("port", "unicast") or unit not in ("data", "packets"):
            return 0
        words = self.words(_DIRECTION[direction], flowed[_DIRECTION[direction]])
        return words if unit == "data" else words * WORD_BYTES // PACKET_BYTES
