"""Reads the state of one port's link again and again at low cost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.files import GONE, ReadFault, parse_count
from ibpulse.agent.sysfs.identity import find_bond
from ibpulse.agent.sysfs.kept_file import KeptFile
from ibpulse.agent.sysfs.port import ACTIVE, split_state
from ibpulse.agent.sysfs.speed import ETHERNET, find_data_rate
from ibpulse.base.clocks import Clock
from ibpulse.core.model import Port

UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class LinkReading:
    """The state of a port's link, read at the wall time `taken_ns` (ns).

    A change since the reading before happened after `previous_ns`, when the last successful read began; 0 if there was
    none. `state` and `physical` are the kernel's words. `rate_bytes_per_second` is the data rate of one direction,
    None unless the port is `active` and its rate is known; `rate_text` is the kernel's text for it. `link_downed` is
    the kernel's counter, which stops at its maximum (255 on most devices); None without one. `problem` is empty, or
    `unreadable` with a sentence in `reason`; then the other values are those of the last successful read.
    """

    state: str = ""
    physical: str = ""
    active: bool = False
    rate_bytes_per_second: float | None = None
    rate_text: str = ""
    link_downed: int | None = None
    taken_ns: int = 0
    previous_ns: int = 0
    problem: str = ""
    reason: str = ""


class LinkReader:
    """Reads the link of one port in one thread; other threads may set `port` and use `reading` and `gone`.

    On mlx5 each of `state`, `phys_state` and `rate` takes about five firmware commands.
    """

    def __init__(self, class_folder: str, port: Port, clock: Clock = time) -> None:
        self._clock = clock
        self.port = port
        """The port of the last scan."""
        self.reading: LinkReading | None = None
        """The newest reading; None before the first, and if the port does not exist."""
        self.gone = False
        """Whether the port did not exist at the last read."""
        self._net_folder = os.path.join(class_folder, "net")
        self._folder = os.path.join(class_folder, "infiniband", port.id.device, "ports", str(port.id.port))
        self._path = Path(self._folder)
        self._inode: tuple[int, int] | None = None
        self._lines: tuple[str, ...] = ()
        self._incomplete = False
        self._succeeded_ns = 0
        self._start_anew()

    def read(self) -> None:
        """Read the link; `reading` and `gone` then hold the result."""
        begun_ns = self._clock.time_ns()
        fault = self._check_port()
        if fault is ReadFault.NONE:
            fault = self._state.read()
        if fault is ReadFault.MISSING:
            self._leave()
            return
        self.gone = False
        taken_ns = self._clock.time_ns()
        if self._state.reason:
            self._note_failure(fault, taken_ns)
            return
        self._incomplete = False
        lines = self._read_lines()
        last = self.reading
        if last is None or last.problem or lines != self._lines:
            # the rate of a port that has just gone down is not its own
            if self._state.read() is not ReadFault.NONE or self._state.line != lines[0]:
                return
            self._lines, last = lines, self._interpret(lines)
        self.reading = replace(last, taken_ns=taken_ns, previous_ns=self._succeeded_ns)
        self._succeeded_ns = begun_ns

    def _start_anew(self) -> None:
        """Forget the descriptors: they belong to a port that does not exist any more."""
        names = ("state", "phys_state", "rate")
        self._state, self._physical, self._rate = (KeptFile(os.path.join(self._folder, name)) for name in names)
        self._downed = KeptFile(*(os.path.join(self._folder, name, "link_downed") for name in (COUNTERS, HW_COUNTERS)))
        self._speed: KeptFile | None = None
        self._speed_device = ""
        self._placed: Port | None = None
        self._lines = ()

    def _check_port(self) -> ReadFault:
        """Whether the port exists; once not if another port has its name, so that the devices are scanned again."""
        try:
            status = self._path.stat()
        except OSError as error:
            return ReadFault.MISSING if error.errno in GONE else ReadFault.NONE
        before, self._inode = self._inode, (status.st_dev, status.st_ino)
        return ReadFault.NONE if before in (None, self._inode) else ReadFault.MISSING

    def _leave(self) -> None:
        self.gone, self.reading = True, None
        if self._inode is not None:
            self._inode = None
            self._start_anew()

    def _note_failure(self, fault: ReadFault, taken_ns: int) -> None:
        """Report a state that cannot be read. One incomplete text is ignored, because a writer may be at work."""
        first = fault is ReadFault.NONE and not self._incomplete
        self._incomplete = fault is ReadFault.NONE
        if first:
            return
        self.reading = replace(
            self.reading or LinkReading(),
            taken_ns=taken_ns,
            previous_ns=self._succeeded_ns,
            problem=UNREADABLE,
            reason=f"state {self._state.reason}.",
        )

    def _read_lines(self) -> tuple[str, ...]:
        """The lines of all files, the state first; of a file that fails now, the last one."""
        if self.port is not self._placed:
            self._find_speed(self.port)
        self._physical.read()
        self._rate.read()
        self._downed.read()
        speed = ""
        if self._speed is not None:
            self._speed.read()
            speed = self._speed.line
        return self._state.line, self._physical.line, self._rate.line, self._downed.line, speed

    def _find_speed(self, port: Port) -> None:
        """Choose the network device whose speed counts: the bond of the port's own, if it belongs to one."""
        self._placed = port
        netdev = port.identity.netdev if port.identity.link_layer == ETHERNET else ""
        device = netdev and (find_bond(self._net_folder, netdev) or netdev)
        if device != self._speed_device:
            self._speed_device = device
            self._speed = KeptFile(os.path.join(self._net_folder, device, "speed")) if device else None
        elif self._speed is not None:
            # another network device may have got the name
            self._speed.close()

    def _interpret(self, lines: tuple[str, ...]) -> LinkReading:
        state, physical, rate, downed, speed = lines
        number, word = split_state(state)
        active = number == ACTIVE
        identity = self.port.identity
        return LinkReading(
            state=word,
            physical=split_state(physical)[1],
            active=active,
            rate_bytes_per_second=find_data_rate(identity.link_layer, identity.driver, rate, speed) if active else None,
            rate_text=rate,
            link_downed=parse_count(downed),
        )
