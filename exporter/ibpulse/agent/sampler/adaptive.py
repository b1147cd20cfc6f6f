"""The adaptive interval: measures read times in the ring and samples slow devices less often."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from ibpulse.agent.sampler import kernel
from ibpulse.agent.sampler.loop import MAX_READ
from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.agent.sampler.process import MAIN_LANE
from ibpulse.base.text import milliseconds
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Floats, Rows
from ibpulse.core.model import ByteSource, DeviceReads
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import read_planned, rows_by_stride

# A lane is starved if its reads spent more than this fraction of their time waiting for the processor. On mlx5 a worker
# of the kernel, which starves like the sampler, sends the command of each read, so their waits are about equal.
STARVED_SHARE = 1 / 3
# Sampling three times slower than the refresh prevents aliasing with a cached counter.
STRIDE_PER_REFRESH = 3
# A device whose reads take more than this fraction of the interval per tick is read separately from the others.
OWN_PROCESS_SHARE = 1 / 4
# The sampler spends at most this fraction of the time on reads; the rest is reserve for wake-up delays and slow
# moments.
BUSY_SHARE = 1 / 2
# Ticks at which all devices are due may take this fraction of the time until the next port is due.
MAX_TICK = 3 / 4
# The intervals of devices that cost more than this fraction of the costliest are lengthened together with it.
ALIKE = 1 / 2
# Maximum number of processes for slow devices; the other lanes are reserved for hung devices.
OWN_PROCESSES_MAX = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Read times of a device in ns: an upper quantile of one counter read, and the mean of all its reads at a tick."""

    read_ns: float
    tick_ns: float

    def times(self, factor: float) -> Cost:
        """The cost of a device that is `factor` times slower."""
        return Cost(self.read_ns * factor, self.tick_ns * factor)


@dataclass(frozen=True, slots=True)
class SamplingInterval:
    """Ticks between two samples of a device, and whether a separate process reads it."""

    stride: int
    own_process: bool = False

    def slower(self, other: SamplingInterval) -> SamplingInterval:
        """The slower of both, field by field."""
        return SamplingInterval(max(self.stride, other.stride), self.own_process or other.own_process)


def stride_for(refresh_seconds: float, interval_ns: int) -> int:
    """Ticks between two samples of a source with this refresh interval: a divisor of the ticks in a second.

    The maximum is one second, so a source that is refreshed less than three times per second may still alias:
    `sysfs.counters` notes that at the source.
    """
    return stride_above(STRIDE_PER_REFRESH * refresh_seconds * SECOND_NS / interval_ns, interval_ns)


def stride_of_source(source: ByteSource, interval_ns: int) -> int:
    """Ticks between two samples of a source, for its refresh interval and for the sake of its device."""
    pause = stride_above(source.pause_seconds * SECOND_NS / interval_ns, interval_ns)
    return max(stride_for(source.refresh_seconds, interval_ns), pause)


def stride_above(ticks: float, interval_ns: int) -> int:
    """The smallest divisor of the ticks in a second that is at least `ticks`, at most one second."""
    strides = _strides(interval_ns)
    return next((stride for stride in strides if stride >= ticks), strides[-1])


@cache
def _strides(interval_ns: int) -> tuple[int, ...]:
    ticks_per_second = SECOND_NS // interval_ns
    return tuple(stride for stride in range(1, ticks_per_second + 1) if ticks_per_second % stride == 0)


def find_intervals(
    costs: Mapping[str, Cost], least: Mapping[str, int], interval_ns: int
) -> dict[str, SamplingInterval]:
    """The shortest interval of each device at which no data is lost.

    - A read takes at most a tenth of its device's interval; a longer one is discarded (`MAX_READ`).
    - A few devices that take over a quarter of the interval are each read by a separate process, for at most half of
      its time. If most devices are that slow, the node as a whole is considered slow instead.
    - The others share a process, which reads for at most half of its time: the intervals of the costliest are
      lengthened first. Reading all of them takes at most three quarters of the time until one of them is due again.

    `least` is the minimum stride of each device, below which its source repeats values. Ports are sampled at multiples
    of their stride, so a tick at which all devices are due takes the sum of their times.
    """
    separate = _find_slow_devices(costs, interval_ns)
    strides = {}
    for device, cost in costs.items():
        alone = cost.tick_ns / BUSY_SHARE if device in separate else 0.0
        wanted = max(least[device], cost.read_ns / (MAX_READ * interval_ns), alone / interval_ns)
        strides[device] = stride_above(wanted, interval_ns)
    shared = {device: cost for device, cost in costs.items() if device not in separate}
    _share(strides, shared, interval_ns)
    return {device: SamplingInterval(stride, device in separate) for device, stride in strides.items()}


