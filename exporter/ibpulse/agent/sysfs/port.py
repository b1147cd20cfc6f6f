"""Reads one port at every scan at low cost.

`state` is read at every scan. Expensive files (on mlx5 the `rate` file takes five firmware commands) are read only when
the state or the network device has changed, at every twelfth scan, and in the three scans after a failure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS, ByteCounterRow, build_source, choose_row
from ibpulse.agent.sysfs.error_counter_reader import CounterReader
from ibpulse.agent.sysfs.error_counters import CounterSet
from ibpulse.agent.sysfs.files import ReadFault, Text, read_inode, read_text
from ibpulse.agent.sysfs.identity import DeviceFacts, find_bond, find_netdev
from ibpulse.agent.sysfs.speed import ETHERNET, find_data_rate, remark_on_rate
from ibpulse.core.model import Port, PortId, PortIdentity

REFRESH_SCANS = 12
QUICK_RETRIES = 3
ACTIVE = "4"


def split_state(text: str) -> tuple[str, str]:
    """The number and the word of a text such as `4: ACTIVE`; a text of another form is the word."""
    number, _, word = text.partition(": ")
    return number, word or text


@dataclass(frozen=True, slots=True)
class PortView:
    """A port with details for this package only: its counter folders, remarks for the operator, its bond."""

    port: Port
    has_counters: bool
    has_hw_counters: bool
    remarks: tuple[str, ...] = ()
    bond: str = ""


class PortReader:
    """Reads one port of one device, and caches everything that rarely changes.

    A changed inode of a counter folder means a new port with the same name. `counters` reads the port's error counters;
    None before the first read.
    """

    def __init__(
        self,
        net_folder: str,
        device_folder: str,
        port_id: PortId,
        facts: DeviceFacts,
        counter_set: CounterSet = "none",
    ) -> None:
        self.counters: CounterReader | None = None
        self._counter_set = counter_set
        self._id = port_id
        self._facts = facts
        self._net_folder = net_folder
        self._device_folder = device_folder
        self._folder = os.path.join(device_folder, "ports", str(port_id.port))
        self._state = os.path.join(self._folder, "state")
        self._first_ndev = os.path.join(self._folder, "gid_attrs", "ndevs", "0")
        self._counters = Path(self._folder, COUNTERS)
        self._hw_counters = Path(self._folder, HW_COUNTERS)
        self._incarnation: tuple[int | None, int | None] | None = None
        self._view: PortView | None = None
        self._row: ByteCounterRow | None = None
        self._seen = ("", "")
        self._refreshed_at = 0
        self._failures = 0
        self._link_layer = ""
        self._netdev = ""
        self._rate_text = ""

    def read(self, scan: int) -> PortView | None:
        """The port at this scan (numbered from 1), or None if it has disappeared."""
        incarnation = (read_inode(self._counters), read_inode(self._hw_counters))
        if incarnation != self._incarnation:
            self._start_anew(incarnation)
        state = read_text(self._state)
        if state.fault is ReadFault.MISSING:
            return None
        seen = (state.text, self._read_first_netdev())
        if self._view is None or seen != self._seen or self._is_due(scan):
            self._view = self._refresh(state, incarnation)
            self._seen, self._refreshed_at = seen, scan
        return self._view

    def _start_anew(self, incarnation: tuple[int | None, int | None]) -> None:
        self._incarnation = incarnation
        self._view = None
        self._row = None
        self._failures = 0
        self._link_layer = read_text(os.path.join(self._folder, "link_layer")).text
        self._rate_text = ""
        self._follow_netdev("")

    def _follow_netdev(self, netdev: str) -> None:
        """Read the error counters of the port and of this network device from now on."""
        self._netdev = netdev
        driver, folder = self._facts.driver, os.path.join(self._net_folder, netdev) if netdev else ""
        self.counters = CounterReader(
            self._id, self._folder, self._link_layer, driver, self._counter_set, netdev=folder
        )

    def _is_due(self, scan: int) -> bool:
        return 0 < self._failures <= QUICK_RETRIES or scan - self._refreshed_at >= REFRESH_SCANS

    def _read_first_netdev(self) -> str:
        if self._link_layer != ETHERNET:
            return ""
        return read_text(self._first_ndev).text

    def _refresh(self, state: Text, folders: tuple[int | None, int | None]) -> PortView:
        number, word = split_state(state.text)
        active = number == ACTIVE
        netdev = find_netdev(self._device_folder, self._id.port)
        if netdev != self._netdev:
            self._follow_netdev(netdev)
        bond = find_bond(self._net_folder, netdev) if self._link_layer == ETHERNET and netdev else ""
        problems = [f"state {state.reason}."] if state.fault is not ReadFault.NONE else []
        problems += self._choose_source()
        rate: float | None = None
        remarks: tuple[str, ...] = ()
        if active:
            failed = self._read_rate()
            rate, remarks = self._find_rate(netdev, bond)
            # the speed of the network device replaces a failing rate file, which always fails on MANA
            problems += failed if rate is None else []
        self._failures = self._failures + 1 if problems else 0
        port = Port(
            id=self._id,
            identity=self._build_identity(netdev),
            active=active,
            state=word,
            rate_bytes_per_second=rate,
            source=build_source(self._row, self._folder) if self._row else None,
            problem=" ".join(problems),
        )
        return PortView(port, folders[0] is not None, folders[1] is not None, remarks, bond)

    def _choose_source(self) -> list[str]:
        """Find a byte source if there is none yet; returns the problem, if any."""
        if self._row is None:
            choice = choose_row(self._folder, self._facts.driver)
            self._row = choice.row
            return [choice.problem] if choice.problem else []
        return []

    def _read_rate(self) -> list[str]:
        """Read the rate file of the ACTIVE port and keep its text for later; returns the problem, if any."""
        read = read_text(os.path.join(self._folder, "rate"))
        self._rate_text = read.text
        return [f"rate {read.reason}."] if read.fault is not ReadFault.NONE else []

    def _find_rate(self, netdev: str, bond: str) -> tuple[float | None, tuple[str, ...]]:
        """Data rate of the ACTIVE port, and remarks on its reliability."""
        layer, driver = self._link_layer, self._facts.driver
        speed_device = bond or netdev
        speed = read_text(os.path.join(self._net_folder, speed_device, "speed")).text if speed_device else ""
        rate = find_data_rate(layer, driver, self._rate_text, speed)
        remarks = (_remark_on_bond(bond, speed) if bond else "", remark_on_rate(layer, driver, self._rate_text, rate))
        return rate, tuple(filter(None, remarks))

    def _build_identity(self, netdev: str) -> PortIdentity:
        facts = self._facts
        return PortIdentity(
            link_layer=self._link_layer,
            rate=self._rate_text,
            guid=facts.guid,
            board=facts.board,
            hca_type=facts.hca_type,
            firmware=facts.firmware,
            driver=facts.driver,
            pci_address=facts.pci_address,
            numa_node=facts.numa_node,
            netdev=netdev,
        )


def _remark_on_bond(bond: str, speed: str) -> str:
    if speed.isdigit():
        return f"it is the bond {bond}: its rate is the sum of its links, but its counters may cover only one of them."
    return f"it is the bond {bond}: its rate is that of one link, so its utilisation may exceed 1."
