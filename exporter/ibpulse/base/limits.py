"""Limits of the process: the memory that it may take and that it keeps for reuse, and its open files."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ibpulse.base.errors import IbpulseError

SHARE = 0.75
"""Of the available memory; the rest is left to the node."""
LIBRARIES_BYTES = 400_000_000
"""For numpy, pyarrow and matplotlib themselves: measured 170 to 330 MB on two CPUs."""
THREAD_BYTES = 50_000_000
"""For the stack and the buffers of a thread that they start for each CPU, most of it never touched."""
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment for pyarrow: its own allocator reserves 1 GB, and uses 10 MB more than the system's."""
# limit and use of a cgroup, and its file cache, first what the kernel drops first, in versions 2 and 1 (cgroup-v2.rst)
_GROUP_FILES = (
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
_UNKNOWN = 2**62
# of mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 8 * 2**20
"""Freed memory that the process keeps; an answer of a minute of eight ports needs 3 MB."""
OWN_MAPPING_BYTES = KEPT_BYTES // 2
"""A block of this size or more is returned to the system when it is freed."""


def keep_freed() -> None:
    """Keep freed memory up to `KEPT_BYTES` for the next allocations, with glibc; otherwise nothing is changed.

    By default glibc returns the memory of each answer, and the page faults of the next one take longer than its
    computation. The default also follows the largest block ever freed, so what is kept has no bound.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def spare_bytes(root: Path = Path("/")) -> int:
    """Memory that a command may take: a share of the available memory of the machine, or of the cgroup if it has less.

    Without such numbers, as outside of Linux, there is no bound.
    """
    known = (
        read_fields(root / "proc/meminfo").get("MemAvailable:"),
        *map(_left_in_group, cgroups_around("memory", root)),
    )
    return int(SHARE * max(0, min((each for each in known if each is not None), default=_UNKNOWN)))


@contextmanager
def bounded() -> Iterator[None]:
    """Let the process take only `spare_bytes` for data, and what libraries need; what exceeds that is a MemoryError.

    It backs up the checks of sizes, because a file can claim any size at places that only its decoder reads.
    """
    # pyarrow reads it on import
    os.environ.update(ALLOCATOR)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    taken = read_fields(Path("/proc/self/status")).get("VmData:")
    most = None if taken is None else taken + LIBRARIES_BYTES + THREAD_BYTES * (os.cpu_count() or 1) + spare_bytes()
    if most is None or (soft != resource.RLIM_INFINITY and soft <= most):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def cgroup_folders(controller: str, root: Path = Path("/"), process: str = "self") -> list[Path]:
    """The folder of a process's cgroup with this controller, then where the cgroups of the controller begin."""
    mount = root / "sys/fs/cgroup"
    lines = [
        line.split(":", 2) for line in _text(root / "proc" / process / "cgroup").split("\n") if line.count(":") > 1
    ]
    own = [
        mount / (controllers and controller) / path.lstrip("/")
        for _, controllers, path in lines
        if not controllers or controller in controllers.split(",")
    ]
    # in a container, the process's path may be the host's, while the mount begins at the container's group
    return [*own, mount, mount / controller]


def cgroups_around(controller: str, root: Path = Path("/"), process: str = "self") -> set[Path]:
    """The same with all folders that contain them."""
    mount, folders = root / "sys/fs/cgroup", cgroup_folders(controller, root, process)
    return {above for folder in folders for above in (folder, *folder.parents) if above.is_relative_to(mount)}


def left_in_cgroups(root: Path = Path("/")) -> int | None:
    """Bytes that can be taken in the cgroup of this process if all its file cache is dropped; None without a limit."""
    left = (_left_in_group(folder, cache=2) for folder in cgroups_around("memory", root))
    return min((each for each in left if each is not None), default=None)


def _left_in_group(folder: Path, cache: int = 1) -> int | None:
    """Bytes that the processes of a cgroup can still take, with so much of the cache; None without a limit."""
    for limit, used, cached in _GROUP_FILES:
        most, taken = _text(folder / limit).strip(), _text(folder / used).strip()
        if most.isdigit() and taken.isdigit():
            fields = read_fields(folder / "memory.stat")
            return int(most) - int(taken) + sum(fields.get(name, 0) for name in cached[:cache])
    return None


def read_fields(path: Path) -> dict[str, int]:
    """The numbers in a file of lines `name number [kB]`, in bytes."""
    lines = (line.split() for line in _text(path).split("\n"))
    return {
        words[0]: int(words[1]) * (1024 if words[2:] == ["kB"] else 1)
        for words in lines
        if len(words) > 1 and words[1].isdigit()
    }


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except OSError:
        return ""


def allow_open_files(count: int) -> int:
    """Raise the soft limit of open files to this number, or to the hard limit; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return count if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def require_open_files(count: int, least: int) -> None:
    """Like `allow_open_files`, but fewer than `least` are an error.

    Raises:
        IbpulseError: the hard limit is lower than `least`.
    """
    allowed = allow_open_files(count)
    if allowed < least:
        raise IbpulseError(
            f"the limit of open files is {allowed}, but at least {least} are needed here: raise it to {count} "
            "(LimitNOFILE=, ulimit -n)"
        )
