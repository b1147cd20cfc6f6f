"""Writes the files of a simulated tree."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ibpulse.errors import FabricError
from ibpulse.simulate.tree import Listing

TOP = ("class", "devices", "bus")


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


def clear_tree(directory: Path, marker: Path) -> None:
    """Create the directory, or empty it of an earlier fabric, which is recognised by its marker.

    Raises FabricError if it holds anything else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()) and not marker.exists():
        raise FabricError(f"{directory} is not empty and holds no simulated fabric: use a new or an empty directory")
    for top in TOP:
        if (directory / top).is_dir():
            shutil.rmtree(directory / top)
