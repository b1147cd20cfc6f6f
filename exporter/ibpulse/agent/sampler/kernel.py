"""Kernel requests: timer slack, parent death signal, FIFO scheduling, CPU pinning, open files; and cgroup quotas.

Standard library only. The kernel may refuse the requests: their functions return 0, or the errno of the refusal, and
never raise.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from pathlib import Path

from ibpulse.base.limits import cgroup_folders, cgroups_around, read_fields

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
FIFO_PRIORITY = 10


def _prctl(option: int, argument: int) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    unsigned = ctypes.c_ulong
    failed = library.prctl(option, unsigned(argument), unsigned(0), unsigned(0), unsigned(0))
    return ctypes.get_errno() if failed else 0


def sharpen_timers() -> int:
    """Wake at the deadline instead of up to 50 µs later (prctl(2), PR_SET_TIMERSLACK)."""
    return _prctl(_PR_SET_TIMERSLACK, 1)


def die_with_parent(parent: int) -> int:
    """Have this process killed when its parent dies (prctl(2), PR_SET_PDEATHSIG); ESRCH if it is already dead."""
    refused = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return refused or (0 if os.getppid() == parent else errno.ESRCH)


def schedule_fifo() -> int:
    """Take precedence over all ordinary processes; needs CAP_SYS_NICE and a kernel that allows it in this cgroup."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def pin_to_cpu(cpu: int) -> int:
    """Run on one CPU; EINVAL if the cpuset does not include it."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        return error.errno or errno.EINVAL
    except (OverflowError, ValueError):
        return errno.EINVAL
    return 0


def runqueue_wait_ns(process: int, root: Path = Path("/")) -> int | None:
    """Time for which a process with one thread was ready to run but got no CPU (sched-stats.rst), None if unknown."""
    try:
        ran, waited, _ = map(int, (root / "proc" / str(process) / "schedstat").read_text().split())
    except (OSError, ValueError):
        return None
    # a kernel that does not measure it says 0 to everything
    return waited if ran else None


def state_of(process: int, root: Path = Path("/")) -> tuple[str, float]:
    """The state of a process, such as R for ready to run (proc_pid_stat(5)), and its CPU seconds; empty if unknown."""
    try:
        # its name, in parentheses, may contain anything
        fields = (root / "proc" / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return "", 0.0


def throttled_periods(root: Path = Path("/"), process: str = "self") -> int | None:
    """Periods in which the CPU quota throttled a process's cgroup (cgroup-v2.rst, cpu.stat), None if unknown."""
    found = (read_fields(folder / "cpu.stat").get("nr_throttled") for folder in cgroup_folders("cpu", root, process))
    return next((periods for periods in found if periods is not None), None)


def quota_cpus(root: Path = Path("/"), process: str = "self") -> float | None:
    """CPUs allowed by the quotas of a process's cgroup and its ancestors; infinite without a quota, None if unknown.

    cgroup-v2.rst, cpu.max; in version 1 cpu.cfs_quota_us and cpu.cfs_period_us.
    """
    quotas = map(_read_quota, cgroups_around("cpu", root, process))
    return min((quota for quota in quotas if quota is not None), default=None)


def _read_quota(folder: Path) -> float | None:
    """CPUs allowed by the quota of one cgroup; the root of the hierarchy has no such file in version 2."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    return float("inf") if quota in ("max", "-1") else int(quota) / int(period)
