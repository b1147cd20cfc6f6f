"""The files of a replayed tree that follow the states of its ports."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ibpulse.agent.sysfs.speed import find_data_rate
from ibpulse.core.arrays import Floats
from ibpulse.core.model import PortState
from ibpulse.core.recordings import RecordedPort, RecordingMeta
from ibpulse.core.recordings.recording import history_of
from ibpulse.workbench.simulate.tree_files import replace_text

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
    texts = {
        f"{folder}/state": f"{STATES[word]}: {word}",
        f"{folder}/phys_state": f"{PHYSICAL_STATES[physical]}: {physical}",
        f"{folder}/rate": rate_text(port, rate),
    }
    if net:
        speed = -1 if rate is None else round(rate * 8 / 1e6)
        texts |= {f"{net}/operstate": "up" if state.active else "down", f"{net}/speed": str(speed)}
    return {path: f"{text}\n" for path, text in texts.items()}


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
                    replace_text(self._directory / path, text)
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
