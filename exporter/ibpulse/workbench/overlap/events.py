"""Reads the events of a Kineto trace in order, in bounded memory: plain JSON or gzip, from an untrusted file.

The list of events is cut into pieces behind an event, and each piece is parsed at once. A piece is cut at a place where
`}`, a comma and `{` follow each other; it parses only if that place is between two events, and otherwise the text is
scanned bracket by bracket. Events that are no JSON are mended or left out; both are counted.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

import orjson

from ibpulse.base.errors import TraceError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import count_text, size_text

Event = dict[str, Any]

PIECE_BYTES, COPY_BYTES = 1 << 16, 1 << 20
"""Larger pieces are parsed more slowly, because their events no longer fit the cache."""
MAX_EVENT_BYTES = 16 << 20
MAX_MEMBER_BYTES = 16 << 20
"""For everything in front of the events, and for everything behind them."""
MAX_OPEN_BYTES = 1 << 20
"""An event that has not ended after this many bytes, and in which another one begins, is damaged."""
MAX_STARTS = 8
_GZIP = b"\x1f\x8b"
_PACKED = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_MEMBERS = ("baseTimeNanoseconds", "distributedInfo", "deviceProperties")
_MARK = b"\xef\xbb\xbf"
_START = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_KEY = rb'\{\s*+"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*+:'
_LIKELY_START = re.compile(_START.pattern + rb"(?=\s*+" + _KEY + rb")")
_BETWEEN = re.compile(rb"\}\s*+,\s*+(?=\{)")
# in a string of JSON the quote would have a backslash
_NEXT_EVENT = re.compile(rb"\}\s*+,\s*+(?=" + _KEY + rb")")
_LIST_END = re.compile(rb'\}\s*+\](?=\s*+,\s*+")')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
# a float has 53 bits, not enough for nanoseconds since 1970, or of a month in microseconds; such times stay text
_FINE_TIME = re.compile(rb'("ts"\s*+:\s*+)([0-9]{12,20}\.[0-9]{1,9})')
_SEPARATORS = b" \t\r\n,"
# a string, an absent value, a comma without one behind it, and any other word
_WORD = re.compile(r'"(?:[^"\\]++|\\.)*+"|:\s*+(?=[,}\]])|,\s*+(?=[,}\]])|[^\s",:{}\[\]]++', re.DOTALL)
_JSON_WORD = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null|-?Infinity|NaN")
_AGAIN = "copy it again from its origin, or export it again"


class TraceFile:
    """A trace as batches of events. `members` has the rest of the file once all batches were read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = ForeignFile(path, TraceError, "trace")
        self.members: dict[str, Any] = {}
        self._count = self._mended = self._left_out = 0
        self._end = self._damaged_members = ""

    def notes(self) -> Iterator[str]:
        """Sentences about what was mended or left out, once all batches were read."""
        if self._mended:
            values = "values such as nan, inf or N/A count as unknown"
            yield f"{self._mended} of {count_text(self._count, 'event')} mended, not valid JSON: {values}"
        if self._left_out:
            yield f"{count_text(self._left_out, 'event')} damaged and left out, beside {self._count} whole ones"
        if self._end:
            yield f"the file {self._end}: only {count_text(self._count, 'event')} in front of that could be read"
        if self._damaged_members:
            yield f"the file {self._damaged_members}: rank, groups or wall time may be missing"

    def batches(self) -> Iterator[list[Event]]:
        """The events in the order of the file, some at a time."""
        with self._opened() as source:
            buffer, alone = self._read_head(source)
            wanted = PIECE_BYTES
            while True:
                fresh = source.read(wanted)
                buffer += fresh
                events, used, closed = self._take(buffer, not fresh)
                if events:
                    self._count += len(events)
                    yield events
                buffer = buffer[used:]
                if closed:
                    if not alone:
                        self._read_tail(buffer, source)
                    break
                if not fresh and not used:
                    self._end = source.fault or "ends early"
                    break
                if len(buffer) > MAX_EVENT_BYTES:
                    size = size_text(MAX_EVENT_BYTES)
                    self._file.refuse(f"has an event of more than {size} after {self._count} events", _AGAIN)
                wanted = PIECE_BYTES if used else max(PIECE_BYTES, len(buffer))
            if not self._count and self._end:
                self._file.refuse(f"{self._end}, without a whole event", _AGAIN)
            if not self._count and self._left_out:
                self._file.refuse(f"is damaged: none of its {self._left_out} events is valid JSON", _AGAIN)

    def copy_with(self, events: Iterable[bytes], out: IO[bytes]) -> None:
        """Copy the file as it is, with events in front of its own."""
        with self._opened() as source:
            rest, _ = self._read_head(source)
            place = source.taken - len(rest)
        with self._opened() as source:
            out.write(source.read(place))
            for event in events:
                out.write(event + b",\n")
            while piece := source.read(COPY_BYTES):
                out.write(piece)

    def _take(self, buffer: bytes, last: bool) -> tuple[list[Event], int, bool]:
        """Whole events at the beginning, the bytes that they take, and whether the list of events ends there.

        `last` says that nothing follows the buffer.
        """
        for between in list(_BETWEEN.finditer(buffer, max(0, len(buffer) - PIECE_BYTES)))[-1:]:
            text = buffer[: between.start() + 1].lstrip(_SEPARATORS)
            try:
                return orjson.loads(b"[%b]" % _FINE_TIME.sub(rb'\1"\2"', text)), between.end(), False
            except ValueError:
                pass
        places, used, closed = _find_elements(buffer)
        events: list[Event] = []
        for begin, end in places:
            event = self._parse(buffer[begin:end])
            if event is not None:
                events.append(event)
            elif _NEXT_EVENT.search(buffer, begin, end):
                return self._skip(buffer, begin, events)
            else:
                self._left_out += 1
        if not closed and (last or len(buffer) - used > MAX_OPEN_BYTES):
            return self._skip(buffer, used, events)
        return events, used, closed

    def _skip(self, buffer: bytes, begin: int, events: list[Event]) -> tuple[list[Event], int, bool]:
        """Like `_take`, behind a damaged event at `begin`: from here on, an event begins where it looks like one."""
        cuts = list(_NEXT_EVENT.finditer(buffer, begin))
        for first, second in pairwise(cuts):
            event = self._parse(buffer[first.end() : second.start() + 1])
            if event is None:
                self._left_out += 1
            else:
                events.append(event)
        end = None if cuts else _LIST_END.search(buffer, begin)
        if cuts or end:
            self._left_out += 1
        return events, cuts[-1].end() if cuts else end.end() if end else begin, end is not None

    def _parse(self, text: bytes) -> Event | None:
        """One event, None if it is damaged."""
        try:
            found, mended = _load(_FINE_TIME.sub(rb'\1"\2"', text))
        except ValueError:
            return None
        self._mended += mended
        return found if isinstance(found, dict) else None

    def _read_head(self, source: _Source) -> tuple[bytes, bool]:
        """Keep everything in front of the events.

        The result is what was read behind the bracket that opens their list, and whether the list is the whole file,
        which the Trace Event Format permits.
        """
        head = self._first_piece(source)
        if head[:1] == b"[":
            return head[1:], True
        while True:
            starts = list(_START.finditer(head))
            for start in starts[:MAX_STARTS]:
                try:
                    self._keep(_load(head[: start.start()] + b'"traceEvents":[]}')[0])
                except ValueError:
                    continue
                return head[start.end() :], False
            more = source.read(max(PIECE_BYTES, len(head)))
            head += more
            if not more or len(starts) >= MAX_STARTS or len(head) > MAX_MEMBER_BYTES + MAX_EVENT_BYTES:
                break
        likely = _LIKELY_START.search(head)
        if likely is None:
            if source.fault:
                self._file.refuse(f"{source.fault}, in front of its events", _AGAIN)
            self._file.refuse("has no list traceEvents", "give a trace that the PyTorch profiler exported (Kineto)")
        self._salvage(head[: likely.start()], "is damaged in front of its events")
        return head[likely.end() :], False

    def _first_piece(self, source: _Source) -> bytes:
        """The beginning of the file, from its first bracket on."""
        head = source.read(PIECE_BYTES).removeprefix(_MARK).lstrip()
        if not head:
            self._file.refuse(source.fault or "is empty", _AGAIN if source.fault else "export it again")
        for sign, program in _PACKED.items():
            if head.startswith(sign):
                self._file.refuse(f"is compressed with {program}", "unpack it, or compress it with gzip")
        if head[:1] not in b"{[":
            self._file.refuse("is not a JSON object", "give a trace that the PyTorch profiler exported")
        return head

    def _read_tail(self, rest: bytes, source: _Source) -> None:
        """Keep everything behind the events."""
        tail = rest + source.read(MAX_MEMBER_BYTES)
        if _START.search(tail):
            self._file.refuse("has two lists traceEvents", "keep one of them")
        if len(tail) > MAX_MEMBER_BYTES:
            self._salvage(tail, f"has more than {size_text(MAX_MEMBER_BYTES)} behind its events")
            return
        try:
            self._keep(_load(b'{"end":0' + tail)[0])
            self._damaged_members = self._damaged_members or source.fault
        except ValueError:
            self._salvage(tail, source.fault or "ends early or is damaged behind its events")

    def _salvage(self, text: bytes, problem: str) -> None:
        """Keep the members of a damaged text that are whole."""
        self._damaged_members = self._damaged_members or problem
        shown, members = text.decode("utf-8", "replace"), {}
        for name in _MEMBERS:
            found = re.search(rf'"{name}"\s*+:\s*+', shown)
            if found:
                with suppress(ValueError, RecursionError):
                    members[name] = json.JSONDecoder(strict=False).raw_decode(shown, found.end())[0]
        self._keep(members)

    def _keep(self, members: dict[str, Any]) -> None:
        # the rest may hold names of users and paths
        for name in _MEMBERS[:2]:
            if name in members:
                self.members[name] = members[name]
        devices = members.get(_MEMBERS[2])
        if isinstance(devices, list):
            self.members["devices"] = len(devices)

    @contextmanager
    def _opened(self) -> Iterator[_Source]:
        with self._file.opened() as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            yield _Source(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw)


