"""The time in which each rail showed signs of a limit, since the process started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ibpulse.agent.aggregator.ports import PortTable
from ibpulse.agent.aggregator.snapshot import AggregatorOptions, PortLimits
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats, Rows
from ibpulse.core.events import PortHistory
from ibpulse.core.limits import LimitOptions, PortSigns, read_limits
from ibpulse.core.model import PortId
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort
from ibpulse.core.statistics.signs import BLIND, CODES, LINK, LOSS, PATH, PEAK, RECEIVER, SOURCE, WEAK
from ibpulse.core.statistics.sums import usual_peak

TRANSMIT = 0
EVERY_SECONDS = 15
"""The seconds that are counted at a time, as long as a usual scrape interval: each call costs nearly the same."""
MAX_BEHIND_SECONDS = 60
COUNTED = {
    "source": [SOURCE],
    "path": [PATH],
    "receiver": [RECEIVER],
    "loss": [LOSS],
    "link": [LINK],
    "usual-peak": [PEAK],
    "unknown": [WEAK, BLIND],
}
"""The codes of each label of the metric."""


class LimitTotals:
    """The seconds of each sign of the rails that have signals; a port without them has none.

    Intervals between two readings are counted when both are there, so that no interval is counted in part. `peaks` are
    the usual peaks of transmit by port name.
    """

    def __init__(self, reader: RingReader, history: PortHistory, options: AggregatorOptions) -> None:
        self._reader, self._history = reader, history
        self._options = LimitOptions(options.active_bytes_per_second, options.xmit_wait_tick_bytes)
        self._ticks = SECOND_NS // reader.interval_ns
        self._longest = options.longest_seconds()
        self._counted = 0
        self._until: dict[PortId, int] = {}
        self._seconds: dict[PortId, Floats] = {}
        self.peaks: dict[str, float] = {}

    def count(
        self, placed: Sequence[RingPort], rows: Rows, table: PortTable, first_second: int, end_second: int
    ) -> None:
        """Count from `first_second` on up to a second; `placed` are in the `rows` of the table."""
        end_second -= end_second % EVERY_SECONDS
        if end_second <= self._counted:
            return
        self._counted = end_second
        first_tick, last_tick = first_second * self._ticks + 1, end_second * self._ticks
        ring = self._reader.ring
        self._forget_others(ring.slots())
        chosen = [index for index, port in enumerate(placed) if port.port.rail and ring.signals(port.slot)]
        if not chosen or last_tick < first_tick:
            return
        ports = [placed[index] for index in chosen]
        self._find_peaks(ports, rows[chosen], table)
        oldest = last_tick - MAX_BEHIND_SECONDS * self._ticks
        begun = [max(self._until.get(port.port.id, first_tick - 1), oldest) for port in ports]
        # one second more, for a link that was down before the traffic
        ticks = range(max(1, min(begun) + 1 - self._ticks), last_tick + 1)
        found = self.read(ports, ticks)
        for port, mine, until in zip(ports, found, begun, strict=True):
            # after a second without readings, samples count without them
            end = max(ticks[0] + mine.signs.readings.known_end, last_tick + 1 - self._ticks)
            first = until + 1
            if end <= first:
                continue
            tally = mine.signs.cut(first - ticks[0], end - ticks[0]).tally()
            name = port.port.id
            self._seconds[name] = self._seconds.get(name, np.zeros(CODES)) + tally[:, 0]
            self._until[name] = end - 1

    def _forget_others(self, slots: Mapping[str, int]) -> None:
        self._until = {port: until for port, until in self._until.items() if str(port) in slots}
        self._seconds = {port: seconds for port, seconds in self._seconds.items() if str(port) in slots}
        self.peaks = {name: peak for name, peak in self.peaks.items() if name in slots}

    def read(self, ports: Sequence[RingPort], ticks: range) -> list[PortSigns]:
        """The signs of ports at consecutive ticks, by the usual peaks of now; may run in another thread."""
        return read_limits(self._reader, ports, self._history, ticks, self._options, dict(self.peaks))

    def _find_peaks(self, ports: Sequence[RingPort], rows: Rows, table: PortTable) -> None:
        peaks = table.peaks.values(self._longest)[:, rows, TRANSMIT]
        for port, mine in zip(ports, peaks.T, strict=True):
            self.peaks[str(port.port.id)] = usual_peak(mine, mine)

    def snapshots(self) -> tuple[PortLimits, ...]:
        """The seconds of each label of the ports that have signals."""
        return tuple(
            PortLimits(
                name, {label: float(found[codes].sum()) for label, codes in COUNTED.items()}, self.peaks[str(name)]
            )
            for name, found in self._seconds.items()
        )
