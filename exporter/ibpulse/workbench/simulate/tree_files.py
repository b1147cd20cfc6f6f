"""Writes the files of a simulated tree, and notices when they are read."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import shutil
import struct
import time
from pathlib import Path

from ibpulse.agent.sysfs.inventory import SIMULATED_FILE
from ibpulse.base.errors import FabricError
from ibpulse.workbench.simulate.tree import Listing

log = logging.getLogger(__name__)

TOP = ("class", "devices", "bus", "jobs")
# from inotify.h
IN_ACCESS = 0x1
# number of the watch, mask, cookie, length of the name; a watched file has no name
EVENT = struct.Struct("iIII")
# a sampler reads all ports within this time
SETTLE_SECONDS = 0.0002
MOST_EVENTS = 4096


class SimulatedCounterFile:
    """One file that is rewritten through a descriptor held open."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY)
        self._text = b""
        self._length = os.fstat(self._descriptor).st_size

    def write(self, text: str) -> None:
        """Write `text` and a newline at offset 0, unless it is already there.

        A shorter text is first padded with newlines to the length of the old one, so that a reader never sees the new
        digits followed by old ones.
        """
        wanted = text.encode() + b"\n"
        if wanted == self._text:
            return
        os.pwrite(self._descriptor, wanted.ljust(self._length, b"\n"), 0)
        if len(wanted) < self._length:
            os.ftruncate(self._descriptor, len(wanted))
        self._text, self._length = wanted, len(wanted)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def write_listing(root: Path, listing: Listing) -> None:
    """Write every file of the listing, then every link, so that a device appears in its class only when complete."""
    for name, text in listing.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in listing.links.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def replace_text(path: Path, text: str) -> None:
    """Replace the file's text atomically; a reader sees the old text or the new one."""
    if path.read_text() != text:
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text)
        fresh.rename(path)


def remove_listing(root: Path, listing: Listing) -> None:
    """Remove the listing's links, then its files and the directories that this empties."""
    for name in (*reversed(listing.links), *listing.files):
        (root / name).unlink(missing_ok=True)
    parents = {parent for name in listing.files for parent in Path(name).parents[:-1]}
    for parent in sorted(parents, key=lambda path: -len(path.parts)):
        if (root / parent).is_dir() and not any((root / parent).iterdir()):
            (root / parent).rmdir()


def clear_tree(directory: Path) -> None:
    """Create the directory, or empty it of an earlier fabric, and mark it as one.

    Raises FabricError if it holds anything else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not (directory / SIMULATED_FILE).exists():
        raise FabricError(f"{directory} is not empty and holds no simulated fabric: use a new or an empty directory")
    for top in TOP:
        if (directory / top).is_dir():
            shutil.rmtree(directory / top)
    (directory / SIMULATED_FILE).write_text("The tree in this directory is simulated; no device is behind it.\n")


class CounterReads:
    """Notices reads of files by any process with inotify; without inotify it only sleeps."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)
        else:
            log.warning("inotify: %s: reads that are late may show rates above the line rate", self._why())

    def watch(self, path: Path) -> int:
        """Notice reads of this file, too; returns its number, negative if they are not noticed."""
        if self._descriptor < 0:
            return -1
        number: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_ACCESS)
        if number < 0:
            log.warning("inotify: %s: %s", path, self._why())
        return number

    def pause(self, seconds: float) -> set[int]:
        """Sleep, or return early when a file was read; the numbers of those that were since the last call."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return set()
        if self._poll.poll(1000 * seconds):
            time.sleep(min(seconds, SETTLE_SECONDS))
        try:
            events = os.read(self._descriptor, MOST_EVENTS * EVENT.size)
        except BlockingIOError:
            return set()
        return {number for number, mask, *_ in EVENT.iter_unpack(events) if mask & IN_ACCESS}

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _why(self) -> str:
        return os.strerror(ctypes.get_errno())
