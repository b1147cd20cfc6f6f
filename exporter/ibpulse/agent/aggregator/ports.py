"""Totals and rolling values, including error counters, of every port seen since the process started."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ibpulse.agent.aggregator.node import RollingSeconds
from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS, CounterTotal, PortCounters
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import DirectionStatistics
from ibpulse.core.arrays import Bools, Counts, Floats, Rows, Words
from ibpulse.core.model import CounterReading, DeviceIdentity, Fabric, Port, PortId, PortReadings
from ibpulse.core.ring.spans import RingPort, StrideGroup
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.plausible import Merges
from ibpulse.core.statistics.rates import Bound, increase
from ibpulse.core.statistics.sums import OBSERVED, PORT_FIELDS, Seconds, describe_directions, sum_directions

WAIT_FILE = "port_xmit_wait"
INFINIBAND = "InfiniBand"
BOUNDS = np.array(UTILIZATION_BUCKETS)
# fields of the utilisation moments
UTILIZATION, UTILIZATION_SQUARED, ACTIVE_UTILIZATION, ACTIVE_UTILIZATION_SQUARED, SAMPLED_UTILIZATION = range(5)


@dataclass(frozen=True, slots=True)
class _Wait:
    """The last reading of the stall counter, the port's data rate at that time, and the last stalled ratio."""

    last: CounterReading
    rate_bytes_per_second: float | None
    ratio: float | None


class CounterTotals:
    """Totals of the error counters of every port ever seen; a port that disappears keeps its totals.

    `tick_bytes` is the number of bytes that a port can send during one count of the stall counter, None if unknown.
    """

    def __init__(self, tick_bytes: int | None = None) -> None:
        self._tick_bytes = tick_bytes
        self._counts: dict[tuple[PortId, str], tuple[int, int]] = {}
        self._waits: dict[PortId, _Wait] = {}
        self._devices: dict[PortId, DeviceIdentity] = {}

    def update(self, fabric: Fabric) -> tuple[PortCounters, ...]:
        """The totals of the fabric's counters; passing the same readings repeatedly is allowed."""
        ports = {port.id: port for port in fabric.ports}
        for name in find_replaced({port.id: port.device for port in fabric.ports}, self._devices):
            self._waits.pop(name, None)
            self._counts = {key: count for key, count in self._counts.items() if key[0] != name}
        # a device that disappeared may have restarted its counters even if they are not lower
        here = {readings.port for readings in fabric.counters}
        self._waits = {port: wait for port, wait in self._waits.items() if port in here}
        return tuple(self._count_port(ports.get(readings.port), readings) for readings in fabric.counters)

    def _count_port(self, port: Port | None, readings: PortReadings) -> PortCounters:
        totals = tuple(
            CounterTotal(reading.name, reading.file, self._count(readings.port, reading), reading.saturated)
            for reading in readings.readings
        )
        wait = next((reading for reading in readings.readings if reading.file == WAIT_FILE), None)
        if port is None or wait is None or self._tick_bytes is None:
            self._waits.pop(readings.port, None)
            return PortCounters(readings.port, totals)
        return PortCounters(readings.port, totals, self._measure_stall(port, wait, self._tick_bytes))

    def _count(self, port: PortId, reading: CounterReading) -> int:
        key = (port, reading.name)
        last, total = self._counts.get(key, (0, 0))
        grown = reading.value - last
        total += grown if grown >= 0 else reading.value
        self._counts[key] = (reading.value, total)
        return total

    def _measure_stall(self, port: Port, reading: CounterReading, tick_bytes: int) -> float | None:
        """Fraction of the time since the last read during which the port could not send, None if unknown."""
        before = self._waits.get(port.id)
        rate = port.rate_bytes_per_second if port.active and port.identity.link_layer == INFINIBAND else None
        if before is not None and reading.taken_ns <= before.last.taken_ns:
            return before.ratio if rate == before.rate_bytes_per_second else None
        ratio = None
        if before is not None and rate is not None and rate == before.rate_bytes_per_second:
            ratio = _find_ratio(before.last, reading, rate / tick_bytes)
        self._waits[port.id] = _Wait(reading, rate, ratio)
        return ratio


def _find_ratio(before: CounterReading, now: CounterReading, ticks_per_second: float) -> float | None:
    grown = now.value - before.value
    # a saturated or reset counter says nothing about the time in between
    if before.saturated or now.saturated or grown < 0:
        return None
    return grown * SECOND_NS / (ticks_per_second * (now.taken_ns - before.taken_ns))


Name = TypeVar("Name", bound=Hashable)


