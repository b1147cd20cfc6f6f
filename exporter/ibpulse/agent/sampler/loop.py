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
from typing import Any

from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.signals import SignalLoop
from ibpulse.agent.sampler.source import (
    FAILURES_BEFORE_REST,
    NOT_UNDERSTOOD,
    CounterFile,
    CounterMessage,
    Pread,
    Source,
)
from ibpulse.agent.sysfs.netlink import SHORT_SEQUENCES, Layout, Link, Socket, connect
from ibpulse.base.clocks import Clock
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

# A read may take this fraction of the time between two samples. If it takes longer, the time of the counter value is
# uncertain: the error of the rate would be as large, and constant traffic would show peaks.
MAX_READ = 0.1


class SampledPort:
    """A port of the plan: its two counters and the position of its records."""

    def __init__(self, planned: PlannedPort, capacity: int, pread: Pread, get_link: Callable[[], Link]) -> None:
        self.planned = planned
        self.device_number = 0
        self.slot_words = at.slot_at(planned.slot)
        self.record_bytes = at.records_at(planned.slot, capacity) * at.WORD
        self.files: tuple[CounterFile, ...] = ()
        self.message: CounterMessage | None = None
        if planned.message:
            self.message = CounterMessage(planned, get_link, planned.message, planned.transmit, planned.receive)
        else:
            self.files = tuple(CounterFile(planned, paths, pread) for paths in (planned.transmit, planned.receive))
        self.sources: tuple[Source, ...] = self.files or (self.message,)  # type: ignore[assignment]
        self.read_ns = 0

    def find_whole(self) -> tuple[int, ...] | Layout | None:
        """What the fast path reads: an open file, or a place in the reply, per direction; None if one fails."""
        if any(source.failures or not source.is_open() for source in self.sources):
            return None
        if self.message is None:
            descriptors = tuple(descriptor for file in self.files for descriptor in file.descriptors)
            return descriptors if len(descriptors) == len(self.files) else None
        layout = self.message.message.layout
        return layout if layout is not None and layout.is_pair else None


# Number of the device, byte index of the slot's records, the descriptors to transmit and to receive, the port itself.
FastEntry = tuple[int, int, int, int, SampledPort]
# Number of the device, byte index of the slot's records, the request, the size of the reply, what unpacks it, its head
# and the names of its counters, whether the first is received, the port itself.
MessageEntry = tuple[
    int, int, bytes, int, Callable[[bytearray], tuple[Any, ...]], bytes, bytes, bytes, bool, SampledPort
]


