"""Reads a directory of small files that root or the daemon's user wrote, bounded in files, bytes and time."""

from __future__ import annotations

import errno
import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base import owned_files
from ibpulse.base.text import escape_controls, group_remarks, natural_key
from ibpulse.core.jobs.claims import MAX_TEXT, Found

MAX_LISTED = 10_000
# of computing; a directory takes milliseconds
MAX_SECONDS = 1.0
# a file system that fails says nothing about the jobs
FAILING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EHOSTDOWN)
# nor does a want of descriptors
FAILING += (errno.EMFILE, errno.ENFILE)
STALE = "it is older than the last boot of this node, so its job has ended: remove it."


@dataclass(frozen=True, slots=True)
class Form:
    """The files to read: the form of their names with an example, and how many and how long they may be."""

    names: re.Pattern[str]
    example: str
    most_files: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class SmallFile:
    """One file, as of when it was last written (wall time in ns)."""

    name: str
    content: bytes
    written_ns: int


class JobDirectory:
    """What one reading of a directory found; `files` are in natural order, without those that may not be read.

    `exists` is false if there is no such directory, and `readable` if none of its files may be read. `whole` is false
    if reading was given up: it took too long, the file system failed, or there are too many files; with a few too many,
    it is `cut` and has the first. `remarks` are pairs of the name of a file and a text. With something `unread`, jobs
    may be missing.
    """

    def __init__(self, directory: Path, form: Form, seconds: float = MAX_SECONDS) -> None:
        """Read the directory."""
        self.files: list[SmallFile] = []
        self.remarks: list[tuple[str, str]] = []
        self.exists = self.readable = self.whole = True
        self.unread = self.cut = False
        self._directory, self._form = directory, form
        self._refusal = ""
        try:
            descriptor = owned_files.open_trusted_directory(directory)
        except OSError as error:
            self._refuse(error)
            return
        try:
            # the time of this thread: a slow file system or a busy machine does not shorten it
            self._read(descriptor, time.thread_time() + seconds)
        except OSError as error:
            if error.errno not in FAILING:
                raise
            self._give_up(f"cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)

    def leave_out(self, name: str, text: str) -> None:
        """Remark that a file, or a part of it, was not understood."""
        self.unread = True
        self.remarks.append((name, text))

    def found(self, found: Found) -> Found:
        """What a source found in these files, with the remarks about the directory; `found` has its claims."""
        named = [(escape_controls(name[:MAX_TEXT]), text) for name, text in self.remarks]
        remarks = (*(f"{self._directory}: {remark}" for remark in group_remarks(named)), *found.remarks)
        if self._refusal:
            remarks = (self._refusal, *remarks)
        cut = self.cut or found.cut
        return Found(
            found.claims,
            remarks,
            present=self.exists,
            knows=self.readable,
            whole=self.whole and not cut,
            cut=self.whole and cut,
            unread=self.unread or found.unread,
        )

    def _give_up(self, reason: str) -> None:
        self.whole = False
        self._refusal = f"{self._directory} {reason}; showing the jobs known before."

    def _refuse(self, error: OSError) -> None:
        if error.errno in FAILING:
            self._give_up(f"cannot be read: {error.strerror}")
            return
        self.readable = False
        if error.errno == errno.ENOENT:
            self.exists = False
        else:
            self.unread = True
            self._refusal = (
                f"{self._directory} is not read: {error.strerror}; it and its files have to belong to root or to user "
                f"{os.geteuid()}, and no other user may be able to write to them."
            )

    def _read(self, descriptor: int, deadline: float) -> None:
        names = self._choose(descriptor)
        for name in names:
            if time.thread_time() > deadline:
                self._give_up("takes too long to read")
                return
            try:
                self._read_file(name, descriptor)
            except OSError as error:
                if error.errno in FAILING:
                    raise
                # a file that was removed meanwhile is no fault
                if error.strerror != os.strerror(errno.ENOENT):
                    self.leave_out(name, f"ignored: {error.strerror}.")

    def _choose(self, descriptor: int) -> list[str]:
        with os.scandir(descriptor) as entries:
            listed = [entry.name for entry in itertools.islice(entries, MAX_LISTED)]
            more = next(entries, None) is not None
        names = sorted((name for name in listed if self._form.names.fullmatch(name)), key=natural_key)
        # programs that write a file and rename it begin the name with a dot
        odd = [name for name in listed if not name.startswith(".") and not self._form.names.fullmatch(name)]
        for name in sorted(odd):
            self.leave_out(name, f"ignored, because its name is not like {self._form.example}.")
        self.cut = len(names) > self._form.most_files
        for name in names[self._form.most_files :]:
            self.leave_out(name, f"ignored, because only {self._form.most_files} files are read.")
        if more:
            # the files of jobs may be among those that were not listed
            self._give_up(f"has more than {MAX_LISTED} files, which is too many to read")
        return names[: self._form.most_files] if self.whole else []

    def _read_file(self, name: str, descriptor: int) -> None:
        opened = owned_files.open_trusted(self._directory / name, descriptor)
        try:
            written_ns = os.fstat(opened).st_mtime_ns
            content = os.read(opened, self._form.most_bytes + 1)
        finally:
            os.close(opened)
        if len(content) > self._form.most_bytes:
            self.leave_out(name, f"ignored, because it is longer than {self._form.most_bytes} bytes.")
            return
        self.files.append(SmallFile(name, content, written_ns))


def boot_time_ns() -> int:
    """Wall time of the last boot of this node in ns, by today's wall clock."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
