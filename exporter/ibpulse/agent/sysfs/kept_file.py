"""Reads the first line of a small sysfs file again and again through a descriptor that stays open."""

from __future__ import annotations

import os

from ibpulse.agent.sysfs.files import GONE, SHORTAGE, ReadFault

LONGEST_LINE_BYTES = 256


class KeptFile:
    """The first line of a file, read at offset 0 of a descriptor that stays open while the file exists.

    Of several paths, the first that exists is the file. Not thread-safe. A read that hangs may outlive everything else
    that knows the file; therefore the descriptor is closed with the last reference.
    """

    def __init__(self, *paths: str) -> None:
        self.line = ""
        """The last complete line; empty while there is no file."""
        self.reason = ""
        """Why the last read got no complete line; empty if it did."""
        self._paths = paths
        self._raw = b""
        self._descriptor: int | None = None

    def read(self) -> ReadFault:
        """Read the line. If it is empty or has no end, or cannot be read, the last one stays and `reason` says why.

        Raises OSError only for a `SHORTAGE`.
        """
        try:
            raw = self._read_bytes()
        except OSError as error:
            if error.errno in SHORTAGE:
                raise
            self.reason = f"cannot be read: {error.strerror}"
            self.close()
            if error.errno in GONE:
                self.line, self._raw = "", b""
                return ReadFault.MISSING
            return ReadFault.UNREADABLE
        self.reason = ""
        if raw != self._raw:
            line, end, _ = raw.partition(b"\n")
            if end and line.strip():
                self._raw, self.line = raw, line.decode(errors="replace").strip()
            else:
                self.reason = "is empty or has no line end"
        return ReadFault.NONE

    def _read_bytes(self) -> bytes:
        if self._descriptor is not None:
            try:
                # a file without a link to it was replaced by another one of the same name
                if os.fstat(self._descriptor).st_nlink:
                    return os.pread(self._descriptor, LONGEST_LINE_BYTES, 0)
            except OSError as error:
                if error.errno not in GONE:
                    raise
            self.close()
        self._descriptor = self._open()
        return os.pread(self._descriptor, LONGEST_LINE_BYTES, 0)

    def _open(self) -> int:
        for path in self._paths[:-1]:
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
        return os.open(self._paths[-1], os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor; the next read opens the file anew."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
