"""How long the interval of each device has to be for the time that its reads take: arithmetic on plain values.

`adaptive` applies it to a running sampler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ibpulse.sampler.loop import LONGEST_READ
from ibpulse.units import SECOND_NS

# Sampling three times slower than the refresh keeps a cached counter from aliasing.
STRIDE_PER_REFRESH = 3
# A device that takes more than this share of the interval for one tick is kept away from the others.
OWN_PROCESS_SHARE = 1 / 4
# The sampler reads for this share of the time at most: what is left is for its lateness and for slower moments.
BUSY_SHARE = 1 / 2
# Ticks at which all devices are due may take this share of the time until the next port is due.
LONGEST_TICK = 3 / 4
# Devices that cost more than this share of the costliest are lengthened together with it.
ALIKE = 1 / 2
# Processes for slow devices; the other lanes are kept for those that hang.
OWN_PROCESSES_MAX = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """What a device takes, in ns: one read of a counter, an upper quantile, and all of its reads at a tick, a mean."""

    read_ns: float
    tick_ns: float

    def times(self, factor: float) -> Cost:
        """The cost of a device that is so many times slower."""
        return Cost(self.read_ns * factor, self.tick_ns * factor)


@dataclass(frozen=True, slots=True)
class SamplingInterval:
    """Ticks between two samples of a device, and whether a process of its own reads it."""

    stride: int
    own_process: bool = False

    def slower(self, other: SamplingInterval) -> SamplingInterval:
        """The slower of both in each respect."""
        return SamplingInterval(max(self.stride, other.stride), self.own_process or other.own_process)


def stride_for(refresh_seconds: float, interval_ns: int) -> int:
    """Ticks between two samples of a source that is refreshed this often: a divisor of the ticks in a second.

    A second is the longest, so that a source which is refreshed less than three times in it may alias all the same:
    `sysfs.counters` notes that at the source.
    """
    return stride_above(STRIDE_PER_REFRESH * refresh_seconds * SECOND_NS / interval_ns, interval_ns)


def stride_above(ticks: float, interval_ns: int) -> int:
    """The least divisor of the ticks in a second that is not below `ticks`; a second where there is none."""
    strides = _strides(interval_ns)
    return next((stride for stride in strides if stride >= ticks), strides[-1])


@cache
def _strides(interval_ns: int) -> tuple[int, ...]:
    ticks_per_second = SECOND_NS // interval_ns
    return tuple(stride for stride in range(1, ticks_per_second + 1) if ticks_per_second % stride == 0)


def find_intervals(
    costs: Mapping[str, Cost], least: Mapping[str, int], interval_ns: int
) -> dict[str, SamplingInterval]:
    """The interval of each device: the shortest intervals at which nothing is lost.

    - A read takes at most a tenth of its device's interval: a longer one is a hole (`loop.LONGEST_READ`).
    - A few devices that take over a quarter of the interval are each read by a process of its own, for at most
      half of its time; where most are so slow, the node as a whole is.
    - The others share a process, which reads for at most half of its time: the costliest are lengthened first. All of
      them together are read in three quarters of the time in which one of them is due again.

    `least` is the stride of each device below which its source only repeats itself. All samples of a stride stand at
    its multiples, so that the ticks of devices line up; so a tick at which all are due takes the sum of their times.
    """
    separate = _find_slow_devices(costs, interval_ns)
    strides = {}
    for device, cost in costs.items():
        alone = cost.tick_ns / BUSY_SHARE if device in separate else 0.0
        wanted = max(least[device], cost.read_ns / (LONGEST_READ * interval_ns), alone / interval_ns)
        strides[device] = stride_above(wanted, interval_ns)
    shared = {device: cost for device, cost in costs.items() if device not in separate}
    _share(strides, shared, interval_ns)
    return {device: SamplingInterval(stride, device in separate) for device, stride in strides.items()}


def _find_slow_devices(costs: Mapping[str, Cost], interval_ns: int) -> frozenset[str]:
    """The slow devices, the costliest first, unless they are more than half of all."""
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
        if whole_ns <= LONGEST_TICK * often * interval_ns:
            return
        _lengthen(strides, (device for device in loads if strides[device] == often), interval_ns)


def _lengthen(strides: dict[str, int], devices: Iterable[str], interval_ns: int) -> None:
    for device in list(devices):
        strides[device] = stride_above(strides[device] + 1, interval_ns)
