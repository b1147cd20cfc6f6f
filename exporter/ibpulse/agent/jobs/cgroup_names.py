"""Lists cgroups by name, and reads their small files, for a bounded time; a cgroup that vanishes meanwhile is none."""

from __future__ import annotations

import errno
import itertools
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ibpulse.base import owned_files
from ibpulse.base.text import natural_key
from ibpulse.core.jobs.claims import Found

# each is a file system of version 1; Slurm uses the first four
CONTROLLERS = ("freezer", "cpuset", "memory", "devices", "rdma", "pids", "cpu,cpuacct", "cpu", "systemd")
# hierarchies of version 1, each with a tree of its own, and a tree of systemd's without controllers
OTHER_TREES = frozenset(
    (*CONTROLLERS, "blkio", "cpuacct", "hugetlb", "misc", "net_cls", "net_cls,net_prio", "net_prio")
)
OTHER_TREES |= {"perf_event", "unified"}
# users make cgroups of any name below theirs
OF_USERS = "user.slice"
MAX_LISTED = 10_000
MAX_DEPTH = 32
MAX_CHOSEN = 1000
MAX_BYTES = 16_384
# of computing; thousands of cgroups take a tenth of it
MAX_SECONDS = 1.0
# what the kernel answers about a cgroup that was removed, or about a file in place of a directory
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)
LATE = "{folder}: reading the cgroups takes too long; showing the jobs known before."
MANY = "{folder} has more than {most} entries, which is too many to read; showing the jobs known before."
CLOSED = "{folder} cannot be listed: {reason}; showing the jobs known before."


class Cgroups:
    """One reading of the cgroups; `fault` says what could not be read, so that cgroups may be missing from it."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        # the time of this thread, so that a busy machine does not shorten it
        self._deadline = time.thread_time() + seconds
        self.fault = ""

    def matching(self, folder: Path, names: re.Pattern[str]) -> list[Path]:
        """Paths of the directories in a folder with names of this form, in natural order, at most `MAX_CHOSEN`.

        Links are not followed. Empty if the folder cannot be listed.
        """
        found = [name for name in self._list_all(folder) if names.fullmatch(name)]
        if len(found) > MAX_CHOSEN:
            self.give_up(folder, MAX_CHOSEN)
        return [folder / name for name in sorted(found, key=natural_key)[:MAX_CHOSEN]]

    def others(self, folder: Path, names: re.Pattern[str]) -> list[Path]:
        """Paths of the directories in a folder whose names are not of this form, in natural order."""
        found = [name for name in self._list_all(folder) if not names.fullmatch(name)]
        return [folder / name for name in sorted(found, key=natural_key)]

    def search(self, root: Path, names: re.Pattern[str]) -> Iterator[Path]:
        """Paths of all directories below a folder with names of this form, without those below one of them.

        Left out are the cgroups that a user made, and those of sessions.
        """
        owners = {0, os.geteuid(), *(each.st_uid for each in _status(root))}
        pending = deque([(str(root), 0)])
        while pending:
            folder, depth = pending.popleft()
            for name in sorted(self._list_all(folder)):
                path = f"{folder}/{name}"
                if names.fullmatch(name):
                    yield Path(path)
                elif depth == MAX_DEPTH or name == OF_USERS or (depth == 0 and name in OTHER_TREES):
                    continue
                # the kernel counts two links of a directory without others in it
                elif any(each.st_uid in owners and each.st_nlink != 2 for each in _status(path)):
                    pending.append((path, depth + 1))

    def _list_all(self, folder: Path | str) -> list[str]:
        """The names of all directories in a folder; links are not followed."""
        if self._is_late(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                found = [
                    entry.name for entry in itertools.islice(entries, MAX_LISTED) if entry.is_dir(follow_symlinks=False)
                ]
                more = next(entries, None) is not None
        except OSError as error:
            if error.errno not in VANISHED:
                self.fault = self.fault or CLOSED.format(folder=folder, reason=error.strerror)
            return []
        if more:
            self.give_up(folder, MAX_LISTED)
        return found

    def give_up(self, folder: Path | str, most: int) -> None:
        """Note that a folder has more than so many entries."""
        self.fault = self.fault or MANY.format(folder=folder, most=most)

    def read(self, folder: Path, name: str) -> str:
        """The text of a cgroup's file, at most `MAX_BYTES` of it; empty if it cannot be read."""
        if self._is_late(folder):
            return ""
        try:
            descriptor = owned_files.open_regular(folder / name)
            try:
                return os.read(descriptor, MAX_BYTES).decode(errors="replace")
            finally:
                os.close(descriptor)
        except OSError:
            return ""

    def finish(self, found: Found) -> Found:
        """What a source found; a reading that was given up if something could not be read."""
        return Found(remarks=(self.fault,), whole=False) if self.fault else found

    def _is_late(self, folder: Path | str) -> bool:
        late = time.thread_time() > self._deadline
        if late:
            self.fault = self.fault or LATE.format(folder=folder)
        return late


def _status(folder: Path | str) -> tuple[os.stat_result, ...]:
    """The status of a directory; none if it vanished."""
    try:
        return (os.lstat(folder),)
    except OSError:
        return ()
