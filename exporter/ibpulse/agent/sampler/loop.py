"""Reads each counter of a tick from an open descriptor and writes one record per port to the ring.

Standard library only, one thread, constant memory. It never logs or waits for another process: the plan lists the files
to read, and the ring's header carries its status.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.base.clocks import Clock
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

# A counter has at most 20 digits and a newline.
READ_BYTES = 24
FAILURES_BEFORE_REST = 3
REST_NS = 60 * SECOND_NS
# A read may take this fraction of the time between two samples. If it takes longer, the time of the counter value is
# uncertain: the error of the rate would be as large, and constant traffic would show peaks.
MAX_READ = 0.1
# The driver refuses to read this file; retrying soon is pointless (infiniband-sysfs: every PMA failure is EINVAL).
REFUSED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EBADMSG})
# The file's device is gone; only a newly opened file can be read again.
VANISHED = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.ESTALE})


Pread = Callable[[int, int, int], bytes]


class CounterFile:
    """The counter files of one direction of a port, with their handling of failures.

    `folder` and `inode` are as in `PlannedPort`.
    """

    def __init__(self, paths: tuple[str, ...], pread: Pread = os.pread, folder: str = "", inode: int = 0) -> None:
        self.paths = paths
        self._folder, self._inode = Path(folder), inode
        self._pread = pread
        self.descriptors: list[int] = []
        self.failures = 0
        self.rest_until_ns = 0
        self.vanished = False

    def open(self) -> None:
        """Open all files; raises OSError, also if another device has the name by now."""
        self.close()
        try:
            for path in self.paths:
                self.descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            # open files stay with their device through a renaming, so they are the right ones if they are now
            if self._inode and self._folder.stat().st_ino != self._inode:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        except OSError:
            # with only some of the files open, a partial sum would pass for the counter
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def prepare(self, now_ns: int) -> None:
        """Open the files unless they are open or paused, so that opening does not count towards the read time."""
        if not self.descriptors and now_ns >= self.rest_until_ns:
            self.open()

    def read(self, now_ns: int) -> int:
        """The counter, or ABSENT while the files are paused or not open. Raises OSError or ValueError."""
        if now_ns < self.rest_until_ns or not self.descriptors:
            return at.ABSENT
        value = sum(int(self._pread(descriptor, READ_BYTES, 0)) for descriptor in self.descriptors)
        if not 0 <= value < at.ABSENT:
            raise ValueError(value)
        self.failures = self.rest_until_ns = 0
        self.vanished = False
        return value

    def fail(self, number: int, now_ns: int) -> None:
        """Record a failed read: after several in a row, reads are paused, for a minute if they are refused."""
        self.failures += 1
        self.vanished = number in VANISHED
        if self.vanished:
            self.close()
            self.rest_until_ns = now_ns + REST_NS
        elif self.failures >= FAILURES_BEFORE_REST:
            doublings = min(self.failures - FAILURES_BEFORE_REST, 6)
            rest = REST_NS if number in REFUSED else min(REST_NS, SECOND_NS << doublings)
            self.rest_until_ns = now_ns + rest


class SampledPort:
    """A port of the plan: its two counters and the position of its records."""

    def __init__(self, planned: PlannedPort, device_number: int, capacity: int, pread: Pread = os.pread) -> None:
        self.planned = planned
        self.device_number = device_number
        self.slot_words = at.slot_at(planned.slot)
        self.record_bytes = at.records_at(planned.slot, capacity) * at.WORD
        self.transmit = CounterFile(planned.transmit, pread, planned.folder, planned.inode)
        self.receive = CounterFile(planned.receive, pread, planned.folder, planned.inode)
        self.files = (self.transmit, self.receive)
        self.read_ns = 0

    def is_whole(self) -> bool:
        """Whether the fast path can read it: one open file per direction, none failing."""
        return all(len(file.descriptors) == 1 and not file.failures for file in self.files)


# Number of the device, byte index of the slot's records, the descriptors to transmit and to receive, the port itself.
FastEntry = tuple[int, int, int, int, SampledPort]


class Loop:
    """The ports of a plan, and a full tick over all of them; `steady` has the short one."""

    def __init__(self, ring: RingFile, lane: int, clock: Clock = time, pread: Pread = os.pread) -> None:
        self.clock, self.pread = clock, pread
        self._ring = ring
        self._lane = at.lane_at(lane)
        self._ports: dict[PlannedPort, SampledPort] = {}
        self.stride = 1
        self.fast: list[FastEntry] = []
        """The ports that are due at every tick and have one open file per direction, none failing, by device."""
        self.slow: list[SampledPort] = []
        """The others that are due at every tick."""
        self.strided: list[SampledPort] = []
        """The ports that are not due at every tick."""
        self.pack = struct.Struct(at.RECORD_FORMAT).pack_into
        """Stores a record in the `buffer`."""
        self.buffer = ring.words.cast("B")
        self._longest_read_ns = int(MAX_READ * ring.interval_ns)

    def apply(self, plan: Plan) -> None:
        """Follow this plan from the next tick on; ports that remain keep their descriptors.

        No file is opened here, so that one that hangs on opening is attributed to its device, like a hung read.
        """
        numbers = {device: number for number, device in enumerate(plan.devices(), 1)}
        for planned in self._ports.keys() - set(plan.ports):
            for file in self._ports.pop(planned).files:
                file.close()
        for planned in plan.ports:
            port = self._ports.setdefault(planned, SampledPort(planned, 0, self._ring.capacity, self.pread))
            port.device_number = numbers[planned.device]
            for file in port.files:
                if file.vanished:
                    # a new plan means that the fabric changed: the device may have come back
                    file.rest_until_ns = 0
        # ports are only due at multiples of this
        self.stride = math.gcd(*(planned.stride for planned in plan.ports)) or 1
        self._sort()

    def _sort(self) -> None:
        """Divide the ports anew, each part ordered by device."""
        ports = sorted(self._ports.values(), key=lambda port: (port.device_number, port.planned.slot))
        frequent = [port for port in ports if port.planned.stride == 1]
        self.strided = [port for port in ports if port.planned.stride > 1]
        self.slow = [port for port in frequent if not port.is_whole()]
        self.fast = [
            (port.device_number, port.record_bytes, port.transmit.descriptors[0], port.receive.descriptors[0], port)
            for port in frequent
            if port.is_whole()
        ]

    def sample(self, tick: int, late_ns: int) -> int:
        """Read every port that is due at this tick, which started `late_ns` after its deadline.

        Returns the monotonic time at which the most frequently sampled ports had been read.
        """
        words, lane = self._ring.words, self._lane
        began = self.clock.monotonic_ns()
        words[lane + at.L_BEGUN] = tick
        words[lane + at.L_HEARTBEAT_NS] = began
        frequent, strided = [*(entry[-1] for entry in self.fast), *self.slow], self.strided
        read = self.read_ports(frequent, tick)
        ended = self.read_ports(strided, tick) if strided else read
        words[lane + at.L_DEVICE] = 0
        words[lane + at.L_TICK] = tick
        words[lane + at.L_TICKS] += 1
        self.count_times([late_ns], [ended - began])
        return read if frequent else ended

    def read_ports(self, ports: list[SampledPort], tick: int) -> int:
        """Read those of the ports that are due at this tick; returns the monotonic time after it."""
        words = self._ring.words
        changed = False
        for port in ports:
            stride = port.planned.stride
            # for ports that are due at every tick, the clock guarantees the time between two samples
            if tick % stride or (stride > 1 and self._is_too_soon(port, self.clock.monotonic_ns())):
                continue
            words[self._lane + at.L_DEVICE] = port.device_number
            whole = port.is_whole()
            self._read_port(port, tick)
            changed |= port.is_whole() != whole
        if changed:
            self._sort()
        return self.clock.monotonic_ns()

    def _is_too_soon(self, port: SampledPort, now_ns: int) -> bool:
        """Whether the last sample was so late that a rate would cover less than half of the port's interval.

        With at least half, the uncertainty of the two read times limits the error of the rate to a fifth.
        """
        soon = now_ns - port.read_ns < port.planned.stride * self._ring.interval_ns // 2
        if soon:
            self._ring.words[port.slot_words + at.S_UNCERTAIN] += 1
        return soon

    def _read_port(self, port: SampledPort, tick: int) -> None:
        """Read each direction by itself, so that one bad file does not hide the other."""
        for file in port.files:
            self._prepare_file(port, file)
        before = self.clock.monotonic_ns()
        transmit = self._read_file(port, port.transmit, before)
        between = self.clock.monotonic_ns()
        receive = self._read_file(port, port.receive, between)
        after = port.read_ns = self.clock.monotonic_ns()
        self._note_status(port, after)
        if transmit == receive == at.ABSENT:
            return
        # the record keeps its timestamps even if a read took too long
        transmit, receive = self.doubt(port, (before, between, after), (transmit, receive))
        record = port.record_bytes + tick % self._ring.capacity * (at.RECORD_WORDS * at.WORD)
        mark = tick | port.planned.stride << at.STRIDE_SHIFT
        self.pack(self.buffer, record, before, between, after, transmit, receive, mark)

    def doubt(self, port: SampledPort, instants: tuple[int, int, int], values: tuple[int, int]) -> tuple[int, int]:
        """Both counters, ABSENT for a read that took too long."""
        before, between, after = instants
        longest = port.planned.stride * self._longest_read_ns
        transmit = values[0] if between - before <= longest else at.ABSENT
        receive = values[1] if after - between <= longest else at.ABSENT
        if (transmit, receive) != values:
            self._ring.words[port.slot_words + at.S_UNCERTAIN] += 1
        return transmit, receive

    def _note_status(self, port: SampledPort, now_ns: int) -> None:
        """Update the status of the port; a few failures, not enough to pause a file, do not change it."""
        status = port.slot_words + at.S_STATUS
        if any(file.vanished for file in port.files):
            self._ring.words[status] = at.GONE
        elif any(file.rest_until_ns > now_ns for file in port.files):
            self._ring.words[status] = at.LEFT_ALONE
        elif not any(file.failures for file in port.files):
            self._ring.words[status] = at.OK

    def _prepare_file(self, port: SampledPort, file: CounterFile) -> None:
        try:
            file.prepare(self.clock.monotonic_ns())
        except OSError as error:
            self._fail(port, file, error)

    def _read_file(self, port: SampledPort, file: CounterFile, now_ns: int) -> int:
        try:
            return file.read(now_ns)
        except OSError as error:
            self._fail(port, file, error)
        except ValueError:
            self._fail(port, file, OSError(errno.EBADMSG, "not a number"))
        return at.ABSENT

    def _fail(self, port: SampledPort, file: CounterFile, error: OSError) -> None:
        number = error.errno or errno.EIO
        file.fail(number, self.clock.monotonic_ns())
        words = self._ring.words
        words[port.slot_words + at.S_ERRORS] += 1
        words[port.slot_words + at.S_LAST_ERRNO] = number
        if file.vanished:
            words[at.H_RESCAN] += 1

    def count_times(self, late_ns: Sequence[int], duration_ns: Sequence[int]) -> None:
        """Count the lateness and the duration of ticks into the histograms of the ring."""
        words, lane = self._ring.words, self._lane
        words[lane + at.L_LATENESS_SUM_NS] += sum(late_ns)
        words[lane + at.L_DURATION_SUM_NS] += sum(duration_ns)
        for value in late_ns:
            words[lane + at.L_LATENESS + bisect_left(at.LATENESS_BOUNDS_NS, value)] += 1
        for value in duration_ns:
            words[lane + at.L_DURATION + bisect_left(at.DURATION_BOUNDS_NS, value)] += 1