def find_replaced(now: Mapping[Name, DeviceIdentity], known: dict[Name, DeviceIdentity]) -> list[Name]:
    """The ports that belong to another device now than the one `known`, which is updated."""
    replaced = []
    for name, device in now.items():
        before = known.get(name, device)
        if device.is_another(before):
            replaced.append(name)
            known[name] = device
        else:
            known[name] = device.complete(before)
    return replaced


class PortCounts:
    """The counters of ports: arrays with one row per port. Each sample is added once, so that none ever decreases.

    `until` is the newest tick that was added. `last` is the last value of each byte counter, read at `last_tick`, and
    `counted` whether there ever was one. `replacements` counts how often another device took the name of the port,
    which begins all counters anew; they are not in the `resets`. `unexplained` is the last second with a sample that is
    above the line rate and cannot be merged, 0 if there was none. `ends` are the values of the byte counters, in bytes,
    when they were last read in whole seconds.
    """

    def __init__(self) -> None:
        self.until: Counts = np.zeros(0, dtype=np.int64)
        self.bytes_total: Counts = np.zeros((0, 2), dtype=np.int64)
        self.resets: Counts = np.zeros(0, dtype=np.int64)
        self.replacements: Counts = np.zeros(0, dtype=np.int64)
        self.jumps: Counts = np.zeros(0, dtype=np.int64)
        self.counted: Bools = np.zeros((0, 2), dtype=np.bool_)
        self.observed: Floats = np.zeros(0)
        self.active_seconds: Floats = np.zeros((0, 2))
        self.moments: Floats = np.zeros((0, 2, 5))
        self.histogram: Counts = np.zeros((0, 2, len(BOUNDS) + 1), dtype=np.int64)
        self.last: Words = np.zeros((0, 2), dtype=np.uint64)
        self.last_tick: Counts = np.zeros((0, 2), dtype=np.int64)
        self.last_known: Bools = np.zeros((0, 2), dtype=np.bool_)
        self.ends: Floats = np.zeros((0, 2))
        self.implausible: Counts = np.zeros(0, dtype=np.int64)
        self.unexplained: Counts = np.zeros(0, dtype=np.int64)

    def add_row(self) -> None:
        """Make room for an additional port."""
        for name, array in vars(self).items():
            setattr(self, name, np.concatenate([array, np.zeros((1, *array.shape[1:]), dtype=array.dtype)]))

    def clear_row(self, row: int) -> None:
        """Begin a port at 0."""
        for array in vars(self).values():
            array[row] = 0

    def take_fresh(self, rows: Rows, ticks: Counts, ends: Counts) -> Bools | None:
        """Marks of the ticks up to the `ends` of the ports that were not added yet (ports, ticks); None if all are.

        From now on they count as added.
        """
        before = self.until[rows]
        self.until[rows] = np.maximum(before, ends)
        if int(before.max()) < ticks[0] and int(ends.min()) >= ticks[-1]:
            return None
        return np.asarray((ticks > before[:, None]) & (ticks <= ends[:, None]))

    def add_bytes(self, rows: Rows, group: StrideGroup, fresh: Bools | None) -> None:
        """Count the bytes of the fresh records of a group since the last counter value of each port.

        The count of a new port starts with its first record in the span: earlier records may come from before a restart
        of the daemon or the device.
        """
        block, mine, span = group.block, rows[group.rows], group.span
        counters, valid = group.counters[:, :, span], group.valid[:, :, span]
        if fresh is not None:
            valid = valid & fresh[group.rows, None]
        since, first_tick = self.last_tick[mine], block.first_tick + span.start
        found = increase(
            np.concatenate([self.last[mine][:, :, None], counters], axis=2),
            np.concatenate([self.last_known[mine][:, :, None], valid], axis=2),
            block.scale,
            Bound(group.lines, since, first_tick, block.interval_ns, int(block.stride[0])),
        )
        self.bytes_total[mine] += found.moved_bytes
        self.resets[mine] += found.resets
        self.jumps[mine] += found.jumps
        self.last[mine] = found.last
        self.last_tick[mine] = np.where(found.end > 0, first_tick + found.end - 1, since)
        self.last_known[mine] = found.known
        self.counted[mine] |= found.known

    def add_samples(self, rows: Rows, ports: Sequence[RingPort], seconds: Seconds, chosen: Bools, sums: Floats) -> None:
        """Count the chosen samples, which have these sums."""
        self.observed[rows] += sums[:, 0, :, OBSERVED].sum(axis=-1)
        self.active_seconds[rows] += sums[..., moments.SECONDS].sum(axis=-1)
        data_rates = [port.port.rate_bytes_per_second for port in ports]
        rated = np.flatnonzero([value is not None for value in data_rates])
        if not len(rated):
            return
        data_rate = np.array([value for value in data_rates if value is not None])[:, None]
        mine, chosen = rows[rated], chosen[rated]
        rate = seconds.bytes_per_second[rated]
        every = moments.weighted_sums(rate, seconds.seconds[rated], chosen).sum(axis=2)
        busy = sums[rated].sum(axis=2)
        self.moments[mine, :, UTILIZATION] += every[..., moments.FIRST] / data_rate
        self.moments[mine, :, UTILIZATION_SQUARED] += every[..., moments.SECOND] / data_rate**2
        self.moments[mine, :, ACTIVE_UTILIZATION] += busy[..., moments.FIRST] / data_rate
        self.moments[mine, :, ACTIVE_UTILIZATION_SQUARED] += busy[..., moments.SECOND] / data_rate**2
        utilization = rate / data_rate[:, :, None, None]
        self.moments[mine, :, SAMPLED_UTILIZATION] += np.where(chosen, utilization, 0.0).sum(axis=(2, 3))
        flat = (2 * len(rated), -1)
        counts = moments.count_into_buckets(utilization.reshape(flat), chosen.reshape(flat), BOUNDS)
        self.histogram[mine] += counts.reshape(len(rated), 2, -1)


