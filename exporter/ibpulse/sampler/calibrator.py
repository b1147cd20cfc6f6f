"""The calibrator: lengthens the interval of devices whose reads take too long, says so, and shortens it again.

It looks at what was measured and decides; the supervisor does what it decided.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ibpulse.model import DeviceReads
from ibpulse.ring.reader import RingReader
from ibpulse.sampler.calibration import Cost, Pace, find_pace
from ibpulse.sampler.loop import LONGEST_READ
from ibpulse.sampler.plan import PlannedPort
from ibpulse.sampler.readtimes import ReadTimes, measure_reads

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
# A pace is made shorter when it would fit reads that take so many times longer.
RESERVE = 2.0
# for so long
PATIENCE_SECONDS = 120.0
# A pace that had to be lengthened again soon after it was shortened is kept twice as long the next time.
RELAPSE_PATIENCES = 5
PATIENCE_SECONDS_MAX = 3600.0


@dataclass(slots=True)
class PacedDevice:
    """A device, the least stride of its sources, its pace, and since when a shorter one would do."""

    least: int
    pace: Pace
    patience: float
    reads: ReadTimes | None = None
    shorter: Pace | None = None
    shorter_since: float = 0.0
    shortened_at: float | None = None


class Calibrator:
    """Keeps the pace of each device."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._devices: dict[str, PacedDevice] = {}
        self._looked_at = 0.0

    def follow(self, least: Mapping[str, int]) -> None:
        """Look after these devices, whose sources need at least so many ticks between two samples."""
        self._devices = {
            device: known
            if (known := self._devices.get(device)) is not None and known.least == stride
            else PacedDevice(stride, Pace(stride), PATIENCE_SECONDS)
            for device, stride in least.items()
        }

    def stride(self, device: str) -> int:
        """The stride below which no port of the device is to be sampled."""
        return self._devices[device].pace.stride

    @property
    def apart(self) -> frozenset[str]:
        """The devices that are to be read by a process of their own."""
        return frozenset(device for device, known in self._devices.items() if known.pace.apart)

    def reads(self) -> tuple[DeviceReads, ...]:
        """The read times of each device that was measured or whose interval is lengthened."""
        told = []
        for device, known in sorted(self._devices.items()):
            lengthened = known.pace.stride > known.least
            if lengthened or known.reads is not None:
                told.append(DeviceReads(device, known.reads.p99_ns / 1e9 if known.reads else None, lengthened))
        return tuple(told)

    def look(self, ports: Sequence[PlannedPort], now: float) -> bool:
        """Whether the pace of a device was changed; `ports` are those that are read as planned, `now` is monotonic."""
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        measured = measure_reads(self._reader, ports, self._reader.ring.latest_tick())
        for device, known in self._devices.items():
            known.reads = measured.get(device)
        least = {device: known.least for device, known in self._devices.items()}
        interval_ns = self._reader.interval_ns
        needed = find_pace({device: reads.lasting for device, reads in measured.items()}, least, interval_ns)
        easy = find_pace(
            {device: reads.highest.times(RESERVE) for device, reads in measured.items()}, least, interval_ns
        )
        changed = [self._judge(device, needed[device], easy[device], now) for device in measured]
        return any(changed)

    def _judge(self, device: str, needed: Pace, easy: Pace, now: float) -> bool:
        """Change the pace of a device to what it needs, or to what it has long been able to hold."""
        known = self._devices[device]
        longer = known.pace.slower(needed)
        if longer != known.pace:
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
    def _is_shorter(pace: Pace, known: PacedDevice) -> bool:
        """Whether a device would be sampled more often, or as often as it can be without a process of its own."""
        if known.pace.slower(pace) != known.pace:
            return False
        return pace.stride < known.pace.stride or (known.pace.stride == known.least and pace != known.pace)

    def _lengthen(self, device: str, known: PacedDevice, pace: Pace, now: float) -> None:
        if known.shortened_at is not None and now - known.shortened_at < RELAPSE_PATIENCES * known.patience:
            known.patience = min(PATIENCE_SECONDS_MAX, 2 * known.patience)
        before, known.pace, known.shorter = known.pace, pace, None
        log.warning("%s", self._explain(device, known, before))

    def _shorten(self, device: str, known: PacedDevice, pace: Pace, now: float) -> None:
        known.pace, known.shorter, known.shortened_at = pace, None, now
        assert known.reads is not None
        log.warning(
            "device %s: a read takes %s ms (p99) now; it is sampled every %s ms from now on",
            device,
            _ms(known.reads.p99_ns),
            _ms(pace.stride * self._reader.interval_ns),
        )

    def _explain(self, device: str, known: PacedDevice, before: Pace) -> str:
        """What is wrong, what was done, and what to do, in three sentences."""
        assert known.reads is not None
        reads, interval_ns = known.reads, self._reader.interval_ns
        took = f"a read takes {_ms(reads.p99_ns)} ms (p99, at worst {_ms(reads.worst_ns)} ms)"
        usual, longer = _ms(before.stride * interval_ns), _ms(known.pace.stride * interval_ns)
        if known.pace.apart:
            done = f"it is sampled every {longer} ms from now on, by a process of its own, so that it holds up no other"
        else:
            done = f"it is sampled every {longer} ms from now on"
        if reads.lasting.read_ns > LONGEST_READ * known.pace.stride * interval_ns:
            done += ", and even so most of its samples are holes"
        if self._is_slow(reads.lasting, before, known.pace):
            return (
                f"device {device}: {took}, too long for a sample every {usual} ms; {done}. Look for what slows it "
                "down: its firmware, or other programs that ask it; sampler.scheduler=fifo if this machine is busy"
            )
        return (
            f"device {device}: {took}, and with those of the other devices too long for a sample every {usual} ms; "
            f"{done}. Leave out ports by ports.exclude, or raise sampler.interval"
        )

    def _is_slow(self, cost: Cost, before: Pace, pace: Pace) -> bool:
        """Whether a device is slow by itself, and not only one of many."""
        return pace.apart or cost.read_ns > LONGEST_READ * before.stride * self._reader.interval_ns


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.0f}" if ns >= 100e6 else f"{ns / 1e6:.3g}"
