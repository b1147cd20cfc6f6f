"""The events on disk: a text file of lines with a checksum, written by one process and read by any number.

The first line is `ibpulse-events 1`, with the version of the format. Each other line is one event: the CRC-32 of its
JSON in eight hexadecimal digits, a space, the JSON. A reader skips lines that do not match their checksum. The writer
appends; to drop old events, it writes a new file and renames it.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ibpulse.base import owned_files
from ibpulse.core.events.event import Event, from_json, to_json

log = logging.getLogger(__name__)

NAME = "events"
VERSION = 1
HEAD = b"ibpulse-events "
# the log's own bounds keep lines and files far below these
MAX_LINE_BYTES = 1_000_000
MAX_FILE_BYTES = 64_000_000


def encode_event(event: Event) -> bytes:
    """The line of an event.

    Raises:
        ValueError: its details are not values of JSON.
        TypeError: as ValueError.
    """
    body = json.dumps(to_json(event), separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode_event(line: bytes) -> Event | None:
    """The event of a line without its line end; None if it is damaged."""
    checksum, _, body = line.partition(b" ")
    if len(checksum) != 8 or checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        return from_json(json.loads(body))
    except (ValueError, RecursionError):
        return None


def read_events(path: Path) -> list[Event]:
    """The intact events of a file in the order in which they were written; none if it does not exist.

    Of a file longer than `MAX_FILE_BYTES`, only the end is read.

    Raises:
        ValueError: the file is not an event log of this version.
        OSError: it cannot be read.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return []
    # opening a pipe would wait for a writer
    if not stat.S_ISREG(mode):
        raise ValueError(f"event log {path} is not a regular file")
    with open(owned_files.open_to_read(path), "rb") as file:
        head = file.readline(len(HEAD) + 20).rstrip(b"\n")
        if head != HEAD + b"%d" % VERSION:
            raise ValueError(f"event log {path} is not of version {VERSION}: it begins with {head!r}")
        file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - MAX_FILE_BYTES))
        return [event for line in _read_lines(file) if (event := decode_event(line)) is not None]


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The remaining lines without their ends; of a line that is too long, only the beginning."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line.rstrip(b"\n")
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


class EventFile:
    """The one writer of an event file.

    Nothing here raises `OSError`: a failure is reported once in the program's log, until writing succeeds again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind = False
        """Whether the last attempt to write failed."""
        self.records = 0
        """The number of events in the file."""
        self._descriptor: int | None = None
        self._size = 0
        self._line_end = b""

    def open(self) -> list[Event]:
        """Open the file, remove damaged lines, and return its events.

        A file of another version, or one that cannot be read, is renamed to `events.old`. If no new file can be written
        on a full disk, the old one is continued.
        """
        try:
            events = read_events(self.path)
        except ValueError as error:
            self._set_aside(str(error))
            events = []
        except OSError as error:
            self._set_aside(f"event log {self.path} cannot be read: {error.strerror}")
            events = []
        if not self.rewrite(events):
            self._continue(len(events))
        return events

    @property
    def is_writable(self) -> bool:
        """Whether there is a file to append to: it was opened and has not been deleted since."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def append(self, event: Event) -> bool:
        """Add an event to the file, as a whole or not at all. Returns whether it is in the file."""
        line = self._line_end + encode_event(event)
        if self._descriptor is None or not self.is_writable:
            self.behind = True
            return False
        try:
            _write_all(self._descriptor, line, self._size)
        except OSError as error:
            self._cut()
            self._fail(error)
            return False
        self._size += len(line)
        self._line_end = b""
        self.records += 1
        self._succeed()
        return True

    def rewrite(self, events: Iterable[Event]) -> bool:
        """Replace the file by one with these events; if that fails, the old file stays. Returns whether it is new."""
        lines = [encode_event(event) for event in events]
        text = HEAD + b"%d\n" % VERSION + b"".join(lines)
        try:
            with owned_files.replacing(self.path) as fresh:
                _write_all(fresh, text, 0)
            descriptor = owned_files.open_to_write(self.path)
        except OSError as error:
            self._fail(error)
            return False
        self.close()
        self._descriptor, self._size, self._line_end, self.records = descriptor, len(text), b"", len(lines)
        self._succeed()
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _continue(self, records: int) -> None:
        """Open the existing file to append to it."""
        try:
            descriptor = owned_files.open_to_write(self.path)
        except OSError:
            return  # reported by `rewrite` already
        self._descriptor, self._size, self.records = descriptor, os.fstat(descriptor).st_size, records
        # an unfinished last line would otherwise swallow the next one
        self._line_end = b"\n"

    def _cut(self) -> None:
        """Remove a line that was written in part."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            self.close()  # `rewrite` makes a new file

    def _set_aside(self, reason: str) -> None:
        log.warning("%s; keeping it as %s.old and beginning a new one", reason, self.path)
        try:
            self.path.replace(f"{self.path}.old")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.behind:
            log.warning(
                "event log %s cannot be written: %s; events are kept in memory and written once ring.dir allows it",
                *(self.path, error.strerror),
            )
        self.behind = True

    def _succeed(self) -> None:
        if self.behind:
            log.info("event log %s can be written again", self.path)
        self.behind = False


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
