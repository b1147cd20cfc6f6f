"""Which files of a tree any process opens or changes, as the kernel's inotify tells it. It judges nothing.

Listing a directory is not told: only files can cost a firmware command.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

IN_OPEN = 0x20
IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_ISDIR = 0x40000000
IN_Q_OVERFLOW = 0x4000
CHANGES = IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE

_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Touched:
    """Watches every directory below `root` from the moment it is made; `look` says what happened since."""

    def __init__(self, root: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._opened: set[str] = set()
        self._changed: set[str] = set()
        for folder, _, _ in os.walk(root):
            watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_OPEN | CHANGES)
            assert watch > 0, os.strerror(ctypes.get_errno())
            self._folders[watch] = os.path.relpath(folder, root)

    def look(self) -> tuple[frozenset[str], frozenset[str]]:
        """Files opened and files changed so far, by their paths below the root. The kernel's queue must not be full."""
        while events := self._read():
            place = 0
            while place < len(events):
                watch, mask, _, length = _HEADER.unpack_from(events, place)
                name = events[place + _HEADER.size : place + _HEADER.size + length].rstrip(b"\0").decode()
                place += _HEADER.size + length
                assert not mask & IN_Q_OVERFLOW
                if not mask & IN_ISDIR:
                    kind = self._opened if mask & IN_OPEN else self._changed
                    kind.add(os.path.join(self._folders[watch], name))
        return frozenset(self._opened), frozenset(self._changed)

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return b""
