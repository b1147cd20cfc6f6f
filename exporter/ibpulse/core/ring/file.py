"""The ring as a memory-mapped file: creates and opens it, assigns slots, reads and writes its header.

Standard library only, because the sampler process imports it.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ibpulse.base import owned_files
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import RingError
from ibpulse.core.ring import layout as at
from ibpulse.core.signals import Signal

GIVEN_UP_NS = 60_000_000_000
"""A slot that a port has left is not used again for this time; samplers have long followed their plans by then."""


class RingFile:
    """A memory-mapped ring file; `words` is its whole content as unsigned 64-bit words."""

    def __init__(
        self, path: Path, *, writable: bool = True, clock: Clock = time, descriptor: int | None = None
    ) -> None:
        """Map an existing ring; its file is `descriptor` if that is given, as that at `path` may have been deleted.

        Raises:
            RingError: the file is missing, is not a ring, or has a different version.
        """
        self.path, self.clock = path, clock
        try:
            if descriptor is None:
                descriptor = owned_files.open_to_write(path) if writable else owned_files.open_to_read(path)
        except OSError as error:
            raise RingError(f"ring {path} cannot be opened: {error.strerror}; is `ibpulse serve` running?") from error
        self._descriptor = descriptor
        try:
            self.interval_ns, self.capacity, self.signal_capacity = self._check_header()
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            length = at.file_bytes(self.capacity, self.signal_capacity)
            self._map = mmap.mmap(self._descriptor, length, access=access)
        except OSError as error:
            os.close(self._descriptor)
            raise RingError(
                f"ring {path} cannot be mapped into memory: {error.strerror}; set ring.dir to a directory on tmpfs"
            ) from error
        except RingError:
            os.close(self._descriptor)
            raise
        self.words = memoryview(self._map).cast("Q")

    @property
    def descriptor(self) -> int:
        """The open file, for processes that inherit it."""
        return self._descriptor

    def _check_header(self) -> tuple[int, int, int]:
        """Interval and both capacities, after validating the header."""
        size = os.fstat(self._descriptor).st_size
        if size < at.RECORD_TABLE * at.WORD:
            self._refuse(f"is {size} bytes long, shorter than a ring's header")
        header = memoryview(os.pread(self._descriptor, at.H_CREATED_WALL_NS * at.WORD, 0)).cast("Q")
        magic, version, interval_ns, capacity, signal_capacity = header
        if magic != at.MAGIC:
            self._refuse("is not a ring file (bad magic number)")
        if version != at.VERSION:
            self._refuse(f"has version {version}, but this program reads version {at.VERSION}")
        if not interval_ns or not capacity or size != at.file_bytes(capacity, signal_capacity):
            self._refuse("has a damaged header")
        return interval_ns, capacity, signal_capacity

    def _refuse(self, reason: str) -> NoReturn:
        raise RingError(f"ring {self.path} {reason}; delete it, it only holds the last minutes of samples")

    @classmethod
    def create(
        cls, path: Path, interval_ns: int, capacity: int, clock: Clock = time, signal_capacity: int = 0
    ) -> RingFile:
        """Create an empty ring in place of any file at `path`; processes that have the old file mapped keep it.

        It holds `capacity` samples and `signal_capacity` readings of the signals of each port.

        Raises:
            RingError: the directory is missing, read-only or full.
        """
        try:
            owned_files.make_missing(path.parent)
            with owned_files.replacing(path) as descriptor:
                os.ftruncate(descriptor, at.file_bytes(capacity, signal_capacity))
                # makes a full file system an error here instead of a bus error at the first tick
                os.posix_fallocate(descriptor, 0, at.RECORD_TABLE * at.WORD)
                header = [at.MAGIC, at.VERSION, interval_ns, capacity, signal_capacity, clock.time_ns()]
                os.pwrite(descriptor, b"".join(word.to_bytes(at.WORD, sys.byteorder) for word in header), 0)
        except OSError as error:
            raise RingError(
                f"ring {path} cannot be created: {error.strerror}; "
                "set ring.dir to a writable directory, preferably on tmpfs"
            ) from error
        return cls(path, clock=clock)

    @classmethod
    def open_or_create(
        cls, path: Path, interval_ns: int, capacity: int, clock: Clock = time, signal_capacity: int = 0
    ) -> RingFile:
        """The ring at `path` with its history if it matches these settings, otherwise a new one."""
        try:
            ring = cls(path, clock=clock)
        except RingError:
            return cls.create(path, interval_ns, capacity, clock, signal_capacity)
        if (ring.interval_ns, ring.capacity, ring.signal_capacity) == (interval_ns, capacity, signal_capacity):
            return ring
        ring.close()
        return cls.create(path, interval_ns, capacity, clock, signal_capacity)

    def close(self) -> None:
        """Unmap the file. Arrays that view it keep it mapped until they are freed."""
        # a reader's array may still refer to it
        with suppress(BufferError):
            self.words.release()
            self._map.close()
        os.close(self._descriptor)

    # segments of the wall clock

    def segments(self) -> list[tuple[int, int]]:
        """(first tick, shift) of the last segments, oldest first; `tick - shift` is wall time in intervals."""
        count = self.words[at.H_SEGMENTS]
        # the oldest entry is skipped: the next one overwrites it, possibly right now
        return [self._segment(number) for number in range(max(0, count - at.SEGMENT_COUNT + 1), count)]

    def _segment(self, number: int) -> tuple[int, int]:
        index = at.SEGMENT_TABLE + number % at.SEGMENT_COUNT * at.SEGMENT_WORDS
        return self.words[index], at.signed(self.words[index + 1])

    def last_shift(self) -> int | None:
        """Shift of the newest segment, or None before the first sample."""
        count = self.words[at.H_SEGMENTS]
        return self._segment(count - 1)[1] if count else None

    def begin_segment(self, first_tick: int, shift: int) -> None:
        """Record that from `first_tick` on, wall time is `tick - shift` intervals."""
        count = self.words[at.H_SEGMENTS]
        index = at.SEGMENT_TABLE + count % at.SEGMENT_COUNT * at.SEGMENT_WORDS
        self.words[index] = first_tick
        self.words[index + 1] = at.unsigned(shift)
        self.words[at.H_SEGMENTS] = count + 1

    def latest_tick(self) -> int:
        """The newest tick completed by any sampler, 0 in an empty ring."""
        return self._newest(at.L_TICK)

    def latest_begun_tick(self) -> int:
        """The newest tick for which any sampler may have written a record, completed or not."""
        return max(self._newest(at.L_TICK), self._newest(at.L_BEGUN))

    def _newest(self, which: int) -> int:
        end = at.LANE_TABLE + at.LANE_COUNT * at.LANE_WORDS
        return max(self.words[at.LANE_TABLE + which : end : at.LANE_WORDS].tolist())

    # slots

    def slots(self) -> dict[str, int]:
        """Slots of the ports in the ring, by port name."""
        end = at.slot_at(at.SLOT_COUNT)
        assigned = self.words[at.SLOT_TABLE + at.S_ASSIGNED : end : at.SLOT_WORDS].tolist()
        return {self.slot_name(slot): slot for slot, word in enumerate(assigned) if word}

    def slot_name(self, slot: int) -> str:
        """Name of a slot's port, such as `mlx5_0:1`."""
        # a damaged name is that of no port, so its slot is left for a new one
        return self._slot_text(slot, at.S_NAME, at.NAME_BYTES)

    def slot_device(self, slot: int) -> str:
        """The identity of the device whose samples a slot holds; empty if nothing is known."""
        return self._slot_text(slot, at.S_DEVICE, at.DEVICE_BYTES)

    def _slot_text(self, slot: int, which: int, length: int) -> str:
        begin = at.slot_at(slot) + which
        return self.words[begin : begin + length // at.WORD].tobytes().rstrip(b"\0").decode(errors="replace")

    def slot_word(self, slot: int, which: int) -> int:
        """One word of a slot's block."""
        return self.words[at.slot_at(slot) + which]

    def assign(self, name: str, scale: int, stride: int, device: str = "", *, anew: bool = False) -> int:
        """The slot of a port: its previous slot with its history, a free one, or that of the port unseen for longest.

        `device` is the identity of its device. With `anew`, that is another one than before, so the port begins anew.

        Raises:
            RingError: the file system has no space for the port's records, or the name is too long.
        """
        known = self.slots()
        old = known.get(name)
        if old is not None and self.slot_word(old, at.S_SCALE) == scale and not anew:
            self._describe(old, scale, stride, device)
            return old
        slot = self._free_slot(known)
        self._clear(slot, name)
        self._describe(slot, scale, stride, device)
        if old is not None and old != slot:
            self.words[at.slot_at(old) + at.S_ASSIGNED] = 0
            self.words[at.slot_at(old) + at.S_LAST_SEEN_WALL_NS] = self.clock.time_ns()
        return slot

    def _describe(self, slot: int, scale: int, stride: int, device: str) -> None:
        if device != self.slot_device(slot):
            raw = device.encode()[: at.DEVICE_BYTES].ljust(at.DEVICE_BYTES, b"\0")
            self.words[at.slot_at(slot) + at.S_DEVICE : at.slot_at(slot + 1)] = memoryview(raw).cast("Q")
        begin = at.slot_at(slot)
        self.words[begin + at.S_SCALE] = scale
        self.words[begin + at.S_STRIDE] = stride
        self.words[begin + at.S_LAST_SEEN_WALL_NS] = self.clock.time_ns()
        self.words[begin + at.S_ASSIGNED] = 1

    def _free_slot(self, known: dict[str, int]) -> int:
        taken = set(known.values())
        free = [slot for slot in range(at.SLOT_COUNT) if slot not in taken]
        # a sampler may still write to a slot that was given up: records in another scale, or of another device
        latest_ns = self.clock.time_ns() - GIVEN_UP_NS
        rested = (slot for slot in free if self.slot_word(slot, at.S_LAST_SEEN_WALL_NS) <= latest_ns)
        oldest = min(free or taken, key=lambda slot: self.slot_word(slot, at.S_LAST_SEEN_WALL_NS))
        return next(rested, oldest)

    def _clear(self, slot: int, name: str) -> None:
        encoded = name.encode()
        if len(encoded) > at.NAME_BYTES:
            raise RingError(f"port name {name!r} is longer than {at.NAME_BYTES} bytes")
        self._allocate(name, at.records_at(slot, self.capacity), at.records_at(slot + 1, self.capacity))
        if self.signal_capacity:
            self._allocate(name, self.signals_at(slot), self.signals_at(slot + 1))
        self.forget_signals(slot)
        words = at.slot_at(slot)
        self.words[words : words + at.SLOT_WORDS] = memoryview(
            bytes(at.S_NAME * at.WORD) + encoded.ljust(at.NAME_BYTES + at.DEVICE_BYTES, b"\0")
        ).cast("Q")
        first = at.records_at(slot, self.capacity) + at.R_TICK
        last = at.records_at(slot + 1, self.capacity)
        self.words[first : last : at.RECORD_WORDS] = memoryview(bytes(self.capacity * at.WORD)).cast("Q")

    def _allocate(self, name: str, first: int, end: int) -> None:
        """Take space for words of a port. Raises RingError."""
        length = (end - first) * at.WORD
        try:
            os.posix_fallocate(self._descriptor, first * at.WORD, length)
        except OSError as error:
            raise RingError(
                f"ring {self.path} has no space for port {name} ({length} bytes): {error.strerror}; "
                "give ring.dir more space or shorten sampler.history"
            ) from error

    # signals

    def signals_at(self, slot: int) -> int:
        """Word index of the head of a slot's signals."""
        return at.signals_at(slot, self.capacity, self.signal_capacity)

    def signals(self, slot: int) -> tuple[Signal, ...]:
        """The signals whose readings a slot holds; none if its port has none."""
        if not self.signal_capacity:
            return ()
        head = self.signals_at(slot)
        # the file may be damaged
        count = min(self.words[head + at.N_SIGNALS], at.SIGNAL_COUNT)
        return tuple(self._signal(head + at.N_NAMES + n * at.NAME_WORDS) for n in range(count))

    def _signal(self, begin: int) -> Signal:
        width = self.words[begin + at.N_WIDTH]
        name = self.words[begin : begin + at.N_WIDTH].tobytes().rstrip(b"\0").decode(errors="replace")
        return Signal(name, width % at.STOPS, width >= at.STOPS)

    def assign_signals(self, slot: int, signals: Sequence[Signal], asked: int) -> int:
        """The number of the set of these signals in a slot; readings of another set are dropped.

        The first `asked` are read before the others.
        """
        head = self.signals_at(slot)
        known = self.words[head + at.N_ASKED], self.signals(slot)
        if known != (asked, tuple(signals)):
            self.forget_signals(slot)
            for number, signal in enumerate(signals):
                begin = head + at.N_NAMES + number * at.NAME_WORDS
                name = signal.name.encode().ljust(at.SIGNAL_NAME_BYTES, b"\0")
                self.words[begin : begin + at.N_WIDTH] = memoryview(name).cast("Q")
                self.words[begin + at.N_WIDTH] = signal.bits + at.STOPS * signal.stops
            self.words[head + at.N_ASKED], self.words[head + at.N_SIGNALS] = asked, len(signals)
        return self.words[head + at.N_SET]

    def slow_readings(self, slot: int) -> int:
        """How many readings of a slot's signals hung, with those that took too long unless they are under a hundredth.

        These may only have waited for the processor, and the longer a sampler runs, the more of them there are.
        """
        if not self.signal_capacity:
            return 0
        head = self.signals_at(slot)
        slow, hung, readings = (self.words[head + each] for each in (at.N_SLOW, at.N_HUNG, at.N_READINGS))
        return hung + (slow if 100 * slow >= readings else 0)

    def forget_signals(self, slot: int) -> None:
        """Drop the readings of the signals of a slot."""
        if self.signal_capacity and self.words[self.signals_at(slot) + at.N_SIGNALS]:
            head = self.signals_at(slot)
            self.words[head + at.N_SIGNALS] = self.words[head + at.N_REST_UNTIL_NS] = 0
            self.words[head + at.N_SET] = self.words[head + at.N_SET] + 1 & at.SET_MASK
