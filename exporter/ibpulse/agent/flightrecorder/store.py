"""The directory of captures: file names, listing, and removal of the oldest when a quota is reached."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base import owned_files
from ibpulse.base.errors import CaptureError
from ibpulse.base.units import format_size
from ibpulse.core.captures import CaptureName, parse_name
from ibpulse.core.defaults import CAPTURE_AFTER_NS, CAPTURE_BEFORE_NS, MAX_CAPTURE_BYTES, MIN_FREE_BYTES

TEMPORARY = ".tmp"
MAX_CAPTURES = 100


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The directory of captures, the default window of each, and the quotas for all of them.

    A new capture is refused while `max_pending` are waiting. `min_free_bytes` stay free on the disk. `host` is the
    node's name in the files. `writer_seconds` limits the time for writing one capture.
    """

    directory: Path
    host: str
    before_ns: int = CAPTURE_BEFORE_NS
    after_ns: int = CAPTURE_AFTER_NS
    max_count: int = MAX_CAPTURES
    max_bytes: int = MAX_CAPTURE_BYTES
    min_free_bytes: int = MIN_FREE_BYTES
    max_pending: int = 4
    writer_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Stored:
    """One complete capture."""

    name: CaptureName
    size_bytes: int


class CaptureStore:
    """The directory of captures, with its quotas.

    `directory` is that of the options at first, and later the one at or below it that `owned_files` returns.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        # of the directory that was checked
        self._identity: tuple[int, ...] = ()
        self.directory = options.directory

    def path(self, name: CaptureName) -> Path:
        """The path of a capture, whether it exists or not."""
        return self.directory / str(name)

    def scan(self) -> list[Stored]:
        """The complete captures, oldest first; empty if the directory does not exist yet.

        Raises:
            CaptureError: the directory cannot be read.
        """
        try:
            self._find_directory()
            with os.scandir(self.directory) as entries:
                found = [stored for entry in entries if (stored := look_at(entry)) is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refusal("cannot be read", error) from error
        return sorted(found, key=lambda stored: stored.name)

    def open(self, name: CaptureName) -> int:
        """Open a capture to read it; returns a descriptor.

        Raises:
            FileNotFoundError: there is no such capture.
            OSError: it cannot be read.
        """
        self._find_directory()
        return owned_files.open_regular(self.path(name))

    def _find_directory(self) -> None:
        """Check the directory, unless it is the one that was checked before."""
        if not self._identity or self._identity != _identify(self.directory):
            self.directory = owned_files.find_directory(self._options.directory)
            self._identity = _identify(self.directory)

    def prepare(self) -> None:
        """Create the directory and remove leftovers of killed writers.

        Raises:
            CaptureError: it cannot be created or written, or another user can replace its files.
        """
        try:
            self.directory = owned_files.make_directory(self._options.directory)
            self._identity = _identify(self.directory)
            for leftover in self.directory.glob(f"*.parquet{TEMPORARY}"):
                self._clean(leftover)
        except OSError as error:
            raise self._refusal("cannot be used", error) from error

    def _clean(self, leftover: Path) -> None:
        try:
            # a writer of the previous daemon may still be running
            if time.time() - leftover.lstat().st_mtime > self._options.writer_seconds:
                leftover.unlink()
        except FileNotFoundError:
            pass  # it was running, and has just finished

    def make_room(self, size_bytes: int) -> list[CaptureName]:
        """Remove the oldest captures until one more of about this size fits; return the removed names.

        Raises:
            CaptureError: it would not fit even into the empty directory; nothing is removed.
        """
        stored = self.scan()
        free_bytes = self._free_bytes()
        for count in range(len(stored) + 1):
            going, staying = stored[:count], stored[count:]
            short = self._too_much(staying, size_bytes, free_bytes + _total_bytes(going))
            if not short:
                for each in going:
                    self.remove(each.name)
                return [each.name for each in going]
        raise CaptureError(short)

    def remove(self, name: CaptureName) -> bool:
        """Remove a capture; return whether it existed.

        Raises:
            CaptureError: it cannot be removed.
        """
        try:
            self._find_directory()
            self.path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refusal("cannot be written", error) from error
        return True

    def discard(self, name: CaptureName) -> None:
        """Remove the unfinished file of a failed writer."""
        try:
            Path(f"{self.path(name)}{TEMPORARY}").unlink()
        except OSError:
            pass  # there is no file, or the disk has failed

    def _free_bytes(self) -> int:
        try:
            self._find_directory()
            status = os.statvfs(self.directory)
        except OSError as error:
            raise self._refusal("cannot be used", error) from error
        return status.f_bavail * status.f_frsize

    def _too_much(self, stored: Sequence[Stored], size_bytes: int, free_bytes: int) -> str:
        """The reason why one more capture of this size does not fit, or an empty string."""
        options = self._options
        if len(stored) >= options.max_count:
            return f"{options.max_count} captures are stored, which is the maximum"
        if _total_bytes(stored) + size_bytes > options.max_bytes:
            limit = format_size(options.max_bytes)
            return f"a capture of about {_megabytes(size_bytes)} exceeds capture.max-bytes, {limit}; raise it"
        if free_bytes < size_bytes + options.min_free_bytes:
            limit = format_size(options.min_free_bytes)
            return (
                f"capture.dir: {self.directory} could have {_megabytes(free_bytes)} free; a capture of about "
                f"{_megabytes(size_bytes)} would leave less than capture.min-free, {limit}; free space or lower it"
            )
        return ""

    def _refusal(self, what: str, error: OSError) -> CaptureError:
        return CaptureError(
            f"capture.dir: {self.directory} {what}: {error.strerror}; choose a directory that belongs to root or to "
            f"user {os.geteuid()}, or change its owner"
        )


def look_at(entry: os.DirEntry[str]) -> Stored | None:
    """The capture in a directory entry; None for other files and for a capture that was just removed."""
    name = parse_name(entry.name)
    if name is None:
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Stored(name, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _identify(directory: Path) -> tuple[int, ...]:
    status = directory.lstat()
    return status.st_dev, status.st_ino, status.st_uid, status.st_mode


def _total_bytes(stored: Sequence[Stored]) -> int:
    return sum(each.size_bytes for each in stored)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
