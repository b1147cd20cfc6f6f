"""Computes the sampling interval of each device from its read times.

`adaptive` applies it to a running sampler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ibpulse.agent.sampler.loop import MAX_READ
from ibpulse.base.units import SECOND_NS
from ibpulse.core.model import ByteSource

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

    - A read takes at most a tenth of its device's interval; a longer one is discarded (`loop.MAX_READ`).
    - A few devices that take over a quarter of the interval are each read by a separate process, for at most half of
    its
      time. If most devices are that slow, the node as a whole is considered slow instead.
    - The others share a process, which reads for at most half of its time: the intervals of the costliest are
    lengthened
      first. Reading all of them takes at most three quarters of the time until one of them is due again.

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
