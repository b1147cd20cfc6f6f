"""Reads the signals of the ports after their bytes: ports take turns over the ticks.

A slow driver loses signals, not bytes: a reading begins only if the last one would fit into what is left of the tick,
and a port whose reading took long rests. One that hangs is treated like a hung read of bytes; its signals then rest.
Standard library only.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence

from ibpulse.agent.sampler.plan import Plan, PlannedPort
from ibpulse.agent.sampler.source import READ_BYTES, CounterFile, CounterMessage, Pread, Source
from ibpulse.agent.sysfs.netlink import Link
from ibpulse.base.clocks import Clock
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile

# A reading that took more than this part of an interval makes its port rest, for so many times as long at first: a
# single one may only have waited for the processor.
MAX_PART = 1 / 4
RESTS = 20
HUNG_REST_NS = 60 * SECOND_NS
MAX_REST_NS = 600 * SECOND_NS
# No tick reads the signals of two ports, unless the setting asks for shorter times than this.
USUAL_NS = SECOND_NS // 10
# A reading is up to six commands of the firmware, a sample is two. With as many ticks in between, signals cost half of
# what the bytes cost.
FIRMWARE_SHARE = 6


# Descriptors, and the other arguments of `pread` for each.
Reads = tuple[list[int], list[int], list[int]]


class SignalPort:
    """The signals of a port, what has them, and where their readings go."""

    def __init__(self, planned: PlannedPort, head: int, pread: Pread, get_link: Callable[[], Link]) -> None:
        signals = planned.signals
        assert signals is not None
        asked = signals.files[: signals.asked] if signals.message else ()
        self.planned, self.head, self.mark = planned, head, signals.set << at.SET_SHIFT
        self.message = CounterMessage(planned, get_link, signals.message, asked) if asked else None
        files = [*filter(None, [signals.refresh]), *signals.files[len(asked) :]]
        self.files = [CounterFile(planned, (path,), pread) for path in files]
        self.sources: list[Source] = [*filter(None, [self.message]), *self.files]
        self.refreshes = bool(signals.refresh)
        self.own = len(files) - (len(signals.files) - signals.asked)
        """Where the files of `counters/` begin."""
        self.unused = (0,) * (at.SIGNAL_COUNT - len(signals.files))
        self.device_number = 0
        self.rounds = 1
        """The port is read once in so many of its turns."""
        self.took_ns = self.slow = 0
        self.whole = False
        """Whether all is open and nothing fails."""
        self.asked_files: Reads = [], [], []
        self.own_files: Reads = [], [], []

    def find_whole(self) -> None:
        """Note the descriptors of a port of which nothing fails."""
        self.whole = all(source.is_open() and not source.failures for source in self.sources)
        descriptors = [descriptor for file in self.files for descriptor in file.descriptors] if self.whole else []
        self.asked_files, self.own_files = (
            (each, [READ_BYTES] * len(each), [0] * len(each))
            for each in (descriptors[: self.own], descriptors[self.own :])
        )


class SignalLoop:
    """The signals of the ports of a plan."""

    def __init__(self, ring: RingFile, lane: int, clock: Clock, pread: Pread, get_link: Callable[[], Link]) -> None:
        self._ring, self._lane, self._now = ring, at.lane_at(lane), clock.monotonic_ns
        self._pread, self._get_link = pread, get_link
        self._ports: dict[PlannedPort, SignalPort] = {}
        self._capacity, self._longest_ns = ring.signal_capacity, MAX_PART * ring.interval_ns
        self._buffer, self._pack = ring.words.cast("B"), struct.Struct(at.SIGNAL_FORMAT).pack_into
        self.turns: list[list[SignalPort]] = []
        """The ports whose turn it is at each tick modulo the length; empty without signals."""

    @property
    def asks(self) -> bool:
        """Whether any port is asked by netlink."""
        return any(port.message for port in self._ports.values())

    def apply(self, plan: Plan) -> None:
        """Follow this plan; ports that remain keep their descriptors."""
        ports = [port for port in plan.ports if port.signals and plan.signal_ticks]
        for planned in self._ports.keys() - set(ports):
            for source in self._ports.pop(planned).sources:
                source.close()
        numbers = {device: number for number, device in enumerate(plan.devices(), 1)}
        for planned in ports:
            port = self._ports.get(planned) or self._begin(planned)
            self._ports[planned], port.device_number = port, numbers[planned.device]
            for source in port.sources:
                source.rest_until_ns *= not source.vanished
            if port.message is not None:
                # its device may have another index
                port.message.close()
                port.whole = False
        ticks = plan.signal_ticks
        if ticks * self._ring.interval_ns >= USUAL_NS:
            ticks = max(ticks, len(ports))
        self.turns = [[self._ports[each] for each in ports[first::ticks]] for first in range(ticks if ports else 0)]
        for planned in ports:
            stride = planned.stride
            self._ports[planned].rounds = -(-stride * FIRMWARE_SHARE // ticks) if stride > 1 else 1

    def _begin(self, planned: PlannedPort) -> SignalPort:
        head, words = self._ring.signals_at(planned.slot), self._ring.words
        port = SignalPort(planned, head, self._pread, self._get_link)
        if words[head + at.N_READING]:
            # the sampler before this one was killed while it read them
            words[head + at.N_READING] = 0
            words[head + at.N_HUNG] += 1
            words[head + at.N_REST_UNTIL_NS] = self._now() + _lengthen(HUNG_REST_NS, words[head + at.N_HUNG] - 1)
        return port

    def due(self, tick: int) -> list[SignalPort]:
        """The ports whose turn it is."""
        return self.turns[tick % len(self.turns)] if self.turns else []

    def read(self, ports: Sequence[SignalPort], tick: int, until_ns: int) -> int:
        """Read the signals of the ports whose turn it is, as far as that ends by `until_ns`; returns the time after it.

        Ports that are not sampled at every tick are left out in some of their turns.
        """
        now, words, turn = self._now(), self._ring.words, tick // len(self.turns)
        for port in ports:
            head = port.head
            # in the ring, because another process may read the device from now on
            rest_ns = words[head + at.N_REST_UNTIL_NS] - now
            if 0 < rest_ns <= MAX_REST_NS or turn % port.rounds:
                continue
            if now + port.took_ns > until_ns:
                # the last one may have been an exception, so one is tried some time
                port.took_ns -= port.took_ns >> 3
                continue
            words[self._lane + at.L_DEVICE] = port.device_number
            words[head + at.N_READING] = 1
            ended = self._read_whole(port, now, tick) if port.whole else self._read(port, tick)
            words[head + at.N_READING] = 0
            port.took_ns, now = ended - now, ended
            if port.took_ns > self._longest_ns:
                words[head + at.N_SLOW] += 1
                # after the rest, one is tried, however long the last one took
                words[head + at.N_REST_UNTIL_NS] = now + _lengthen(RESTS * port.took_ns, port.slow)
                port.slow, port.took_ns = port.slow + 1, 0
            else:
                port.slow = 0
        return now

    def _read(self, port: SignalPort, tick: int) -> int:
        """Read the signals of a port into the ring; returns the time after it."""
        for source in port.sources:
            if not source.is_open():
                self._open(source)
        before = self._now()
        values = self._ask(port.message) if port.message is not None else []
        values += self._read_files(port.files[: port.own])[port.refreshes :]
        between = self._now()
        values += self._read_files(port.files[port.own :])
        after = self._now()
        if min(values) != at.ABSENT:
            self._store(port, (before, between, after), values, tick)
        port.find_whole()
        return after

    def _read_whole(self, port: SignalPort, before: int, tick: int) -> int:
        """The same from `before` on if nothing fails, in as few steps as possible: as in `steady`, caches are cold."""
        now, pread = self._now, self._pread
        try:
            if port.message is not None:
                port.message.ask(before)
                values = port.message.take_each()
            else:
                values = [*map(int, map(pread, *port.asked_files))]
                if port.refreshes:
                    del values[0]
            between = now()
            values += map(int, map(pread, *port.own_files))
            after = now()
            self._store(port, (before, between, after), values, tick)
        except (OSError, ValueError, struct.error):
            return self._read(port, tick)
        return after

    def _store(self, port: SignalPort, instants: tuple[int, int, int], values: list[int], tick: int) -> None:
        words, head = self._ring.words, port.head
        count = words[head + at.N_READINGS]
        place = head + at.SIGNAL_HEAD_WORDS + count % self._capacity * at.SIGNAL_WORDS
        self._pack(self._buffer, place * at.WORD, *instants, *values, *port.unused, tick | port.mark)
        words[head + at.N_READINGS] = count + 1

    def _open(self, source: Source) -> None:
        try:
            source.prepare(self._now())
        except (OSError, ValueError) as error:
            self._fail(source, error)

    def _ask(self, message: CounterMessage) -> list[int]:
        try:
            if message.ask(self._now()):
                return message.take_each()
        except (OSError, ValueError) as error:
            self._fail(message, error)
        return [at.ABSENT] * message.count

    def _read_files(self, files: Sequence[CounterFile]) -> list[int]:
        now, values = self._now(), []
        for file in files:
            try:
                values.append(file.read(now))
            except (OSError, ValueError) as error:
                self._fail(file, error)
                values.append(at.ABSENT)
        return values

    def _fail(self, source: Source, error: OSError | ValueError) -> None:
        number = error.errno if isinstance(error, OSError) else errno.EBADMSG
        source.fail(number or errno.EIO, self._now())


def _lengthen(rest_ns: int, times: int) -> int:
    """A rest that doubles each time."""
    return min(rest_ns << min(times, 10), MAX_REST_NS)
