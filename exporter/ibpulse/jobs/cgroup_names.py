"""Lists cgroups by name, and reads their small files; a cgroup that vanishes meanwhile is none."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from ibpulse import owned_files
from ibpulse.sysfs.files import SHORTAGE
from ibpulse.text import natural_key

# each is a file system of version 1; Slurm uses the first four
CONTROLLERS = ("freezer", "cpuset", "memory", "devices", "rdma", "pids", "cpu,cpuacct", "cpu", "systemd")
MOST_LISTED = 10_000
MOST_CHOSEN = 1000
MOST_BYTES = 16_384


def list_cgroups(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """Paths of the directories in a folder with names of this form, in natural order, at most `MOST_CHOSEN`.

    Links are not followed. Empty if the folder cannot be listed.

    Raises:
        OSError: this process has no descriptor left.
    """
    try:
        with os.scandir(folder) as entries:
            found = [
                entry.name
                for entry in itertools.islice(entries, MOST_LISTED)
                if names.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        return []
    return [folder / name for name in sorted(found, key=natural_key)[:MOST_CHOSEN]]


def read_cgroup_file(folder: Path, name: str) -> str:
    """The text of a cgroup's file, at most `MOST_BYTES` of it; empty if it cannot be read.

    Raises:
        OSError: this process has no descriptor left.
    """
    try:
        descriptor = owned_files.open_regular(folder / name)
        try:
            return os.read(descriptor, MOST_BYTES).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        return ""
