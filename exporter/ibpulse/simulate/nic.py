"""One simulated NIC in a tree of plain files: it writes the counters of its port and suffers its faults."""

from __future__ import annotations

from pathlib import Path

from ibpulse.simulate.counters import START_WORDS, PortCounters
from ibpulse.simulate.faults import DeviceFaults
from ibpulse.simulate.schedule import Schedule
from ibpulse.simulate.tree import COUNTERS, Device, list_device, status_files
from ibpulse.simulate.write import CounterFile, remove_listing, replace_text, write_listing

FAST = ("port_xmit_data", "port_rcv_data")
SLOW = tuple(name for name in COUNTERS if name not in FAST)
REQUESTS = "rx_write_requests"
NO_PMA = "N/A (no PMA)"


class Nic:
    """A device, the counters of its port, and its files while they exist."""

    def __init__(self, root: Path, device: Device, schedule: Schedule) -> None:
        self.root = root
        self.device = device
        self.schedule = schedule
        self.counters = PortCounters((START_WORDS[0] + device.index, START_WORDS[1] + device.index))
        self._files: dict[str, CounterFile] = {}

    def flowed(self, at_ns: int) -> tuple[int, int]:
        """The bytes that the schedule has sent on this rail by an instant: transmit, receive."""
        rail = self.device.rail or 0
        return self.schedule.port_bytes(at_ns, rail, 0), self.schedule.port_bytes(at_ns, rail, 1)

    def follow(self, schedule: Schedule, at_ns: int) -> None:
        """From an instant on, its start, another schedule counts; the counters go on from where they stand."""
        self.counters.start_over(self.flowed(at_ns))
        self.schedule = schedule

    def create(self) -> None:
        """Writes the files of the device and opens its counters."""
        write_listing(self.root, list_device(self.device))
        folder = self.root / self.device.counters_path
        self._files = {name: CounterFile(folder / name) for name in COUNTERS}
        self._files[REQUESTS] = CounterFile(self.root / self.device.port_path / "hw_counters" / REQUESTS)

    def write(self, at_ns: int, flowed: tuple[int, int], slow: bool) -> None:
        """Writes the counters as they are at an instant: bytes always, all others and the requests when `slow`."""
        faults = self.counters.faults
        if faults.vanished:
            return
        if faults.refresh_ns:
            flowed = self.flowed(at_ns - at_ns % faults.refresh_ns)
        for name in (*FAST, *SLOW) if slow else FAST:
            self._files[name].write(NO_PMA if faults.unreadable else str(self.counters.value(name, flowed)))
        if slow:
            self._files[REQUESTS].write(str(self.counters.requests(flowed[1])))

    def apply(self, faults: DeviceFaults, at_ns: int) -> None:
        """Suffers these faults from an instant on: counters, link, existence."""
        before, flowed = self.counters.faults, self.flowed(at_ns)
        if before.vanished and not faults.vanished:
            self.counters = PortCounters((0, 0), flowed)
            self.create()
        self.counters.apply(faults, flowed)
        if faults.vanished and not before.vanished:
            self.close()
            remove_listing(self.root, list_device(self.device))
        if not faults.vanished:
            self._write_status(up=not faults.down)
            self.write(at_ns, flowed, slow=True)

    def _write_status(self, up: bool) -> None:
        for name, text in status_files(self.device, up).items():
            replace_text(self.root / self.device.port_path / name, text)

    def close(self) -> None:
        """Lets go of the descriptors."""
        for file in self._files.values():
            file.close()
        self._files = {}