def _find_slow_devices(costs: Mapping[str, Cost], interval_ns: int) -> frozenset[str]:
    """The slow devices, at most `OWN_PROCESSES_MAX`; none if more than half of all devices are slow."""
    slow = [device for device, cost in costs.items() if cost.tick_ns > OWN_PROCESS_SHARE * interval_ns]
    if 2 * len(slow) > len(costs):
        return frozenset()
    slow.sort(key=lambda device: costs[device].tick_ns, reverse=True)
    return frozenset(slow[:OWN_PROCESSES_MAX])


def _share(strides: dict[str, int], costs: Mapping[str, Cost], interval_ns: int) -> None:
    """Lengthen strides until one process can read all these devices."""
    longest = SECOND_NS // interval_ns
    whole_ns = sum(cost.tick_ns for cost in costs.values())
    while True:
        loads = {device: cost.tick_ns / strides[device] for device, cost in costs.items() if strides[device] < longest}
        if not loads:
            return
        if sum(cost.tick_ns / strides[device] for device, cost in costs.items()) > BUSY_SHARE * interval_ns:
            least_load = ALIKE * max(loads.values())
            _lengthen(strides, (device for device, load in loads.items() if load >= least_load), interval_ns)
            continue
        often = min(strides[device] for device in costs)
        if whole_ns <= MAX_TICK * often * interval_ns:
            return
        _lengthen(strides, (device for device in loads if strides[device] == often), interval_ns)


def _lengthen(strides: dict[str, int], devices: Iterable[str], interval_ns: int) -> None:
    for device in list(devices):
        strides[device] = stride_above(strides[device] + 1, interval_ns)


class _Times(NamedTuple):
    """Times of a sampler process since its start (ns): waiting for the processor, waking late, and reading."""

    process: int
    waited: int
    late: int
    reading: int


class Starvation:
    """Compares what each lane's process has waited with the time that its reads took, from one look to the next.

    It tells a sampler that did not get the processor from a device that answers slowly: both make reads long and use no
    CPU, but a read that waits for its device sleeps, and one that was preempted, or woken and not run, is in a queue of
    the scheduler, which measures that time. Nothing is read in the hot loop.
    """

    def __init__(self, ring: RingFile) -> None:
        self._ring = ring
        self._last: dict[int, _Times] = {}

    def look(self) -> frozenset[int]:
        """The lanes whose reads waited for the processor since the last look."""
        found = {lane: times for lane in range(at.LANE_COUNT) if (times := self._read(lane)) is not None}
        starved = {lane for lane, times in found.items() if _is_starved(self._last.get(lane), times)}
        self._last = found
        return frozenset(starved)

    def _read(self, lane: int) -> _Times | None:
        begin, words = at.lane_at(lane), self._ring.words
        process = words[begin + at.L_PID]
        waited = kernel.runqueue_wait_ns(process) if process else None
        if waited is None:
            return None
        late = words[begin + at.L_LATENESS_SUM_NS] + words[begin + at.L_OVERSLEPT_NS]
        return _Times(process, waited, late, words[begin + at.L_DURATION_SUM_NS])


def _is_starved(before: _Times | None, now: _Times) -> bool:
    if before is None or before.process != now.process:
        return False
    # late wake-ups are waiting, too, but delay no read
    in_reads = now.waited - before.waited - (now.late - before.late)
    return in_reads > STARVED_SHARE * (now.reading - before.reading)


