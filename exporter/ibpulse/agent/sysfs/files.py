"""Reads small sysfs files as text or as numbers; failures become values, not exceptions."""

from __future__ import annotations

import enum
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.text import natural_key

MAX_FILE_BYTES = 4096
MAX_LINE_BYTES = 256
NO_PMA = "N/A (no PMA)"
ALL_ONES = 2**64 - 1
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV})


class ReadFault(enum.Enum):
    """Why a file has no text: no fault, missing, unreadable, or the driver has no counters."""

    NONE = ""
    MISSING = "missing"
    UNREADABLE = "unreadable"
    NO_PMA = "no PMA"


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file without its line end; empty with a `fault`, which `reason` describes.

    `code` is the error number of a failed read, otherwise 0.
    """

    text: str = ""
    fault: ReadFault = ReadFault.NONE
    reason: str = ""
    code: int = 0


def read_text(path: str) -> Text:
    """Text of the file `path`. Bytes that are not UTF-8 are replaced."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(descriptor, MAX_FILE_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        fault = ReadFault.MISSING if error.errno in GONE else ReadFault.UNREADABLE
        return Text(fault=fault, reason=f"cannot be read: {error.strerror}", code=error.errno or 0)
    text = raw.decode(errors="replace").strip()
    if text == NO_PMA:
        return Text(fault=ReadFault.NO_PMA, reason=f"says '{NO_PMA}': the driver has no counters")
    return Text(text)


def read_value(folder: str, name: str) -> str:
    """Text of the file `name` in `folder`; empty if it cannot be read."""
    return read_text(os.path.join(folder, name)).text


def parse_count(text: str) -> int | None:
    """The unsigned decimal that a counter file holds, or None for any other text.

    With all 64 bits set it is no count: drivers such as ionic show this for a counter that they could not read.
    """
    count = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else ALL_ONES
    return count if count < ALL_ONES else None


def is_utf8(name: str) -> bool:
    """Whether a name from a directory or a link is text; it could not be shown or exported otherwise."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_names(path: str) -> list[str]:
    """Names in the directory `path` in natural order (2 before 10); empty if it cannot be listed.

    Names that are not UTF-8 are left out.
    """
    try:
        return sorted(filter(is_utf8, os.listdir(path)), key=natural_key)
    except OSError:
        return []


def read_inode(path: Path) -> int | None:
    """Inode number of `path` after following links, or None if it does not exist."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def read_link(path: Path) -> str:
    """Target of the symbolic link `path`, or an empty string if it is not a link."""
    try:
        return os.fspath(path.readlink())
    except OSError:
        return ""


def read_link_name(folder: str, name: str) -> str:
    """Last component of the target of the symbolic link `name` in `folder`; empty if it is not a link, or not UTF-8."""
    target = os.path.split(read_link(Path(folder, name)))[1]
    return target if is_utf8(target) else ""


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
        """Read the line. If it is empty or has no end, or cannot be read, the last one stays and `reason` says why."""
        try:
            raw = self._read_bytes()
        except OSError as error:
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
                    return os.pread(self._descriptor, MAX_LINE_BYTES, 0)
            except OSError as error:
                if error.errno not in GONE:
                    raise
            self.close()
        self._descriptor = self._open()
        return os.pread(self._descriptor, MAX_LINE_BYTES, 0)

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