class Loop:
    """The ports of a plan, and a full tick over all of them; `steady` has the short one."""

    def __init__(
        self,
        ring: RingFile,
        lane: int,
        clock: Clock = time,
        pread: Pread = os.pread,
        connect: Callable[[], Socket] = connect,
    ) -> None:
        self.clock, self.pread = clock, pread
        self._connect = connect
        self.link: Link | None = None
        """The connection for all ports that are read by netlink; None without one."""
        self._ring = ring
        self._lane = at.lane_at(lane)
        self._ports: dict[PlannedPort, SampledPort] = {}
        self.stride = 1
        self.fast: list[FastEntry] = []
        """The ports that are due at every tick and have one open file per direction, none failing, by device."""
        self.messages: tuple[list[MessageEntry], list[MessageEntry]] = ([], [])
        """The ports that are due at every tick and are read by netlink, with a counter per direction, none failing; for
        even and for odd ticks, see `netlink.SHORT_SEQUENCES`."""
        self.slow: list[SampledPort] = []
        """The others that are due at every tick."""
        self.strided: list[SampledPort] = []
        """The ports that are not due at every tick."""
        self.pack = struct.Struct(at.RECORD_FORMAT).pack_into
        """Stores a record in the `buffer`."""
        self.buffer = ring.words.cast("B")
        self._longest_read_ns = int(MAX_READ * ring.interval_ns)
        self.signals = SignalLoop(ring, lane, clock, pread, self._get_link)

    def apply(self, plan: Plan) -> None:
        """Follow this plan from the next tick on; ports that remain keep their descriptors.

        No file is opened here, so that one that hangs on opening is attributed to its device, like a hung read.
        """
        numbers = {device: number for number, device in enumerate(plan.devices(), 1)}
        for planned in self._ports.keys() - set(plan.ports):
            for source in self._ports.pop(planned).sources:
                source.close()
        for planned in plan.ports:
            port = self._ports.setdefault(
                planned, SampledPort(planned, self._ring.capacity, self.pread, self._get_link)
            )
            port.device_number = numbers[planned.device]
            for source in port.sources:
                if source.vanished:
                    # a new plan means that the fabric changed: the device may have come back
                    source.rest_until_ns = 0
            if port.message is not None:
                # its device may have another index
                port.message.close()
        self.signals.apply(plan)
        if self.link is not None:
            self.link.indices.clear()
            if not self.signals.asks and not any(port.message for port in self._ports.values()):
                self.link.close()
                self.link = None
        # ports are only due at multiples of this
        self.stride = math.gcd(*(planned.stride for planned in plan.ports)) or 1
        self._sort()

    def _sort(self) -> None:
        """Divide the ports anew, each part ordered by device."""
        ports = sorted(self._ports.values(), key=lambda port: (port.device_number, port.planned.slot))
        frequent = [port for port in ports if port.planned.stride == 1]
        self.strided = [port for port in ports if port.planned.stride > 1]
        self.fast, self.messages, self.slow = [], ([], []), []
        for port in frequent:
            whole, position = port.find_whole(), (port.device_number, port.record_bytes)
            if isinstance(whole, Layout):
                assert port.message is not None
                form = whole.size, whole.unpack
                for entries, sequence in zip(self.messages, SHORT_SEQUENCES, strict=True):
                    request = port.message.message.with_sequence(sequence)
                    known = whole.head(sequence), *whole.names, whole.is_swapped
                    entries.append((*position, request, *form, *known, port))
            elif whole:
                transmit, receive = whole
                self.fast.append((*position, transmit, receive, port))
            else:
                self.slow.append(port)

    def _get_link(self) -> Link:
        """The connection, made when it is first needed. Raises OSError."""
        if self.link is None:
            self.link = Link(self._connect)
        return self.link

    def sample(self, tick: int, late_ns: int) -> int:
        """Read every port that is due at this tick, which started `late_ns` after its deadline.

        Returns the monotonic time at which the most frequently sampled ports had been read.
        """
        words, lane = self._ring.words, self._lane
        began = self.clock.monotonic_ns()
        words[lane + at.L_BEGUN] = tick
        words[lane + at.L_HEARTBEAT_NS] = began
        fast = [*(entry[-1] for entry in self.fast), *(entry[-1] for entry in self.messages[0])]
        frequent, strided = [*fast, *self.slow], self.strided
        read = self.read_ports(frequent, tick)
        ended = self.read_ports(strided, tick) if strided else read
        if due := self.signals.due(tick):
            ended = self.signals.read(due, tick, began + self._ring.interval_ns)
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
            whole = port.find_whole()
            self._read_port(port, tick)
            changed |= port.find_whole() != whole
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
        for source in port.sources:
            try:
                source.prepare(self.clock.monotonic_ns())
            except OSError as error:
                self._fail(port, source, error)
            except ValueError:
                self._fail(port, source, NOT_UNDERSTOOD)
        if port.message is None:
            before, between, after, transmit, receive = self._read_files(port)
        else:
            before, between, after, transmit, receive = self._read_message(port, port.message)
        port.read_ns = self.clock.monotonic_ns()
        self._note_status(port, port.read_ns)
        if transmit == receive == at.ABSENT:
            return
        # the record keeps its timestamps even if a read took too long
        transmit, receive = self.doubt(port, (before, between, after), (transmit, receive))
        record = port.record_bytes + tick % self._ring.capacity * (at.RECORD_WORDS * at.WORD)
        mark = tick | port.planned.stride << at.STRIDE_SHIFT
        self.pack(self.buffer, record, before, between, after, transmit, receive, mark)

    def _read_files(self, port: SampledPort) -> tuple[int, int, int, int, int]:
        """The instants before, between and after the reads, and the counters of each direction."""
        sent, received = port.files
        before = self.clock.monotonic_ns()
        transmit = self._read_file(port, sent, before)
        between = self.clock.monotonic_ns()
        receive = self._read_file(port, received, between)
        return before, between, self.clock.monotonic_ns(), transmit, receive

    def _read_message(self, port: SampledPort, source: CounterMessage) -> tuple[int, int, int, int, int]:
        """The same of a message: both counters were read between the first two instants, and the third is the first."""
        before = between = self.clock.monotonic_ns()
        values = at.ABSENT, at.ABSENT
        try:
            if source.ask(before):
                between = self.clock.monotonic_ns()
                values = source.take()
        except OSError as error:
            self._fail(port, source, error)
        except ValueError:
            self._fail(port, source, NOT_UNDERSTOOD)
        return before, between, before, *values

    def doubt(self, port: SampledPort, instants: tuple[int, int, int], values: tuple[int, int]) -> tuple[int, int]:
        """Both counters, ABSENT for a read that took too long."""
        before, between, after = instants
        longest = port.planned.stride * self._longest_read_ns
        transmit = values[0] if between - before <= longest else at.ABSENT
        # of a message, `after` is `before`
        receive = values[1] if abs(after - between) <= longest else at.ABSENT
        if (transmit, receive) != values:
            self._ring.words[port.slot_words + at.S_UNCERTAIN] += 1
        return transmit, receive

    def _note_status(self, port: SampledPort, now_ns: int) -> None:
        """Update the status of the port; a few failures, not enough to pause a file, do not change it."""
        status = port.slot_words + at.S_STATUS
        if any(source.vanished for source in port.sources):
            self._ring.words[status] = at.GONE
        elif any(source.rest_until_ns > now_ns for source in port.sources):
            self._ring.words[status] = at.LEFT_ALONE
        elif not any(source.failures for source in port.sources):
            self._ring.words[status] = at.OK

    def _read_file(self, port: SampledPort, file: CounterFile, now_ns: int) -> int:
        try:
            return file.read(now_ns)
        except OSError as error:
            self._fail(port, file, error)
        except ValueError:
            self._fail(port, file, NOT_UNDERSTOOD)
        return at.ABSENT

    def _fail(self, port: SampledPort, source: Source, error: OSError) -> None:
        number = error.errno or errno.EIO
        source.fail(number, self.clock.monotonic_ns())
        words = self._ring.words
        words[port.slot_words + at.S_ERRORS] += 1
        words[port.slot_words + at.S_LAST_ERRNO] = number
        # the scan finds out whether a port that netlink refuses has to be read from files
        if source.vanished or (source is port.message and source.failures == FAILURES_BEFORE_REST):
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
