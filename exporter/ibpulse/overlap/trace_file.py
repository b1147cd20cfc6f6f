"""Reads the events of a Kineto trace in order, in bounded memory: plain JSON or gzip, from an untrusted file.

The list of events is cut into pieces behind an event, and each piece is parsed at once. A piece is cut at a place where
`}`, a comma and `{` follow each other; it parses only if that place is between two events, and otherwise the text is
scanned bracket by bracket.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import orjson

from ibpulse.base.files import ForeignFile
from ibpulse.errors import TraceError
from ibpulse.text import size_text

Event = dict[str, Any]

PIECE_BYTES = 1 << 16
"""Larger pieces are slower, because their events no longer fit the cache."""
MOST_EVENT_BYTES = 16 << 20
MOST_MEMBER_BYTES = 16 << 20
"""For everything in front of the events, and for everything behind them."""
MOST_STARTS = 8
_GZIP = b"\x1f\x8b"
_START = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_BETWEEN = re.compile(rb"\}\s*+,\s*+(?=\{)")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
# a float has 53 bits, not enough for nanoseconds since 1970, or of a month in microseconds; such times stay text
_FINE_TIME = re.compile(rb'("ts"\s*+:\s*+)([0-9]{12,20}\.[0-9]{1,9})')
_SEPARATORS = b" \t\r\n,"
_AGAIN = "copy it again from its origin, or export it again"


class TraceFile:
    """A trace as batches of events. `members` has the rest of the file once all batches were read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = ForeignFile(path, TraceError, "trace")
        self.members: dict[str, Any] = {}
        self._count = 0

    def batches(self) -> Iterator[list[Event]]:
        """The events in the order of the file, some at a time.

        Raises:
            TraceError: the file cannot be read, is no trace, or is truncated or damaged.
        """
        with self._opened() as file:
            buffer, wanted = self._read_head(file), PIECE_BYTES
            while True:
                fresh = file.read(wanted)
                buffer += fresh
                events, used, closed = self._take(buffer)
                if events:
                    self._count += len(events)
                    yield events
                buffer = buffer[used:]
                if closed:
                    self._read_tail(buffer, file)
                    return
                if not fresh and not used:
                    self._file.refuse(f"ends early, after {self._count} events", _AGAIN)
                if len(buffer) > MOST_EVENT_BYTES:
                    size = size_text(MOST_EVENT_BYTES)
                    self._file.refuse(f"has an event of more than {size} after {self._count} events", _AGAIN)
                wanted = PIECE_BYTES if used else max(PIECE_BYTES, len(buffer))

    def _take(self, buffer: bytes) -> tuple[list[Event], int, bool]:
        """Whole events at the beginning, the bytes that they take, and whether the list of events ends there."""
        for between in list(_BETWEEN.finditer(buffer, max(0, len(buffer) - PIECE_BYTES)))[-1:]:
            text = buffer[: between.start() + 1].lstrip(_SEPARATORS)
            try:
                return orjson.loads(b"[%b]" % _FINE_TIME.sub(rb'\1"\2"', text)), between.end(), False
            except ValueError:
                pass
        places, used, closed = _find_elements(buffer)
        return [self._parse(buffer[begin:end]) for begin, end in places], used, closed

    def _parse(self, text: bytes) -> Event:
        """One event."""
        try:
            found = _load(_FINE_TIME.sub(rb'\1"\2"', text))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self._file.refuse(f"is damaged: event {self._count + 1} or one soon after it is not valid JSON", _AGAIN)
        return found

    def _read_head(self, file: IO[bytes]) -> bytes:
        """Keep everything in front of the events, and return the bytes behind the bracket that opens their list."""
        head = file.read(PIECE_BYTES)
        if not head.strip():
            self._file.refuse("is empty", "export it again")
        if head.lstrip()[:1] != b"{":
            self._file.refuse("is not a JSON object", "give a trace that the PyTorch profiler exported")
        while True:
            starts = list(_START.finditer(head))
            for start in starts[:MOST_STARTS]:
                try:
                    self._keep(_load(head[: start.start()] + b'"traceEvents":[]}'))
                except ValueError:
                    continue
                return head[start.end() :]
            more = file.read(max(PIECE_BYTES, len(head)))
            head += more
            if not more or len(starts) >= MOST_STARTS or len(head) > MOST_MEMBER_BYTES + MOST_EVENT_BYTES:
                self._file.refuse("has no list traceEvents", "give a trace that the PyTorch profiler exported (Kineto)")

    def _read_tail(self, rest: bytes, file: IO[bytes]) -> None:
        """Keep everything behind the events."""
        tail = rest + file.read(MOST_MEMBER_BYTES)
        if len(tail) > MOST_MEMBER_BYTES:
            self._file.refuse(f"has more than {size_text(MOST_MEMBER_BYTES)} behind its events", _AGAIN)
        try:
            members = _load(b'{"end":0' + tail)
        except ValueError:
            self._file.refuse(f"ends early or is damaged behind its {self._count} events", _AGAIN)
        if "traceEvents" in members:
            self._file.refuse("has two lists traceEvents", "export it again")
        self._keep(members)

    def _keep(self, members: dict[str, Any]) -> None:
        # the rest may hold names of users and paths
        for name in ("baseTimeNanoseconds", "distributedInfo"):
            if name in members:
                self.members[name] = members[name]
        devices = members.get("deviceProperties")
        if isinstance(devices, list):
            self.members["devices"] = len(devices)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with self._file.opened() as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            try:
                yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw
            except EOFError:
                self._file.refuse(f"is truncated, after {self._count} events", _AGAIN)
            except (zlib.error, gzip.BadGzipFile):
                self._file.refuse(f"is damaged: it cannot be decompressed after {self._count} events", _AGAIN)


def _find_elements(buffer: bytes) -> tuple[list[tuple[int, int]], int, bool]:
    """Places of whole objects at the beginning of a list, the bytes up to the last one, and whether the list ends.

    If it does, the bytes include its closing bracket.
    """
    places: list[tuple[int, int]] = []
    depth = begin = used = 0
    for token in _TOKEN.finditer(buffer):
        sign = token[0]
        if sign == b'"':
            break  # the end of this string is not in the buffer
        if sign in (b"{", b"["):
            if not depth:
                begin = token.start()
            depth += 1
        elif sign in (b"}", b"]"):
            if not depth:
                return places, token.end() if sign == b"]" else used, True
            depth -= 1
            if not depth:
                used = token.end()
                places.append((begin, used))
    return places, used, False


def _load(text: bytes) -> Any:
    """The value of a JSON text. Profilers also write infinity and bytes that are not UTF-8, which JSON excludes.

    Raises:
        ValueError: it is no JSON even so.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