class PortTable:
    """One row per port; a port that leaves the fabric keeps its row as long as the ring has a slot for it."""

    def __init__(self, threshold: float, longest_window_seconds: int, behind_seconds: int = 0) -> None:
        self._threshold = threshold
        self._rows: dict[str, int] = {}
        self._sources: dict[str, tuple[str, int]] = {}
        self._devices: dict[str, DeviceIdentity] = {}
        self.counts = PortCounts()
        self.sums = RollingSeconds(longest_window_seconds, (0, 2, PORT_FIELDS), behind_seconds)
        self.peaks = RollingSeconds(longest_window_seconds, (0, 2))

    def rows_of(self, ports: Sequence[RingPort], remembered: Collection[str]) -> tuple[Rows, list[int]]:
        """The row of each port, including new ones; `remembered` are the port names in the ring.

        Also returns the rows that are new, were taken from another port, or begin anew with another device.
        """
        here = {str(port.port.id): (port.port.source.name, port.slot) for port in ports if port.port.source}
        replaced = find_replaced({str(port.port.id): port.port.device for port in ports}, self._devices)
        fresh = [self._begin_anew(self._rows[name]) for name in replaced if name in self._rows]
        for name in here.keys() - self._rows.keys():
            self._rows[name] = self._new_row(remembered)
            fresh.append(self._rows[name])
        # the last value is meaningless after a change of source or of slot, or for a device that disappeared
        strange = [row for name, row in self._rows.items() if self._sources.get(name) != here.get(name)]
        self.counts.last_known[strange] = False
        self._sources = here
        return np.array([self._rows[name] for name in here], dtype=np.intp), fresh

    def _new_row(self, remembered: Collection[str]) -> int:
        """An empty row: one of a port that is no longer in the ring, or an additional one."""
        forgotten = next((name for name in self._rows if name not in remembered), None)
        if forgotten is None:
            for table in (self.counts, self.sums, self.peaks):
                table.add_row()
            return len(self.counts.until) - 1
        row = self._rows.pop(forgotten)
        self._devices.pop(forgotten, None)
        self._clear_row(row)
        return row

    def _begin_anew(self, row: int) -> int:
        """Clear a row, because its port belongs to another device; returns the row."""
        resets, replacements = self.counts.resets[row], self.counts.replacements[row]
        self._clear_row(row)
        self.counts.resets[row], self.counts.replacements[row] = resets, replacements + 1
        return row

    def _clear_row(self, row: int) -> None:
        for table in (self.counts, self.sums, self.peaks):
            table.clear_row(row)

    def add_merges(self, rows: Rows, merges: Merges, first: int, ticks: int, counting: bool) -> None:
        """Count merged samples, and note those above the line rate that are left as they are.

        The merges are in seconds of `ticks` ticks from `first` on.
        """
        if counting:
            np.add.at(self.counts.implausible, rows[merges.places[:, 0]], merges.counts)
        row, _, tick = merges.unexplained.T
        np.maximum.at(self.counts.unexplained, rows[row], first + tick // ticks)

    def add_seconds(self, rows: Rows, ports: Sequence[RingPort], seconds: Seconds) -> tuple[Bools, Floats]:
        """Add rates over whole seconds to the windows; gives the samples that count, and their sums, for `count`."""
        rate = seconds.bytes_per_second
        chosen, sums = _sum_active(ports, seconds, self._threshold)
        certain = rate if seconds.peaks is None else seconds.peaks
        self._roll(rows, sums, np.where(chosen, certain, 0.0).max(axis=-1))
        return chosen, sums

    def count(
        self,
        rows: Rows,
        ports: Sequence[RingPort],
        groups: Sequence[StrideGroup],
        samples: Seconds,
        first_tick: int,
        ends: Counts,
        summed: tuple[Bools, Floats] | None = None,
    ) -> None:
        """Count the samples from `first_tick` up to the `ends` of the ports that are not counted yet.

        `summed` is what `add_seconds` gave for the same samples.
        """
        if not ports:
            return
        ticks = np.arange(first_tick, first_tick + samples.good[0].size)
        fresh = self.counts.take_fresh(rows, ticks, ends)
        for group in groups:
            self.counts.add_bytes(rows, group, fresh)
        if fresh is not None:
            samples, summed = replace(samples, good=samples.good & fresh.reshape(samples.good.shape)), None
        self.counts.add_samples(rows, ports, samples, *(summed or _sum_active(ports, samples, self._threshold)))

    def ends_of_seconds(self, rows: Rows, groups: Sequence[StrideGroup]) -> Floats:
        """The values in bytes of the byte counters (ports, 2) when they were last read in whole seconds.

        The groups are those of the newest ones.
        """
        ends = self.counts.ends
        for group in groups:
            valid = group.valid[:, :, group.span]
            last = valid.shape[2] - 1 - valid[:, :, ::-1].argmax(axis=2)
            values = np.take_along_axis(group.counters[:, :, group.span], last[:, :, None], axis=2)[:, :, 0]
            found = values.astype(np.float64) * group.block.scale[:, None]
            mine = rows[group.rows]
            ends[mine] = np.where(valid.any(axis=2), found, ends[mine])
        return ends[rows]

    def _roll(self, rows: Rows, sums: Floats, peaks: Floats) -> None:
        """Push the values of some ports (ports, 2, seconds, ...) as seconds of all rows."""
        span, ports = sums.shape[2], len(self.counts.until)
        all_sums, all_peaks = np.zeros((span, ports, 2, PORT_FIELDS)), np.zeros((span, ports, 2))
        all_sums[:, rows] = sums.transpose(2, 0, 1, 3)
        all_peaks[:, rows] = peaks.transpose(2, 0, 1)
        self.sums.push(all_sums)
        self.peaks.push(all_peaks)

    def push_holes(self, seconds: int) -> None:
        """Advance the windows over seconds that were not read."""
        self.sums.push_holes(seconds)
        self.peaks.push_holes(seconds)

    def describe(
        self, rows: Rows, ports: Sequence[RingPort], resolved: Sequence[bool], windows: Sequence[int]
    ) -> list[list[list[DirectionStatistics]]]:
        """The statistics of ports by window (in seconds), port and direction; None if the counters do not resolve them.

        `resolved` is true for ports whose counters change at every sample.
        """
        found = describe_directions(
            np.stack([self.sums.sum(seconds)[rows] for seconds in windows]),
            np.stack([self.peaks.max(seconds)[rows] for seconds in windows]),
            np.array([port.stride for port in ports], dtype=np.int64),
            np.array(resolved, dtype=np.bool_),
        )
        numbers = np.stack([found.mean, found.peak, found.duty_cycle, found.burstiness_cv], axis=-1)
        values = numbers.astype(object)
        values[np.isnan(numbers)] = None
        return [
            [
                [
                    DirectionStatistics.model_construct(
                        mean_bytes_per_second=mean, peak_bytes_per_second=peak, duty_cycle_ratio=duty, burstiness_cv=cv
                    )
                    for mean, peak, duty, cv in port
                ]
                for port in window
            ]
            for window in values.tolist()
        ]


def _sum_active(ports: Sequence[RingPort], seconds: Seconds, threshold: float) -> tuple[Bools, Floats]:
    """The samples (ports, 2, seconds, samples) that count, those of ACTIVE ports, and their sums."""
    measurable = np.array([port.port.active for port in ports], dtype=np.bool_)
    good = seconds.good & measurable[:, None, None]
    rate = seconds.bytes_per_second
    bridged = seconds.bridged and seconds.bridged.only(measurable)
    return np.broadcast_to(good[:, None], rate.shape), sum_directions(rate, seconds.seconds, good, threshold, bridged)
