"""Reads the error and congestion counters of one port repeatedly at low cost."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import COUNTERS, HW_COUNTERS
from ibpulse.agent.sysfs.error_counters import DEVICE_HW_COUNTERS, EFA, NETDEV, CounterSet, Wanted, choose_counters
from ibpulse.agent.sysfs.files import ReadFault, Text, list_names, parse_count, read_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.model import CounterReading, PortId, PortReadings

REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
TRIES = 3
FIRST_PAUSE_NS = 60 * SECOND_NS
LONGEST_PAUSE_NS = 600 * SECOND_NS
SLOW_READ_NS = SECOND_NS


@dataclass(slots=True)
class _Trouble:
    """A file that failed `times` in a row; it is not read again before `again_ns`."""

    times: int = 0
    pause_ns: int = 0
    again_ns: int = 0


class CounterReader:
    """Reads the chosen counters of the port at `folder`; the first read lists the files.

    `netdev` is the folder of its network device, or empty. Not thread-safe. `clock` is monotonic, in nanoseconds.
    """

    def __init__(
        self,
        port: PortId,
        folder: str,
        link_layer: str,
        driver: str,
        counter_set: CounterSet,
        clock: Callable[[], int] = time.monotonic_ns,
        netdev: str = "",
    ) -> None:
        self.remark = ""
        self._port = port
        self._folders = {name: os.path.join(folder, name) for name in (COUNTERS, HW_COUNTERS)}
        if netdev:
            self._folders[NETDEV] = netdev
        self._device_counters = str(Path(folder).parents[1] / HW_COUNTERS)
        self._link_layer = link_layer
        self._driver = driver
        self._counter_set = counter_set
        self._clock = clock
        self._wanted: tuple[Wanted, ...] | None = None
        self._troubles: dict[str, _Trouble] = {}

    def read(self) -> PortReadings:
        """The counters that can be read now; none if the device has disappeared."""
        if self._wanted is None:
            self._wanted = self._choose()
        readings: list[CounterReading] = []
        for wanted in self._wanted:
            path = os.path.join(self._folders[wanted.folder], wanted.file)
            before = self._clock()
            trouble = self._troubles.get(path)
            if trouble is not None and before < trouble.again_ns:
                continue
            text = read_text(path)
            after = self._clock()
            if text.code == errno.ENODEV:
                return PortReadings(self._port, ())
            count = parse_count(text.text)
            if wanted.folder == NETDEV and text.fault is ReadFault.MISSING:
                # it was renamed or moved to another network namespace, where it may work as it should
                continue
            if count is None:
                self._note_trouble(path, wanted, text, after)
            else:
                self._troubles.pop(path, None)
                if wanted.name:
                    readings.append(_make_reading(wanted, count, (before + after) // 2))
            if after - before > SLOW_READ_NS:
                break
        if not any(trouble.times >= TRIES for trouble in self._troubles.values()):
            self.remark = ""
        return PortReadings(self._port, tuple(readings))

    def _choose(self) -> tuple[Wanted, ...]:
        listed = {name: list_names(folder) for name, folder in self._folders.items()}
        if self._driver == EFA and listed[HW_COUNTERS]:
            # In a pod's view of a device, where its ports have no counters, a read of these can crash a kernel.
            self._folders[DEVICE_HW_COUNTERS] = self._device_counters
            listed[DEVICE_HW_COUNTERS] = list_names(self._device_counters)
        return choose_counters(listed, self._link_layer, self._driver, self._counter_set)

    def _note_trouble(self, path: str, wanted: Wanted, text: Text, now_ns: int) -> None:
        trouble = self._troubles.setdefault(path, _Trouble())
        trouble.times += 1
        if trouble.times < TRIES:
            return
        refused = text.code in REFUSALS or text.fault in (ReadFault.NO_PMA, ReadFault.NONE)
        if refused:
            trouble.pause_ns = min(max(FIRST_PAUSE_NS, 2 * trouble.pause_ns), LONGEST_PAUSE_NS)
            trouble.again_ns = now_ns + trouble.pause_ns
        if not text.reason and self._counter_set == "all":
            # a file that never holds a number is not an error if all files are read
            return
        reason = text.reason or f"holds '{text.text[:40]}', which is not a count"
        self.remark = self.remark or (
            f"some of its error counters have no value, such as {wanted.folder}/{wanted.file}, which {reason}; "
            f"they are omitted and retried {'from time to time' if refused else 'at every scan'}."
        )


def _make_reading(wanted: Wanted, count: int, taken_ns: int) -> CounterReading:
    return CounterReading(wanted.name, wanted.file, count * wanted.scale, taken_ns, count == wanted.full)
