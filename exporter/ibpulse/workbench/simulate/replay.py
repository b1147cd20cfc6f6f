"""A recording as a sysfs tree of plain files whose counters advance again.

The formats are the kernel's, as in `tree`. Names from a recording become part of a path only if the kernel
could have given them.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ibpulse.agent.sysfs.speed import find_data_rate
from ibpulse.base.errors import FabricError
from ibpulse.base.units import SECOND_NS, WORD_BYTES
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.model import PortState
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.core.recordings.recording import history_of
from ibpulse.workbench.simulate import tree
from ibpulse.workbench.simulate.fabric import PACKET_BYTES, START_WORDS
from ibpulse.workbench.simulate.pacing import Pace, Slips

STATES = {"NOP": 0, "DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4, "ACTIVE_DEFER": 5}
PHYSICAL_STATES = {
    "Sleep": 1,
    "Polling": 2,
    "Disabled": 3,
    "PortConfigurationTraining": 4,
    "LinkUp": 5,
    "LinkErrorRecovery": 6,
    "Phy Test": 7,
}
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
# of two texts of the same rate
CLOSE = 0.01
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
"""A name that the kernel could have given to a device."""
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}):[0-9a-f]{2}\.[0-7]")
VIRTUAL_FUNCTION = "vf"
# a rate this much above the line rate is a matter of timing
_TIMING = 1.01
# steps of a fraction of a sample do not add up exactly
_NOTHING = 1e-6
ABOUT = "replay.json"
DATA = ("port_xmit_data", "port_rcv_data")
PACKETS = (("port_xmit_packets", "unicast_xmit_packets"), ("port_rcv_packets", "unicast_rcv_packets"))
log = logging.getLogger(__name__)


def pci_path(port: RecordedPort) -> str:
    """The directory of the PCI function; empty for a device without one."""
    found = _PCI_ADDRESS.fullmatch(port.identity.pci_address)
    return f"devices/pci{found[1]}/{found[0]}" if found else ""


def device_path(port: RecordedPort) -> str:
    """The directory of the device, from the root of the tree."""
    return f"{pci_path(port) or 'devices/virtual'}/infiniband/{port.device}"


def net_path(port: RecordedPort) -> str:
    """The directory of the network device; empty without one."""
    named = NAME.fullmatch(port.identity.netdev)
    return f"{pci_path(port) or 'devices/virtual'}/net/{port.identity.netdev}" if named else ""


def class_link(port: RecordedPort) -> tuple[str, str]:
    """The path and the target of the link by which a device is found."""
    return f"class/infiniband/{port.device}", f"../../{device_path(port)}"


def link_files(port: RecordedPort, state: PortState) -> dict[str, str]:
    """The texts by path of the files that follow the state of a port."""
    folder, net, rate = f"{device_path(port)}/ports/{port.port}", net_path(port), state.rate_bytes_per_second
    word = "ACTIVE" if state.active else state.state if state.state in STATES and state.state != "ACTIVE" else "DOWN"
    physical = "LinkUp" if state.active else "Disabled"
    if state.physical in PHYSICAL_STATES:
        physical = state.physical
    facts = {
        "state": f"{STATES[word]}: {word}",
        "phys_state": f"{PHYSICAL_STATES[physical]}: {physical}",
        "rate": rate_text(port, rate),
    }
    files = tree.text_files(folder, facts)
    if net:
        speed = -1 if rate is None else round(rate * 8 / 1e6)
        files |= tree.text_files(net, {"operstate": "up" if state.active else "down", "speed": speed})
    return files


def rate_text(port: RecordedPort, rate: float | None) -> str:
    """The `rate` file of a port at this data rate: as recorded, or derived from the data rate."""
    identity = port.identity
    if rate is None or (identity.link_layer == ETHERNET and identity.rate):
        return identity.rate
    recorded = find_data_rate(identity.link_layer, identity.driver, identity.rate, "")
    # a recorded text of another rate is from another time
    if recorded is not None and abs(recorded - rate) <= CLOSE * rate:
        return identity.rate
    gigabits = round(rate * 8 / 1e9 * 2) / 2
    return f"{gigabits:g} Gb/sec (4X NDR)"


def highest_rates(meta: RecordingMeta) -> Floats:
    """The highest data rate that each port had in the recording, in bytes per second; infinite if it is unknown."""
    found: dict[str, list[float]] = {str(port.id): [port.rate_bytes_per_second or 0.0] for port in meta.ports}
    for event in meta.events:
        if event.subject in found:
            found[event.subject] += [
                state.rate_bytes_per_second or 0.0 for state in (event.before, event.after) if state
            ]
    return np.array([max(rates) or np.inf for rates in found.values()])


class ReplayedLinks:
    """The links of a tree in `directory`, in the states of a recording that begins at wall time `start_ns`."""

    def __init__(self, directory: Path, meta: RecordingMeta, start_ns: int) -> None:
        self._directory = directory
        self._ports = {str(port.id): port for port in meta.ports}
        self._states = history_of(meta, start_ns)
        self._shown: dict[str, PortState | None] = {}

    def write(self, sample: int) -> None:
        """Write what changed until the sample with this index; -1 is before the first one.

        A port that does not exist keeps its files, but its device is not listed while none of its ports exists.
        """
        changed = {}
        for name in self._ports:
            state = self._states.at(name, sample)
            if name not in self._shown or self._shown[name] != state:
                changed[name] = self._shown[name] = state
        for name, state in changed.items():
            if state is not None:
                for path, text in link_files(self._ports[name], state).items():
                    tree.replace_text(self._directory / path, text)
        for device in {self._ports[name].device for name in changed}:
            self._list(device)

    def _list(self, device: str) -> None:
        """Make a device appear or disappear."""
        ports = {name: port for name, port in self._ports.items() if port.device == device}
        link, target = class_link(next(iter(ports.values())))
        path = self._directory / link
        exists = any(self._shown[name] is not None for name in ports)
        if not exists:
            path.unlink(missing_ok=True)
        elif not path.is_symlink():
            path.symlink_to(target)


def list_ports(ports: Sequence[RecordedPort]) -> tree.Listing:
    """The tree of these ports: their devices with the recorded identity. Counters read 0."""
    listing = tree.Listing()
    for port in ports:
        if not NAME.fullmatch(port.device):
            raise FabricError(
                f'port "{port.id}" cannot be replayed: its device name is not a valid file name; '
                "record it, or import it, under a name of letters, digits, '_', '-' and '.'"
            )
        _add_function(listing, port)
        _add_device(listing, port)
        _add_port(listing, port)
    return listing


def counters_path(port: RecordedPort) -> str:
    """The directory of a port's counters, from the root of the tree."""
    return f"{device_path(port)}/ports/{port.port}/counters"


