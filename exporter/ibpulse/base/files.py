"""Reads foreign files, bounded, and writes results whole; refusals name file, problem and way out."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from ibpulse.base.errors import IbpulseError
from ibpulse.base.text import size_text

SEPARATORS = (b",", b"{", b"[", b"\n")
# parsed, they take up to 400 MB
MAX_VALUES = 5_000_000


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file of unknown origin.

    Refusals raise `error`. They begin with `name` and the path; `access` is the way out of a file that cannot be read.
    With `regular`, a pipe or a device is refused, not waited for.
    """

    path: Path
    error: Callable[[str], IbpulseError]
    name: str = ""
    access: str = "check its name and its permissions"
    regular: bool = False

    def refuse(self, problem: str, way_out: str, line: int | None = None) -> NoReturn:
        """Refuse the file, at a line if one is given.

        Raises:
            IbpulseError: always.
        """
        place = f"{self.path}:{line}" if line else str(self.path)
        subject = f"{self.name} {place}" if self.name else f"{place}:"
        raise self.error(f"{subject} {problem}; {way_out}") from None

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The open file; an error of the system while it is read is a refusal.

        Raises:
            IbpulseError: it cannot be read.
        """
        try:
            with open(self.path, "rb", opener=self._open) as file:
                if self.regular and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self.refuse("is not a regular file", self.access)
                yield file
        except OSError as error:
            self.refuse(f"cannot be read: {error.strerror or error}", self.access)

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK * self.regular)

    def read(self, max_bytes: int, shorten: str = "shorten it", max_values: int = MAX_VALUES) -> bytes:
        """The content; `shorten` is the way out for a file with more than `max_bytes` or `max_values`.

        Values are counted before anything parses them, by what separates them in JSON, YAML and CSV: each takes up to a
        hundred times the memory of its text.

        Raises:
            IbpulseError: it cannot be read, or is too large.
        """
        with self.opened() as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            self.refuse(f"is larger than {size_text(max_bytes)}", shorten)
        if sum(map(content.count, SEPARATORS)) > max_values:
            self.refuse(f"has more than {max_values} values", shorten)
        return content

    def read_text(self, max_bytes: int, shorten: str = "shorten it", max_values: int = MAX_VALUES) -> str:
        """The content as text, without a byte order mark.

        Raises:
            IbpulseError: it cannot be read, is too large, or is not UTF-8.
        """
        try:
            return self.read(max_bytes, shorten, max_values).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.refuse(f"byte {error.start} is not UTF-8", "save the file as UTF-8 text")


FileSignature = tuple[int, int, int, int] | None
"""Values that change with the content of a file; None if it is unreadable."""


def sign_file(path: Path) -> FileSignature:
    """The signature of a file at this moment."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_whole(output: Path, write: Callable[[Path], object], error: Callable[[str], IbpulseError]) -> None:
    """Let `write` fill a temporary file next to the output, then replace the output with it.

    Raises:
        IbpulseError: the file cannot be written; made by `error`.
    """
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        write(temporary)
        temporary.replace(output)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise error(f"output {output} cannot be written: {reason}; name another file") from fault
    finally:
        # if writing is impossible, there is nothing to remove either
        with suppress(OSError):
            temporary.unlink()
