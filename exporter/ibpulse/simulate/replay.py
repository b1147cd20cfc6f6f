"""A recording as a sysfs tree of plain files whose counters advance again. It must not know who reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ibpulse.recording import RecordingMeta
from ibpulse.simulate.counters import PACKET_BYTES
from ibpulse.simulate.phase import Stop, keep_phase
from ibpulse.simulate.player import Player
from ibpulse.simulate.replayed import counters_path, list_ports
from ibpulse.simulate.write import CounterFile, clear_tree, write_listing
from ibpulse.units import SECOND_NS, WORD_BYTES

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
        self._files: list[dict[str, CounterFile]] = []

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
            self._files.append({name: CounterFile(folder / name) for name in names})

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