def _add_function(listing: tree.Listing, port: RecordedPort) -> None:
    """The PCI function and the network device, where the recording names them."""
    pci, identity = pci_path(port), port.identity
    if pci:
        listing.files[f"{pci}/numa_node"] = f"{identity.numa_node or -1}\n"
        if NAME.fullmatch(identity.driver):
            driver = f"bus/pci/drivers/{identity.driver}"
            listing.files[f"{driver}/uevent"] = "\n"
            listing.links[f"{pci}/driver"] = tree.climb(pci) + driver
        if identity.kind == VIRTUAL_FUNCTION:
            # a link suffices; the rest of the PCI device is not in the recording
            listing.links[f"{pci}/physfn"] = "."
    if net := net_path(port):
        listing.links[f"class/net/{identity.netdev}"] = f"../../{net}"


def _add_device(listing: tree.Listing, port: RecordedPort) -> None:
    path, identity = device_path(port), port.identity
    facts = {
        "node_type": "1: CA",
        "node_guid": identity.guid,
        "sys_image_guid": identity.guid,
        "node_desc": f"replay {port.device}",
        "fw_ver": identity.firmware,
        "hca_type": identity.hca_type,
        "hw_rev": "0",
        "board_id": identity.board,
    }
    listing.files |= tree.text_files(path, facts)
    if pci_path(port):
        listing.links[f"{path}/device"] = "../.."
    link, target = class_link(port)
    listing.links[link] = target


