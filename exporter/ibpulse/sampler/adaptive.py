"""The adaptive interval: measures read times in the ring and samples slow devices less often."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.arrays import Floats
from ibpulse.model import DeviceReads
from ibpulse.ring import layout as at
from ibpulse.ring.reader import RingReader
from ibpulse.ring.window import read_planned, rows_by_stride
from ibpulse.sampler.loop import LONGEST_READ
from ibpulse.sampler.plan import PlannedPort
from ibpulse.sampler.sampling_interval import Cost, SamplingInterval, find_intervals
from ibpulse.text import milliseconds

# What holds in each of these parts of the span is no passing disturbance.
PARTS = 3
SPAN_SECONDS = 3.0
# planned samples of a part, and those that it must hold to tell anything
PART_SAMPLES = 20
FEWEST_SAMPLES = 2
# A rate rests on four reads of its port. Where 15 % of the reads are too long, half of the rates are holes, and twice
# the interval loses no more; below that a longer interval would lose more than it saves.
LONG_READ_QUANTILE = 0.85
P99 = 0.99


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """The reads of a device: what they cost in each part of the span at least, and in no part more than.

    `p99_ns` and `worst_ns` are of single reads over the whole span.
    """

    lasting: Cost
    highest: Cost
    p99_ns: float
    worst_ns: float


def measure_reads(reader: RingReader, ports: Sequence[PlannedPort], last_tick: int) -> dict[str, ReadTimes]:
    """The read times of each device up to a tick; none of a device that was sampled too seldom to tell."""
    found: dict[str, list[tuple[Floats, Floats]]] = {}
    unknown: set[str] = set()
    for stride, rows in rows_by_stride([port.stride for port in ports]):
        mine = [ports[row] for row in rows]
        for port, parts, whole in zip(mine, *_measure(reader, mine, stride, last_tick), strict=True):
            if np.isnan(parts).any():
                unknown.add(port.device)
            found.setdefault(port.device, []).append((parts, whole))
    return {device: _sum_up(of_ports) for device, of_ports in found.items() if device not in unknown}


def _measure(reader: RingReader, ports: Sequence[PlannedPort], stride: int, last_tick: int) -> tuple[Floats, Floats]:
    """Long read and mean tick of each part, (ports, PARTS, 2), NaN where unknown; p99 and worst read, (ports, 2)."""
    samples = max(PART_SAMPLES, int(SPAN_SECONDS / PARTS * 1e9 / reader.interval_ns) // stride)
    block = read_planned(reader, [port.slot for port in ports], stride, PARTS * samples, last_tick)
    present = block.present.reshape(len(ports), PARTS, samples)
    stamps = block.records[:, :, at.R_BEFORE : at.R_AFTER + 1].astype(np.float64)
    reads = np.diff(stamps, axis=2).reshape(*present.shape, 2)
    # below all that was measured
    reads[~present] = -1.0
    count = np.count_nonzero(present, axis=2)
    mean = np.where(present, reads.sum(axis=3), 0.0).sum(axis=2) / np.maximum(count, 1)
    each = np.sort(reads.reshape(*present.shape[:2], -1), axis=2)
    parts = np.stack([_quantile(each, 2 * count, LONG_READ_QUANTILE), mean], axis=2)
    parts[count < FEWEST_SAMPLES] = np.nan
    whole = np.sort(each.reshape(len(ports), -1), axis=1)
    p99 = _quantile(whole, 2 * count.sum(axis=1), P99)
    return parts, np.stack([p99, whole[:, -1]], axis=1)


def _quantile(ordered: Floats, count: npt.NDArray[np.intp], part: float) -> Floats:
    """The value that `part` of the last `count` values, the largest, do not exceed; along the last axis."""
    index = ordered.shape[-1] - 1 - np.floor((1 - part) * count).astype(np.intp)
    return np.asarray(np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0])


def _sum_up(ports: Sequence[tuple[Floats, Floats]]) -> ReadTimes:
    """The read times of the device that has these ports, each with its parts and its whole."""
    parts, whole = (np.array(numbers) for numbers in zip(*ports, strict=True))
    read, tick = parts[..., 0].max(axis=0), parts[..., 1].sum(axis=0)
    return ReadTimes(
        Cost(float(read.min()), float(tick.min())),
        Cost(float(read.max()), float(tick.max())),
        float(whole[:, 0].max()),
        float(whole[:, 1].max()),
    )


log = logging.getLogger(__name__)

REFRESH_SECONDS = 2.0
# An interval is made shorter when it would fit reads that take so many times longer.
RESERVE = 2.0
# for so long
PATIENCE_SECONDS = 120.0
# An interval that had to be lengthened again soon after it was shortened is kept twice as long the next time.
LENGTHENED_SOON_PATIENCES = 5
PATIENCE_SECONDS_MAX = 3600.0


@dataclass(slots=True)
class DeviceInterval:
    """A device, the least stride of its sources, its interval, and since when a shorter one would do."""

    least: int
    interval: SamplingInterval
    patience: float
    reads: ReadTimes | None = None
    shorter: SamplingInterval | None = None
    shorter_since: float = 0.0
    shortened_at: float | None = None


class AdaptiveInterval:
    """Keeps the sampling interval of each device."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._devices: dict[str, DeviceInterval] = {}
        self._refreshed_at = 0.0

    def follow(self, least: Mapping[str, int]) -> None:
        """Look after these devices, whose sources need at least so many ticks between two samples."""
        self._devices = {
            device: known
            if (known := self._devices.get(device)) is not None and known.least == stride
            else DeviceInterval(stride, SamplingInterval(stride), PATIENCE_SECONDS)
            for device, stride in least.items()
        }

    def stride(self, device: str) -> int:
        """The stride below which no port of the device is to be sampled."""
        return self._devices[device].interval.stride

    @property
    def own_process_devices(self) -> frozenset[str]:
        """The devices that are to be read by a process of their own."""
        return frozenset(device for device, known in self._devices.items() if known.interval.own_process)

    def reads(self) -> tuple[DeviceReads, ...]:
        """The read times of each device that was measured or whose interval is lengthened."""
        found = []
        for device, known in sorted(self._devices.items()):
            lengthened = known.interval.stride > known.least
            if lengthened or known.reads is not None:
                found.append(DeviceReads(device, known.reads.p99_ns / 1e9 if known.reads else None, lengthened))
        return tuple(found)

    def refresh(self, ports: Sequence[PlannedPort], now: float) -> bool:
        """Whether the interval of a device was changed; `ports` are those read as planned, `now` is monotonic."""
        if now - self._refreshed_at < REFRESH_SECONDS:
            return False
        self._refreshed_at = now
        measured = measure_reads(self._reader, ports, self._reader.ring.latest_tick())
        for device, known in self._devices.items():
            known.reads = measured.get(device)
        least = {device: known.least for device, known in self._devices.items()}
        interval_ns = self._reader.interval_ns
        needed = find_intervals({device: reads.lasting for device, reads in measured.items()}, least, interval_ns)
        easy = find_intervals(
            {device: reads.highest.times(RESERVE) for device, reads in measured.items()}, least, interval_ns
        )
        changed = [self._judge(device, needed[device], easy[device], now) for device in measured]
        return any(changed)

    def _judge(self, device: str, needed: SamplingInterval, easy: SamplingInterval, now: float) -> bool:
        """Change the interval of a device to what it needs, or to what it has long been able to hold."""
        known = self._devices[device]
        longer = known.interval.slower(needed)
        if longer != known.interval:
            self._lengthen(device, known, longer, now)
            return True
        if not self._is_shorter(easy, known):
            known.shorter = None
            return False
        if known.shorter is None:
            known.shorter, known.shorter_since = easy, now
        known.shorter = known.shorter.slower(easy)
        if now - known.shorter_since < known.patience:
            return False
        self._shorten(device, known, known.shorter, now)
        return True

    @staticmethod
    def _is_shorter(interval: SamplingInterval, known: DeviceInterval) -> bool:
        """Whether a device would be sampled more often, or as often as it can be without a process of its own."""
        if known.interval.slower(interval) != known.interval:
            return False
        return interval.stride < known.interval.stride or (
            known.interval.stride == known.least and interval != known.interval
        )

    def _lengthen(self, device: str, known: DeviceInterval, interval: SamplingInterval, now: float) -> None:
        if known.shortened_at is not None and now - known.shortened_at < LENGTHENED_SOON_PATIENCES * known.patience:
            known.patience = min(PATIENCE_SECONDS_MAX, 2 * known.patience)
        before, known.interval, known.shorter = known.interval, interval, None
        log.warning("%s", self._explain(device, known, before))

    def _shorten(self, device: str, known: DeviceInterval, interval: SamplingInterval, now: float) -> None:
        known.interval, known.shorter, known.shortened_at = interval, None, now
        assert known.reads is not None
        log.warning(
            "device %s: a read takes %s ms (p99) now; it is sampled every %s ms from now on",
            device,
            milliseconds(known.reads.p99_ns),
            milliseconds(interval.stride * self._reader.interval_ns),
        )

    def _explain(self, device: str, known: DeviceInterval, before: SamplingInterval) -> str:
        """What is wrong, what was done, and what to do, in three sentences."""
        assert known.reads is not None
        reads, interval_ns = known.reads, self._reader.interval_ns
        took = f"a read takes {milliseconds(reads.p99_ns)} ms (p99, at worst {milliseconds(reads.worst_ns)} ms)"
        usual, longer = milliseconds(before.stride * interval_ns), milliseconds(known.interval.stride * interval_ns)
        if known.interval.own_process:
            done = f"it is sampled every {longer} ms from now on, by a process of its own, so that it holds up no other"
        else:
            done = f"it is sampled every {longer} ms from now on"
        if reads.lasting.read_ns > LONGEST_READ * known.interval.stride * interval_ns:
            done += ", and even so most of its samples are holes"
        if self._is_slow(reads.lasting, before, known.interval):
            return (
                f"device {device}: {took}, too long for a sample every {usual} ms; {done}. Look for what slows it "
                "down: its firmware, or other programs that ask it; sampler.scheduler=fifo if this machine is busy"
            )
        return (
            f"device {device}: {took}, and with those of the other devices too long for a sample every {usual} ms; "
            f"{done}. Leave out ports by ports.exclude, or raise sampler.interval"
        )

    def _is_slow(self, cost: Cost, before: SamplingInterval, interval: SamplingInterval) -> bool:
        """Whether a device is slow by itself, and not only one of many."""
        return interval.own_process or cost.read_ns > LONGEST_READ * before.stride * self._reader.interval_ns
