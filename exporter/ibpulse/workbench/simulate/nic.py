"""One simulated NIC: its counters under traffic and faults, written to a tree of plain files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.workbench.simulate.faults import HEALTHY, DeviceFaults
from ibpulse.workbench.simulate.jobs import Traffic
from ibpulse.workbench.simulate.timeline import WORD_BYTES
from ibpulse.workbench.simulate.tree import (
    COUNTERS,
    Device,
    SimulatedCounterFile,
    list_device,
    remove_listing,
    replace_text,
    status_files,
    write_listing,
)

START_WORDS = (205_143_497_464_492, 205_128_687_774_249)
BITS_PER_BYTE = 8
PACKET_BYTES = 4096 + 26  # a full packet of a 4 KiB MTU and its headers
REQUEST_BYTES = 2**20  # a chunk of a collective, written in one request
_DIRECTION = {"xmit": 0, "rcv": 1}
FAST = ("port_xmit_data", "port_rcv_data")
SLOW = tuple(name for name in COUNTERS if name not in FAST)
NO_PMA = "N/A (no PMA)"


@dataclass(frozen=True, slots=True)
class _Follower:
    """A counter that follows the bytes of a direction: it counts `share` of them, in units of `bytes_per_count`."""

    direction: int
    bytes_per_count: int
    share: Callable[[DeviceFaults], float] = lambda faults: faults.carried
    maximum: int | None = None


# Files of `counters/` freeze with the data; those of `hw_counters/` belong to other hardware and do not.
_FOLLOWERS = {
    # a count is the time in which the port could send 8 bytes, as on recent devices
    "port_xmit_wait": _Follower(0, 8, lambda faults: faults.flow * faults.congested, 2**32 - 1),
    "symbol_error": _Follower(1, 1, lambda faults: faults.flow * faults.bit_errors * BITS_PER_BYTE, 2**16 - 1),
    "rx_write_requests": _Follower(1, REQUEST_BYTES),
    # switches mark packets, and one notification answers several of them
    "np_ecn_marked_roce_packets": _Follower(1, PACKET_BYTES, lambda faults: faults.carried * faults.congested),
    "np_cnp_sent": _Follower(1, 4 * PACKET_BYTES, lambda faults: faults.carried * faults.congested),
    "rp_cnp_handled": _Follower(0, 4 * PACKET_BYTES, lambda faults: faults.carried * faults.congested),
}
_ROCE_ONLY = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Counter values when the faults last changed. Replaced as a whole, so readers need no lock."""

    flowed: tuple[int, int]
    words: tuple[int, int]
    faults: DeviceFaults = HEALTHY
    followers: Mapping[str, int] = field(default_factory=dict)


class SimulatedCounters:
    """Counters that follow `flowed`, the bytes (transmit, receive) that the schedule has sent by an instant.

    Between two changes of the faults, the value depends on the instant only and can be computed for any instant.
    """

    def __init__(self, words: tuple[int, int], flowed: tuple[int, int] = (0, 0)) -> None:
        self.link_downed = 0
        self._anchor = _Anchor(flowed, words)

    @property
    def faults(self) -> DeviceFaults:
        """The faults that were applied last."""
        return self._anchor.faults

    def words(self, direction: int, flowed: int) -> int:
        """The counter in 4-octet words."""
        anchor = self._anchor
        moved = max(0, flowed - anchor.flowed[direction])
        flow = anchor.faults.flow
        counted = moved if flow == 1.0 else int(moved * flow)
        return anchor.words[direction] + counted // WORD_BYTES

    def apply(self, faults: DeviceFaults, flowed: tuple[int, int]) -> None:
        """From `flowed` on, the counters have these faults. Each is applied once, when it is new."""
        words = (self.words(0, flowed[0]), self.words(1, flowed[1]))
        followers = {name: self.follow(name, flowed) for name in _FOLLOWERS}
        if faults.reset and not self.faults.reset:
            words = (0, 0)
            followers = {name: 0 if name in COUNTERS else count for name, count in followers.items()}
        if faults.down and not self.faults.down:
            self.link_downed += 1
        self._anchor = _Anchor(flowed, words, faults, followers)

    def start_over(self, flowed: tuple[int, int], begin: tuple[int, int] = (0, 0)) -> None:
        """Continue from the counter values at `flowed` with a flow that counts from `begin`."""
        words = (self.words(0, flowed[0]), self.words(1, flowed[1]))
        followers = {name: self.follow(name, flowed) for name in _FOLLOWERS}
        self._anchor = _Anchor(begin, words, self.faults, followers)

    def follow(self, file: str, flowed: tuple[int, int]) -> int:
        """The value of a counter that follows the traffic; it stays at its maximum."""
        anchor, follower = self._anchor, _FOLLOWERS[file]
        moved = max(0, flowed[follower.direction] - anchor.flowed[follower.direction])
        count = anchor.followers.get(file, 0) + int(moved * follower.share(anchor.faults)) // follower.bytes_per_count
        return count if follower.maximum is None else min(count, follower.maximum)

    def value(self, file: str, flowed: tuple[int, int]) -> int:
        """The value of a file in `counters/`: data, the packets that this makes, 0 for most errors and multicast."""
        if file == "link_downed":
            return self.link_downed
        if file in _FOLLOWERS:
            return self.follow(file, flowed)
        kind, _, what = file.partition("_")
        direction, _, unit = what.partition("_")
        if kind not in ("port", "unicast") or unit not in ("data", "packets"):
            return 0
        words = self.words(_DIRECTION[direction], flowed[_DIRECTION[direction]])
        return words if unit == "data" else words * WORD_BYTES // PACKET_BYTES