def _add_port(listing: tree.Listing, port: RecordedPort) -> None:
    path = f"{device_path(port)}/ports/{port.port}"
    listing.files |= link_files(port, port.first_state)
    facts = {
        "link_layer": port.identity.link_layer or INFINIBAND,
        "lid": "0x0" if port.identity.link_layer == ETHERNET else "0x1",
        "gid_attrs/ndevs/0": port.identity.netdev,
        "hw_counters/lifespan": "10",
    }
    facts |= {f"counters/{name}": "0" for name in tree.COUNTERS}
    facts |= {f"hw_counters/{name}": "0" for name in tree.HW_COUNTERS}
    listing.files |= tree.text_files(path, facts)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Bytes and missing samples from the beginning of a piece to each sample: (ports, 2, ticks + 1).

    `first` is the index in the recording of the first sample.
    """

    first: int
    moved: Floats
    holes: Counts

    @property
    def ticks(self) -> int:
        """Samples of the piece."""
        return int(self.moved.shape[2]) - 1

    def moved_until(self, at: float) -> Floats:
        """Bytes until a position between two samples."""
        before = math.floor(at)
        share = at - before
        if not share:
            return self.moved[:, :, before]
        return self.moved[:, :, before] * (1 - share) + self.moved[:, :, before + 1] * share


class Player:
    """Plays a recording in steps of `ticks_per_step` samples, possibly a fraction; `loop` starts over at its end.

    `words` are the counter values, int64 (ports, 2), in 4-octet words; `sample` is the index of the sample that they
    have reached, -1 before the first one. `pieces` starts reading the recording, whose first sample is at `start_ns`.
    Samples above the line rate are cut to it; `cut` counts them, per port and direction.
    """

    def __init__(
        self, pieces: Callable[[], Iterator[Recording]], ports: int, ticks_per_step: float, loop: bool = False
    ) -> None:
        self.words = np.tile(np.array(START_WORDS, dtype=np.int64), (ports, 1))
        self.over = False
        self.rounds = 0
        self.sample = -1
        self.start_ns = 0
        self.cut = 0
        self._begin = pieces
        self._pieces = pieces()
        self._begins = True
        self._ticks_per_step = ticks_per_step
        self._loop = loop
        self._rest = np.zeros((ports, 2))
        # a piece takes longer to read than a sample lasts
        self._reader = ThreadPoolExecutor(1, "replay")
        self._coming: Future[_Sums | None] = self._reader.submit(self._read)
        self._at = 0.0
        self._turn()

    def step(self) -> None:
        """Advance by one step; nothing changes once the recording is `over`."""
        moved = np.zeros(self.words.shape)
        hole = np.zeros(self.words.shape, dtype=np.bool_)
        left = self._ticks_per_step
        while left > _NOTHING and self._piece is not None:
            end = min(self._at + left, self._piece.ticks)
            moved += self._piece.moved_until(end) - self._piece.moved_until(self._at)
            hole |= self._piece.holes[:, :, math.ceil(end - _NOTHING)] > self._piece.holes[:, :, math.floor(self._at)]
            left, self._at = left - (end - self._at), end
            self.sample = self._piece.first + math.ceil(end - _NOTHING) - 1
            if self._piece.ticks - end < _NOTHING:
                self._turn()
        self.over = self._piece is None
        words = np.floor((moved + self._rest) / WORD_BYTES)
        self._rest = np.where(hole, 0.0, moved + self._rest - words * WORD_BYTES)
        self.words += np.where(hole, -1, words).astype(np.int64)

    def close(self) -> None:
        """Close the file."""
        self._reader.shutdown(cancel_futures=True)

    def _turn(self) -> None:
        """Switch to the next piece."""
        self._piece, self._at = self._coming.result(), 0.0
        self._coming = self._reader.submit(self._read)

    def _read(self) -> _Sums | None:
        piece = next(self._pieces, None)
        if piece is None and self._loop:
            self.rounds += 1
            self._pieces, self._begins = self._begin(), True
            piece = next(self._pieces, None)
        if piece is None:
            return None
        if self._begins:
            self._begins, self.start_ns = False, piece.start_ns
        first = (piece.start_ns - self.start_ns) // piece.meta.interval_ns
        holes = np.isnan(piece.bytes_per_second)
        rates = np.where(holes, 0.0, piece.bytes_per_second)
        line = highest_rates(piece.meta)[:, None, None]
        above = rates > line * _TIMING
        self.cut += int(np.count_nonzero(above))
        moved = np.where(above, line, rates) * piece.seconds
        before = ((0, 0), (0, 0), (1, 0))
        return _Sums(first, np.pad(moved.cumsum(axis=2), before), np.pad(holes.cumsum(axis=2, dtype=np.int64), before))


class Replay:
    """The tree in `directory` of a recording's ports; the player moves their counters once per `interval_ns`.

    The first step is at the first multiple of the interval after `start_ns`, wall time. At a `speed` above 1 the ports
    move as much more than their line rate.
    """

    def __init__(
        self,
        directory: Path,
        meta: RecordingMeta,
        player: Player,
        interval_ns: int,
        start_ns: int,
        speed: float = 1.0,
    ) -> None:
        self.directory = directory
        self._meta = meta
        self._player = player
        self._interval_ns = interval_ns
        self._done = start_ns // interval_ns
        self._at_ns = self._slow_due = 0
        self._line_words = highest_rates(meta)[:, None] * (max(1.0, speed) / WORD_BYTES)
        self._shown = player.words.copy()
        self._cut = 0
        # opened before all other files: `select` takes no high descriptor
        self._reads = tree.CounterReads()
        self._files: list[dict[str, tree.SimulatedCounterFile]] = []
        self._links = ReplayedLinks(directory, meta, player.start_ns)

    def build(self) -> None:
        """Write the whole tree with the counters before the first step."""
        listing = list_ports(self._meta.ports)
        tree.clear_tree(self.directory)
        (self.directory / ABOUT).write_text(json.dumps({"host": self._meta.host, "source": self._meta.source}) + "\n")
        counters = {f"{counters_path(port)}/{name}" for port in self._meta.ports for name in DATA}
        # a reader would see a jump if the counters began at 0
        start = dict(zip(DATA, self._player.words[0].tolist(), strict=True))
        listing.files |= {path: f"{start[path.rpartition('/')[2]]}\n" for path in counters}
        tree.write_listing(self.directory, listing)
        for port in self._meta.ports:
            folder = self.directory / counters_path(port)
            names = (*DATA, *PACKETS[0], *PACKETS[1])
            self._files.append({name: tree.SimulatedCounterFile(folder / name) for name in names})
            self._reads.watch(folder / DATA[1])
        self._links.write(self._player.sample)

    def write(self, at_ns: int, line_ns: float = math.inf) -> None:
        """Write the counters of an instant; no counter grows by more than its line rate in `line_ns`."""
        tick = at_ns // self._interval_ns
        fell = np.zeros(self._shown.shape, dtype=np.bool_)
        while self._done < tick and not self._player.over:
            before = self._player.words.copy()
            self._player.step()
            self._done += 1
            # a counter that falls is missing data, which bytes that are still to come must not hide
            fell |= self._player.words < before
            self._shown -= self._player.words < before
        most = self._line_words * (line_ns / SECOND_NS)
        self._shown += np.where(fell, 0, np.minimum(self._owed, most)).astype(np.int64)
        self._links.write(self._player.sample)
        slow = at_ns >= self._slow_due
        if slow:
            self._slow_due = at_ns + SECOND_NS
            self._tell()
        for files, pair in zip(self._files, self._shown.tolist(), strict=True):
            for way, words in enumerate(pair):
                files[DATA[way]].write(str(words))
                for name in PACKETS[way] if slow else ():
                    files[name].write(str(words * WORD_BYTES // PACKET_BYTES))

    @property
    def over(self) -> bool:
        """Whether the recording is over and the counters show all of it."""
        return self._player.over and not self._owed.any()

    @property
    def _owed(self) -> Counts:
        """Words that the player has moved and that the counters do not show yet."""
        return self._player.words - self._shown

    def advance(self, at_ns: int, line_ns: int) -> int:
        """Write the counters of an instant within the line rate, and return it.

        The recording pauses, and the instant is the last one, while an interval at the line rate does not suffice for
        the bytes that the counters do not show yet.
        """
        if not self._at_ns:
            # building a large tree takes longer than an interval
            self._done = max(self._done, at_ns // self._interval_ns - 1)
        if (self._owed > self._line_words * (self._interval_ns / SECOND_NS)).any():
            at_ns = self._at_ns
        self._at_ns = at_ns
        self.write(at_ns, line_ns)
        return at_ns

    def run(self, stop: Callable[[], bool]) -> Slips:
        """Keep the tree up to date until the counters show all of the recording or `stop` is true; `build` first."""
        pace = Pace(self.advance, self._interval_ns, self._reads.pause)
        pace.run(lambda: stop() or self.over)
        self._tell()
        return pace.slips

    def _tell(self) -> None:
        """Log the samples that were cut since the last call."""
        count, self._cut = self._player.cut - self._cut, self._player.cut
        if count:
            log.warning(
                "%d samples of the recording are above the line rate; they are replayed at the line rate", count
            )

    def close(self) -> None:
        """Close the descriptors; the files stay."""
        self._reads.close()
        for files in self._files:
            for file in files.values():
                file.close()
        self._files = []
