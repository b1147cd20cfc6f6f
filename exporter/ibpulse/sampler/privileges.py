"""What the sampler asks of the kernel: timer slack, death with its parent, FIFO scheduling, a CPU.

Standard library only. Nothing here may fail the sampler: each function returns 0, or the errno of what was refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

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
    """Wake at the deadline rather than up to 50 µs after it (prctl(2), PR_SET_TIMERSLACK)."""
    return _prctl(_PR_SET_TIMERSLACK, 1)


def die_with_parent(parent: int) -> int:
    """Be killed when the parent dies (prctl(2), PR_SET_PDEATHSIG); ESRCH if it is dead already."""
    refused = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return refused or (0 if os.getppid() == parent else errno.ESRCH)


def schedule_fifo() -> int:
    """Run before all ordinary processes; needs CAP_SYS_NICE and a kernel that allows it in this cgroup."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def pin_to_cpu(cpu: int) -> int:
    """Run on one CPU; EINVAL when the cpuset does not hold it."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        return error.errno or errno.EINVAL
    except (OverflowError, ValueError):
        return errno.EINVAL
    return 0
