"""The limit of open files."""

from __future__ import annotations

import resource

from ibpulse.base.errors import IbpulseError


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
    """The same; fewer than `least` are too few to work with.

    Raises:
        IbpulseError: the hard limit is lower than `least`.
    """
    allowed = allow_open_files(count)
    if allowed < least:
        raise IbpulseError(
            f"the limit of open files is {allowed}, but at least {least} are needed here: raise it to {count} "
            "(LimitNOFILE=, ulimit -n)"
        )
