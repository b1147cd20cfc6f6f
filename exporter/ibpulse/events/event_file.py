"""The events on disk: a text file of lines with a checksum, written by one process and read by any number.

The first line is `ibpulse-events 1`, with the version of the format. Each other line is one event: the CRC-32 of its
JSON in eight hexadecimal digits, a space, the JSON. A reader skips lines that do not match their checksum. The writer
appends; when old events are due to go, it writes a new file and renames it.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from ibpulse.events.event import Event, from_json, to_json

log = logging.getLogger(__name__)

NAME = "events"
VERSION = 1
HEAD = b"ibpulse-events "
# a longer file is not read: the log's own bounds keep it far below
MAX_FILE_BYTES = 64_000_000


def encode_event(event: Event) -> bytes:
    """The line of an event."""
    body = json.dumps(to_json(event), separators=(",", ":"), ensure_ascii=True).encode()
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

    Raises:
        ValueError: the file is not an event log of this version.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return []
    head, _, rest = raw.partition(b"\n")
    if head != HEAD + b"%d" % VERSION:
        raise ValueError(f"event log {path} is not of version {VERSION}: it begins with {head[:40]!r}")
    return [event for line in rest.split(b"\n") if (event := decode_event(line)) is not None]


class EventFile:
    """The one writer of an event file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind = False
        """Whether events are missing in the file because it could not be written; `rewrite` makes up for it."""
        self.records = 0
        self._descriptor: int | None = None
        self._size = 0

    def open(self) -> list[Event]:
        """Open the file, repair its end, and return its events. A file of another version is set aside.

        A file that cannot be used is reported once in the log; events are then kept in memory only until `rewrite`
        succeeds.
        """
        try:
            events = read_events(self.path)
        except ValueError as error:
            aside = self.path.with_name(f"{self.path.name}.old")
            log.warning("%s; keeping it as %s and beginning a new one", error, aside)
            events = []
            self._set_aside(aside)
        except OSError as error:
            self._fail(error)
            return []
        self.rewrite(events)
        return events

    def append(self, event: Event) -> None:
        """Add an event to the file; if that fails, the file is `behind`."""
        if self._descriptor is None or self.behind:
            self.behind = True
            return
        line = encode_event(event)
        try:
            if os.pwrite(self._descriptor, line, self._size) != len(line):
                raise OSError(28, os.strerror(28))
        except OSError as error:
            self._cut()
            self._fail(error)
            return
        self._size += len(line)
        self.records += 1

    def rewrite(self, events: Iterable[Event]) -> None:
        """Replace the file by one with these events; if that fails, the old file stays and is `behind`."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        lines = [encode_event(event) for event in events]
        text = HEAD + b"%d\n" % VERSION + b"".join(lines)
        try:
            descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            try:
                _write_all(descriptor, text)
                fresh.replace(self.path)
            except OSError:
                os.close(descriptor)
                fresh.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._fail(error)
            return
        self.close()
        self._descriptor, self._size, self.records = descriptor, len(text), len(lines)
        if self.behind:
            log.info("event log %s can be written again", self.path)
        self.behind = False

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _cut(self) -> None:
        """Remove a line that was written in part."""
        try:
            os.ftruncate(self._descriptor or -1, self._size)
        except OSError:
            pass  # its checksum is wrong, so readers skip it

    def _set_aside(self, aside: Path) -> None:
        try:
            self.path.replace(aside)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.behind:
            log.warning(
                "event log %s cannot be written: %s; keeping events in memory until it can", self.path, error.strerror
            )
        self.behind = True


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