class Nic:
    """A device, the counters of its port, and its files while they exist.

    `watch` is called with the file of received data, which a sampler reads last, whenever it is created.
    """

    def __init__(self, root: Path, device: Device, schedule: Traffic, watch: Callable[[Path], object]) -> None:
        self.root = root
        self.device = device
        self.schedule, self.position = schedule, device.rail or 0
        self.counters = SimulatedCounters((START_WORDS[0] + device.index, START_WORDS[1] + device.index))
        self._files: dict[str, SimulatedCounterFile] = {}
        self._watch = watch

    def flowed(self, at_ns: int) -> tuple[int, int]:
        """The bytes that the schedule has sent on this rail by an instant: transmit, receive."""
        return self.schedule.port_bytes(at_ns, self.position, 0), self.schedule.port_bytes(at_ns, self.position, 1)

    def follow(self, schedule: Traffic, at_ns: int, position: int) -> None:
        """From an instant on, follow a position of another schedule; the counters go on from their values."""
        before = self.flowed(at_ns)
        self.schedule, self.position = schedule, position
        self.counters.start_over(before, self.flowed(at_ns))

    def create(self, at_ns: int) -> None:
        """Writes the files of the device with its counters at an instant, and opens them."""
        flowed = self.flowed(at_ns)
        # a reader would see a jump if they began at 0
        counters = {name: self.counters.value(name, flowed) for name in COUNTERS}
        write_listing(self.root, list_device(self.device, counters))
        folder = self.root / self.device.counters_path
        self._files = {name: SimulatedCounterFile(folder / name) for name in COUNTERS}
        self._watch(folder / FAST[1])
        folder = self.root / self.device.port_path / "hw_counters"
        self._files |= {name: SimulatedCounterFile(folder / name) for name in self._other_hardware()}

    def write(self, at_ns: int, flowed: tuple[int, int], slow: bool) -> None:
        """Write the counters of an instant: bytes always, all others and the requests when `slow`."""
        faults = self.counters.faults
        if faults.vanished:
            return
        if faults.refresh_ns:
            flowed = self.flowed(at_ns - at_ns % faults.refresh_ns)
        for name in (*FAST, *SLOW) if slow else FAST:
            self._files[name].write(NO_PMA if faults.unreadable else str(self.counters.value(name, flowed)))
        for name in self._other_hardware() if slow else ():
            self._files[name].write(str(self.counters.follow(name, flowed)))

    def _other_hardware(self) -> list[str]:
        """The counters of `hw_counters/` that move."""
        roce = self.device.rail is None
        return [name for name in _FOLLOWERS if name not in COUNTERS and (roce or name not in _ROCE_ONLY)]

    def apply(self, faults: DeviceFaults, at_ns: int) -> None:
        """Apply these faults from an instant on: counters, link, existence."""
        before, flowed = self.counters.faults, self.flowed(at_ns)
        if before.vanished and not faults.vanished:
            self.counters = SimulatedCounters((0, 0), flowed)
            self.create(at_ns)
        self.counters.apply(faults, flowed)
        if faults.vanished and not before.vanished:
            self.close()
            remove_listing(self.root, list_device(self.device))
        if not faults.vanished:
            self._write_status(up=not faults.down, trained_down=faults.trained_down)
            self.write(at_ns, flowed, slow=True)

    def _write_status(self, up: bool, trained_down: bool) -> None:
        for name, text in status_files(self.device, up, trained_down).items():
            replace_text(self.root / self.device.port_path / name, text)

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files.values():
            file.close()
        self._files = {}