# A read time only counts as lasting if it holds in each of this many parts of the span.
PARTS = 3
SPAN_SECONDS = 3.0
# planned samples per part, and the minimum number needed to evaluate it
PART_SAMPLES = 20
MIN_SAMPLES = 2
# A rate depends on four reads of its port. If 15 % of the reads are too long, half of the rates are missing, which is
# no better than doubling the interval; below that, a longer interval would lose more than it gains.
LONG_READ_QUANTILE = 0.85
P99 = 0.99
REFRESH_SECONDS = 2.0
# An interval is shortened if the shorter one would still suffice for reads that take this many times longer,
RESERVE = 2.0
# during all of this time.
PATIENCE_SECONDS = 120.0
# If an interval has to be lengthened again this soon after it was shortened, the patience doubles.
LENGTHENED_SOON_PATIENCES = 5
ONE_LANE: Mapping[str, int] = {}
PATIENCE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Read times of a device: the lowest (`lasting`) and the highest cost among the parts of the span.

    `p99_ns` and `worst_ns` refer to single reads over the whole span.
    """

    lasting: Cost
    highest: Cost
    p99_ns: float
    worst_ns: float


def measure_reads(reader: RingReader, ports: Sequence[PlannedPort], last_tick: int) -> dict[str, ReadTimes]:
    """The read times of each device up to a tick, except for devices with too few samples."""
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
    """Long read and mean tick of each part, (ports, PARTS, 2), NaN if unknown; p99 and worst read, (ports, 2)."""
    samples = max(PART_SAMPLES, int(SPAN_SECONDS / PARTS * 1e9 / reader.interval_ns) // stride)
    block = read_planned(reader, [port.slot for port in ports], stride, PARTS * samples, last_tick)
    present = block.present.reshape(len(ports), PARTS, samples)
    stamps = block.records[:, :, at.R_BEFORE : at.R_AFTER + 1].astype(np.float64)
    reads = np.abs(np.diff(stamps, axis=2)).reshape(*present.shape, 2)
    # of a message both intervals are the same one
    ticks = np.ptp(stamps, axis=2).reshape(present.shape)
    # lower than any measured value
    reads[~present] = -1.0
    count = np.count_nonzero(present, axis=2)
    mean = np.where(present, ticks, 0.0).sum(axis=2) / np.maximum(count, 1)
    each = np.sort(reads.reshape(*present.shape[:2], -1), axis=2)
    parts = np.stack([_quantile(each, 2 * count, LONG_READ_QUANTILE), mean], axis=2)
    parts[count < MIN_SAMPLES] = np.nan
    whole = np.sort(each.reshape(len(ports), -1), axis=1)
    p99 = _quantile(whole, 2 * count.sum(axis=1), P99)
    return parts, np.stack([p99, whole[:, -1]], axis=1)


def _quantile(ordered: Floats, count: Rows, part: float) -> Floats:
    """The quantile `part` of the last (largest) `count` values along the last axis."""
    index = ordered.shape[-1] - 1 - np.floor((1 - part) * count).astype(np.intp)
    return np.asarray(np.take_along_axis(ordered, index[..., None], axis=-1)[..., 0])


def _sum_up(ports: Sequence[tuple[Floats, Floats]]) -> ReadTimes:
    """The read times of a device from the results of `_measure` for its ports."""
    parts, whole = (np.array(numbers) for numbers in zip(*ports, strict=True))
    read, tick = parts[..., 0].max(axis=0), parts[..., 1].sum(axis=0)
    return ReadTimes(
        Cost(float(read.min()), float(tick.min())),
        Cost(float(read.max()), float(tick.max())),
        float(whole[:, 0].max()),
        float(whole[:, 1].max()),
    )


log = logging.getLogger(__name__)


@dataclass(slots=True)
class DeviceInterval:
    """A device's minimum stride (from its sources), its interval, and since when a shorter one would suffice."""

    least: int
    interval: SamplingInterval
    patience: float
    reads: ReadTimes | None = None
    shorter: SamplingInterval | None = None
    shorter_since: float = 0.0
    shortened_at: float | None = None

    def is_too_short(self, needed: SamplingInterval) -> bool:
        """Whether the device has to be sampled less often, or in a separate process."""
        return self.interval.slower(needed) != self.interval


