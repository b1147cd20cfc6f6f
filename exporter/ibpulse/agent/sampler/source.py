"""What counters of a port are read from, files or a message of netlink, and what happens when that fails.

Standard library only.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from ibpulse.agent.sampler.plan import PlannedPort
from ibpulse.agent.sysfs.netlink import Link, PortMessage
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at

# A counter has at most 20 digits and a newline.
READ_BYTES = 24
FAILURES_BEFORE_REST = 3
REST_NS = 60 * SECOND_NS
# The driver refuses to read this file; retrying soon is pointless (infiniband-sysfs: every PMA failure is EINVAL).
REFUSED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EBADMSG})
# The file's device is gone; only a newly opened file can be read again.
VANISHED = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.ESTALE})

NOT_UNDERSTOOD = OSError(errno.EBADMSG, "not understood")

Pread = Callable[[int, int, int], bytes]


class Source(ABC):
    """What counters of a port are read from, with its handling of failures.

    `planned` tells of which device; another one may have its name by now.
    """

    def __init__(self, planned: PlannedPort) -> None:
        self._folder, self._inode = Path(planned.folder), planned.inode
        self.failures = 0
        self.rest_until_ns = 0
        self.vanished = False

    @abstractmethod
    def open(self) -> None:
        """Open it; raises OSError, also if another device has the name by now."""

    @abstractmethod
    def is_open(self) -> bool:
        """Whether it can be read at once."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def prepare(self, now_ns: int) -> None:
        """Open it unless it is open or paused, so that opening does not count towards the read time."""
        if not self.is_open() and now_ns >= self.rest_until_ns:
            self.open()

    def rests(self, now_ns: int) -> bool:
        """Whether it is paused or not open."""
        return now_ns < self.rest_until_ns or not self.is_open()

    def succeed(self) -> None:
        """Record a read."""
        self.failures = self.rest_until_ns = 0
        self.vanished = False

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

    def _check_device(self) -> None:
        # what was opened stays with its device through a renaming, so it is the right one if the name is its own now
        if self._inode and self._folder.stat().st_ino != self._inode:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


class CounterFile(Source):
    """The counter files of one direction of a port."""

    def __init__(self, planned: PlannedPort, paths: tuple[str, ...], pread: Pread = os.pread) -> None:
        super().__init__(planned)
        self.paths = paths
        self._pread = pread
        self.descriptors: list[int] = []

    def open(self) -> None:
        """Open all files. Raises OSError."""
        self.close()
        try:
            for path in self.paths:
                self.descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self._check_device()
        except OSError:
            # with only some of the files open, a partial sum would pass for the counter
            self.close()
            raise

    def is_open(self) -> bool:
        """Whether the files are open."""
        return bool(self.descriptors)

    def close(self) -> None:
        """Close the descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def read(self, now_ns: int) -> int:
        """The counter, or ABSENT while the files are paused or not open. Raises OSError or ValueError."""
        if self.rests(now_ns):
            return at.ABSENT
        value = sum(int(self._pread(descriptor, READ_BYTES, 0)) for descriptor in self.descriptors)
        if not 0 <= value < at.ABSENT:
            raise ValueError(value)
        self.succeed()
        return value


class CounterMessage(Source):
    """Counters of the port of this number, which one message has, by the paths of their files.

    `get_link` returns the connection that all messages share, or raises OSError.
    """

    def __init__(
        self,
        planned: PlannedPort,
        get_link: Callable[[], Link],
        port: int,
        transmit: tuple[str, ...],
        receive: tuple[str, ...] = (),
    ) -> None:
        super().__init__(planned)
        self._get_link = get_link
        self._link: Link | None = None
        names = (tuple(Path(path).name for path in paths) for paths in (transmit, receive))
        self.message = PortMessage(planned.device, port, *names)
        self.count = len(transmit) + len(receive)

    def open(self) -> None:
        """Find the device's index. Raises OSError or ValueError."""
        self.close()
        link = self._get_link()
        self.message.resolve(link)
        self._check_device()
        self._link = link

    def is_open(self) -> bool:
        """Whether the index is known."""
        return self._link is not None

    def close(self) -> None:
        """Forget the index; the connection belongs to all ports."""
        self._link = None

    def ask(self, now_ns: int) -> bool:
        """Let the kernel ask the device; false while that is paused. Raises OSError or ValueError."""
        if self.rests(now_ns):
            return False
        assert self._link is not None
        self.message.ask(self._link)
        return True

    def take(self) -> tuple[int, int]:
        """Both counters as they were during the last `ask`. Raises OSError or ValueError."""
        assert self._link is not None
        values = self.message.take(self._link)
        if max(values) >= at.ABSENT:
            raise ValueError(values)
        self.succeed()
        return values

    def take_each(self) -> list[int]:
        """Each counter as it was during the last `ask`. Raises OSError or ValueError."""
        assert self._link is not None
        values = self.message.take_each(self._link)
        self.succeed()
        return values

    def fail(self, number: int, now_ns: int) -> None:
        """Record a failed read."""
        if number == errno.EINVAL and self.failures == 0 and self._link is not None:
            # the kernel's answer if no device has the index: find it before the next read
            self._link.indices.clear()
            self.close()
        super().fail(number, now_ns)
