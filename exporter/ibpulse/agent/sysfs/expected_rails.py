"""Counts the rails that a node should have: from the setting, the event log, and its PCI functions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ibpulse.agent.sysfs.files import list_names, read_link, read_value
from ibpulse.agent.sysfs.gpus import NEAR, find_nearest, measure
from ibpulse.agent.sysfs.kinds import BOND
from ibpulse.agent.sysfs.pcie import find_chain
from ibpulse.core.events.event import Event, is_port_name, started_states
from ibpulse.core.events.log import EventLog
from ibpulse.core.model import Fabric, Port, Topology

NETWORK_CLASS = "0x02"
Ids = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NetworkFunction:
    """A PCI function of a network adapter, not a virtual one of a function of this node."""

    folder: str
    ids: Ids
    chain: tuple[str, ...]

    @property
    def address(self) -> str:
        """Its PCI address."""
        return self.chain[-1]


class RailFunctions:
    """Lists the network functions under a sysfs root repeatedly, reading only new ones."""

    def __init__(self, sysfs: str) -> None:
        self._folder = os.path.join(sysfs, "bus", "pci", "devices")
        self._seen: dict[str, NetworkFunction | None] = {}

    def count(self, ports: Sequence[Port], topology: Topology) -> int:
        """The number of rails that the node should have by its PCI functions.

        A function without an RDMA device counts if it has the PCI ids and the function number of a rail, and is as
        near to a GPU as the rails are. Where the rails are near no GPU, it counts only if all ports of these ids are
        rails; otherwise nothing shows what it was for. A bond has one device for all functions of its card.
        """
        rails = [port for port in ports if port.rail]
        functions = self._list({port.identity.pci_address for port in ports}) if rails else {}
        by_ids: dict[Ids, list[Port]] = {}
        for port in ports:
            function = functions.get(port.identity.pci_address)
            if function:
                by_ids.setdefault(function.ids, []).append(port)
        bonds = {_slot(port.identity.pci_address) for port in ports if port.identity.kind == BOND}
        lost = [each for each in functions.values() if not _has_rdma(each.folder) and _slot(each.address) not in bonds]
        return len(rails) + sum(is_lost_rail(each.chain, by_ids.get(each.ids, ()), topology) for each in lost)

    def _list(self, read: set[str]) -> Mapping[str, NetworkFunction]:
        """The network functions at these addresses, and those without an RDMA device."""
        names = [name for name in list_names(self._folder) if name in read or self._may_read(name)]
        self._seen = {
            name: self._seen[name] if name in self._seen else read_function(os.path.join(self._folder, name))
            for name in names
        }
        return {function.address: function for function in self._seen.values() if function}

    def _may_read(self, name: str) -> bool:
        """Whether a function is of no network, or has no RDMA device: one that ports.exclude names is not read."""
        return self._seen.get(name, self) is None or not _has_rdma(os.path.join(self._folder, name))


def read_function(folder: str) -> NetworkFunction | None:
    """The network function at a PCI function's folder; None for another function."""
    if not read_value(folder, "class").startswith(NETWORK_CLASS):
        return None
    real = str(Path(folder).resolve())
    chain = find_chain(real)
    if not chain or read_link(Path(folder, "physfn")):
        return None
    return NetworkFunction(real, (read_value(folder, "vendor"), read_value(folder, "device")), chain)


def _slot(address: str) -> str:
    """A PCI address without its function."""
    return address.rpartition(".")[0]


def _has_rdma(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, "infiniband"))


def is_lost_rail(chain: tuple[str, ...], alike: Sequence[Port], topology: Topology) -> bool:
    """Whether a function without an RDMA device was a rail's; `alike` are the ports of the same PCI ids.

    `chain` is the path to the function as in `find_chain`.
    """
    rails = [port for port in alike if port.rail]
    number = chain[-1].rpartition(".")[2]
    if not any(port.identity.pci_address.rpartition(".")[2] == number for port in rails):
        return False
    if not any(port.identity.gpu_distance in NEAR for port in rails):
        return len(rails) == len(alike)
    return bool(find_near_gpus(chain, topology))


def find_near_gpus(chain: tuple[str, ...], topology: Topology) -> tuple[str, ...]:
    """The addresses of the GPUs that are nearest to a function, if they are near; `chain` as in `find_chain`."""
    nearest, distance = find_nearest({gpu.address: measure(chain, None, gpu.chain, None) for gpu in topology.gpus})
    return nearest if distance in NEAR else ()


class ExpectedRails:
    """The number of rails that the node should have; `setting` takes precedence over what can be counted."""

    def __init__(self, log: EventLog, setting: int | None = None) -> None:
        self._log, self._setting = log, setting
        self._rails: set[str] = set()
        self._most = 0
        for event in log.events():
            self._follow(event)
        self._added = log.added

    def update(self, fabric: Fabric) -> int:
        """The number now: of the setting, or the most rails at one time, or their PCI functions if there are more."""
        for event in self._log.after(self._added):
            self._follow(event)
        self._added = self._log.added
        if self._setting is not None:
            return self._setting
        return max(self._most, fabric.rail_functions, sum(port.rail for port in fabric.ports))

    def _follow(self, event: Event) -> None:
        """Take an event into account. A role that was taken away was a decision, so the count begins again."""
        before, after = event.before, event.after
        states = started_states(event)
        if states is not None:
            self._rails = {name for name, state in states.items() if state.rail}
        elif is_port_name(event.subject) and before != after:
            if after is not None and after.rail:
                self._rails.add(event.subject)
            else:
                self._rails.discard(event.subject)
            if before is not None and before.rail and after is not None and not after.rail:
                self._most = 0
        self._most = max(self._most, len(self._rails))