class AdaptiveInterval:
    """Keeps the sampling interval of each device."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._devices: dict[str, DeviceInterval] = {}
        self._starvation = Starvation(reader.ring)
        self.starved = False
        """Whether an interval stays as it is, because the reads waited for the processor and not for the device."""
        self._refreshed_at = 0.0

    def follow(self, least: Mapping[str, int]) -> None:
        """Manage these devices, given the minimum number of ticks between two samples that their sources need."""
        self._devices = {
            device: known
            if (known := self._devices.get(device)) is not None and known.least == stride
            else DeviceInterval(stride, SamplingInterval(stride), PATIENCE_SECONDS)
            for device, stride in least.items()
        }

    def forget(self, device: str) -> None:
        """Begin anew with a device, because another one has its name."""
        least = self._devices[device].least
        self._devices[device] = DeviceInterval(least, SamplingInterval(least), PATIENCE_SECONDS)

    def stride(self, device: str) -> int:
        """The minimum stride at which the ports of the device are sampled."""
        return self._devices[device].interval.stride

    @property
    def own_process_devices(self) -> frozenset[str]:
        """The devices to be read by a separate process."""
        return frozenset(device for device, known in self._devices.items() if known.interval.own_process)

    def reads(self) -> tuple[DeviceReads, ...]:
        """The read times of each device that was measured or has a lengthened interval."""
        found = []
        for device, known in sorted(self._devices.items()):
            lengthened = known.interval.stride > known.least
            if lengthened or known.reads is not None:
                found.append(DeviceReads(device, known.reads.p99_ns / 1e9 if known.reads else None, lengthened))
        return tuple(found)

    def refresh(self, ports: Sequence[PlannedPort], now: float, lanes: Mapping[str, int] = ONE_LANE) -> bool:
        """Update the intervals; true if any changed. `ports` are those sampled as planned, `now` is monotonic.

        `lanes` are those of the devices that the main sampler does not read.
        """
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
        starved = self._starvation.look()
        held = {device for device in measured if lanes.get(device, MAIN_LANE) in starved}
        self.starved = any(self._devices[device].is_too_short(needed[device]) for device in held)
        changed = [self._judge(device, needed[device], easy[device], now) for device in measured if device not in held]
        return any(changed)

    def _judge(self, device: str, needed: SamplingInterval, easy: SamplingInterval, now: float) -> bool:
        """Lengthen the interval of a device if needed, or shorten it if a shorter one has sufficed for long enough."""
        known = self._devices[device]
        if known.is_too_short(needed):
            self._lengthen(device, known, known.interval.slower(needed), now)
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
        """Whether `interval` samples a device more often, or as often as possible but without a separate process."""
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
            "device %s: reads now take %s ms (p99); sampling it every %s ms from now on",
            device,
            milliseconds(known.reads.p99_ns),
            milliseconds(interval.stride * self._reader.interval_ns),
        )

    def _explain(self, device: str, known: DeviceInterval, before: SamplingInterval) -> str:
        """The log message: the problem, the action taken, and advice."""
        assert known.reads is not None
        reads, interval_ns = known.reads, self._reader.interval_ns
        took = f"reads take {milliseconds(reads.p99_ns)} ms (p99, at worst {milliseconds(reads.worst_ns)} ms)"
        usual, longer = milliseconds(before.stride * interval_ns), milliseconds(known.interval.stride * interval_ns)
        if known.interval.own_process:
            done = f"sampling it every {longer} ms from now on, in a separate process that does not delay other devices"
        else:
            done = f"sampling it every {longer} ms from now on"
        if reads.lasting.read_ns > MAX_READ * known.interval.stride * interval_ns:
            done += ", but even so most of its samples are missing"
        if self._is_slow(reads.lasting, before, known.interval):
            return (
                f"device {device}: {took}, too long for sampling every {usual} ms; {done}. Check its firmware and "
                "other programs that query it; set sampler.scheduler=fifo if this machine is busy"
            )
        return (
            f"device {device}: {took}, which with the other devices is too long for sampling every {usual} ms; "
            f"{done}. Exclude ports with ports.exclude, or raise sampler.interval"
        )

    def _is_slow(self, cost: Cost, before: SamplingInterval, interval: SamplingInterval) -> bool:
        """Whether the device itself is slow, rather than there being too many devices."""
        return interval.own_process or cost.read_ns > MAX_READ * before.stride * self._reader.interval_ns
