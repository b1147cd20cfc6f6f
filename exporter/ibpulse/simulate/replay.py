"""A recording as a sysfs tree of plain files whose counters advance again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ibpulse.recordings import Recording, RecordingMeta
from ibpulse.simulate.nic import PACKET_BYTES, START_WORDS
from ibpulse.simulate.replayed_tree import counters_path, list_ports
from ibpulse.simulate.writing import SimulatedCounterFile, Stop, clear_tree, keep_phase, write_listing
from ibpulse.units import SECOND_NS, WORD_BYTES

# steps of a fraction of a tick do not add up exactly
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class _Sums:
    """Bytes and holes from the beginning of a piece to each tick: (ports, 2, ticks + 1)."""

    moved: npt.NDArray[np.float64]
    holes: npt.NDArray[np.int64]

    @property
    def ticks(self) -> int:
        """Ticks of the piece."""
        return int(self.moved.shape[2]) - 1

    def moved_until(self, at: float) -> npt.NDArray[np.float64]:
        """Bytes until a place between two ticks."""
        before = math.floor(at)
        share = at - before
        if not share:
            return self.moved[:, :, before]
        return self.moved[:, :, before] * (1 - share) + self.moved[:, :, before + 1] * share


class Player:
    """Plays a recording in steps of `ticks_per_step` ticks, which may be a fraction; `loop` begins anew at its end.

    `words` is what the counters read, int64 (ports, 2), in 4-octet words. `pieces` begins the recording.
    """

    def __init__(
        self, pieces: Callable[[], Iterator[Recording]], ports: int, ticks_per_step: float, loop: bool = False
    ) -> None:
        self.words = np.tile(np.array(START_WORDS, dtype=np.int64), (ports, 1))
        self.over = False
        self.rounds = 0
        self._begin = pieces
        self._pieces = pieces()
        self._ticks_per_step = ticks_per_step
        self._loop = loop
        self._rest = np.zeros((ports, 2))
        # a piece takes longer to read than a tick
        self._reader = ThreadPoolExecutor(1, "replay")
        self._coming: Future[_Sums | None] = self._reader.submit(self._read)
        self._piece, self._at = self._coming.result(), 0.0
        self._coming = self._reader.submit(self._read)

    def step(self) -> None:
        """Go on by one step; nothing moves any more once the recording is `over`."""
        moved = np.zeros(self.words.shape)
        hole = np.zeros(self.words.shape, dtype=np.bool_)
        left = self._ticks_per_step
        while left > _NOTHING and self._piece is not None:
            end = min(self._at + left, self._piece.ticks)
            moved += self._piece.moved_until(end) - self._piece.moved_until(self._at)
            hole |= self._piece.holes[:, :, math.ceil(end - _NOTHING)] > self._piece.holes[:, :, math.floor(self._at)]
            left, self._at = left - (end - self._at), end
            if self._piece.ticks - end < _NOTHING:
                self._turn()
        self.over = self._piece is None
        words = np.floor((moved + self._rest) / WORD_BYTES)
        self._rest = np.where(hole, 0.0, moved + self._rest - words * WORD_BYTES)
        self.words += np.where(hole, -1, words).astype(np.int64)

    def close(self) -> None:
        """Let go of the file."""
        self._reader.shutdown(cancel_futures=True)

    def _turn(self) -> None:
        """To the next piece."""
        self._piece, self._at = self._coming.result(), 0.0
        self._coming = self._reader.submit(self._read)

    def _read(self) -> _Sums | None:
        piece = next(self._pieces, None)
        if piece is None and self._loop:
            self.rounds += 1
            self._pieces = self._begin()
            piece = next(self._pieces, None)
        if piece is None:
            return None
        holes = np.isnan(piece.bytes_per_second)
        moved = np.where(holes, 0.0, piece.bytes_per_second) * piece.seconds
        before = ((0, 0), (0, 0), (1, 0))
        return _Sums(np.pad(moved.cumsum(axis=2), before), np.pad(holes.cumsum(axis=2, dtype=np.int64), before))


MARKER = "replay.json"
DATA = ("port_xmit_data", "port_rcv_data")
PACKETS = (("port_xmit_packets", "unicast_xmit_packets"), ("port_rcv_packets", "unicast_rcv_packets"))


@dataclass(frozen=True, slots=True)
class _Until:
    """Told to end, or nothing left to play."""

    stop: Stop
    player: Player

    def is_set(self) -> bool:
        return self.stop.is_set() or self.player.over


class Replay:
    """The tree in `directory` of a recording's ports, whose counters the player moves once each `interval_ns`.

    The first step is at the first multiple of the interval after `start_ns`, wall time.
    """

    def __init__(self, directory: Path, meta: RecordingMeta, player: Player, interval_ns: int, start_ns: int) -> None:
        self.directory = directory
        self._meta = meta
        self._player = player
        self._interval_ns = interval_ns
        self._done = start_ns // interval_ns
        self._slow_due = 0
        self._files: list[dict[str, SimulatedCounterFile]] = []

    def build(self) -> None:
        """Writes the whole tree with the counters as they are before the first step.

        Raises:
            FabricError: the directory holds something else than an earlier replay, or a port has an impossible name.
        """
        listing = list_ports(self._meta.ports)
        marker = self.directory / MARKER
        clear_tree(self.directory, marker)
        marker.write_text(json.dumps({"host": self._meta.host, "source": self._meta.source}) + "\n")
        counters = {f"{counters_path(port)}/{name}" for port in self._meta.ports for name in DATA}
        # a reader must not see a counter at 0 that is about to leap
        start = dict(zip(DATA, self._player.words[0].tolist(), strict=True))
        listing.files |= {path: f"{start[path.rpartition('/')[2]]}\n" for path in counters}
        write_listing(self.directory, listing)
        for port in self._meta.ports:
            folder = self.directory / counters_path(port)
            names = (*DATA, *PACKETS[0], *PACKETS[1])
            self._files.append({name: SimulatedCounterFile(folder / name) for name in names})

    def write(self, at_ns: int) -> None:
        """Writes the counters as they are at an instant; steps that were missed are caught up at once."""
        tick = at_ns // self._interval_ns
        while self._done < tick and not self._player.over:
            self._player.step()
            self._done += 1
        slow = at_ns >= self._slow_due
        if slow:
            self._slow_due = at_ns + SECOND_NS
        for files, pair in zip(self._files, self._player.words.tolist(), strict=True):
            for way, words in enumerate(pair):
                files[DATA[way]].write(str(words))
                for name in PACKETS[way] if slow else ():
                    files[name].write(str(words * WORD_BYTES // PACKET_BYTES))

    def run(self, stop: Stop) -> None:
        """Keeps the tree up to date until the recording is over or it is told to stop; `build` comes first."""
        keep_phase(self.write, self._interval_ns, _Until(stop, self._player))

    def close(self) -> None:
        """Lets go of the descriptors; the files stay."""
        for files in self._files:
            for file in files.values():
                file.close()
        self._files = []
