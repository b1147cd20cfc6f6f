"""Initramfs archives (cpio, newc). A kernel unpacks several of them, one after the other, over each other.

It must not know what is in them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

# The kernel wants each header and each body on a multiple of 4; 512 keeps concatenated archives apart cleanly.
FIELD_ALIGNMENT = 4
ARCHIVE_ALIGNMENT = 512


class Archive:
    """One archive being written. All members belong to root; parents come before their children by themselves."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._members = 0
        self._folders: set[str] = set()

    def add_file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add_parents(name)
        self._write(name, stat.S_IFREG | mode, data)

    def add_tree(self, root: Path, prefix: str = "", keep: Callable[[str], bool] = lambda name: True) -> None:
        """Add everything under `root`, below `prefix`. What `keep` refuses, by its name under root, is left out."""
        for folder, folders, files in os.walk(root):
            base = Path(folder).relative_to(root)
            folders[:] = sorted(each for each in folders if keep(str(base / each)))
            for each in [*folders, *sorted(files)]:
                if keep(str(base / each)):
                    self._add_path(root / base / each, str(PurePosixPath(prefix) / base / each))

    def close(self) -> None:
        """Write the trailer and pad, so that another archive may follow."""
        self._write("TRAILER!!!", 0, b"")
        self._pad(ARCHIVE_ALIGNMENT)

    def _add_path(self, path: Path, name: str) -> None:
        mode = path.lstat().st_mode
        self._add_parents(name)
        if stat.S_ISREG(mode):
            self._write(name, mode, path.read_bytes())
        elif stat.S_ISLNK(mode):
            self._write(name, mode, str(path.readlink()).encode())
        elif stat.S_ISDIR(mode) and name not in self._folders:
            self._folders.add(name)
            self._write(name, mode, b"")

    def _add_parents(self, name: str) -> None:
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            if str(parent) not in self._folders:
                self._folders.add(str(parent))
                self._write(str(parent), stat.S_IFDIR | 0o755, b"")

    def _write(self, name: str, mode: int, data: bytes) -> None:
        self._members += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device x 2, special device x 2, name size, checksum
        numbers = (self._members, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        self._file.write(b"070701" + b"".join(b"%08x" % number for number in numbers) + encoded)
        self._pad(FIELD_ALIGNMENT)
        self._file.write(data)
        self._pad(FIELD_ALIGNMENT)

    def _pad(self, alignment: int) -> None:
        self._file.write(bytes(-self._file.tell() % alignment))