class _Source:
    """The bytes of a file up to its end, or to a fault of its compression."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.taken, self.fault = 0, ""

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and not self.fault:
            try:
                # unlike read(), it loses nothing in front of a fault
                piece = self._file.read1(missing)  # type: ignore[attr-defined]
            except EOFError:
                self.fault = "is truncated"
                break
            except (zlib.error, gzip.BadGzipFile):
                self.fault = "is damaged: it cannot be decompressed to its end"
                break
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        self.taken += size - missing
        return b"".join(pieces)


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


def _load(text: bytes) -> tuple[Any, bool]:
    """The value of a JSON text, and whether it was mended.

    Profilers also write infinity, nan, N/A, control characters and bytes that are not UTF-8, which JSON excludes.

    Raises:
        ValueError: it is no JSON even so.
    """
    try:
        return orjson.loads(text), False
    except ValueError:
        pass
    shown = text.decode("utf-8", "replace")
    try:
        try:
            return json.loads(shown, strict=False), True
        except ValueError:
            return json.loads(_WORD.sub(_mend, shown), strict=False), True
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _mend(word: re.Match[str]) -> str:
    """A word of JSON as it is, and null for a value that is none."""
    text = word[0]
    if text[0] == ",":
        return ""
    if text[0] == ":":
        return ": null"
    return text if text[0] == '"' or _JSON_WORD.fullmatch(text) else "null"
