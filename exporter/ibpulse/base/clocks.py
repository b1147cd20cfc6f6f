"""The type of a clock, and the state of the kernel's. Standard library only, because the sampler imports it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Protocol

# include/uapi/linux/timex.h
_TIME_ERROR = 5
_STA_UNSYNC = 0x0040
_long = ctypes.c_long


class ClockState(NamedTuple):
    """State of the kernel's clock (adjtimex(2)); the maximum error is the kernel's own estimate."""

    synchronised: bool
    max_error_seconds: float


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", _long),
        ("freq", _long),
        ("maxerror", _long),
        ("esterror", _long),
        ("status", ctypes.c_int),
        ("constant", _long),
        ("precision", _long),
        ("tolerance", _long),
        ("time", _long * 2),
        ("tick", _long),
        ("ppsfreq", _long),
        ("jitter", _long),
        ("shift", ctypes.c_int),
        ("stabil", _long),
        ("jitcnt", _long),
        ("calcnt", _long),
        ("errcnt", _long),
        ("stbcnt", _long),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


def read_clock_state() -> ClockState | None:
    """The state of the wall clock, None where adjtimex(2) is not permitted."""
    asked = _Timex(modes=0)
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    if state < 0:
        return None
    synchronised = state != _TIME_ERROR and not asked.status & _STA_UNSYNC
    return ClockState(synchronised, asked.maxerror / 1e6)


class Clock(Protocol):
    """The part of the module `time` that ibpulse uses; that module is the default wherever a clock is an argument."""

    def time(self) -> float:
        """Wall time in seconds."""

    def time_ns(self) -> int:
        """Wall time in nanoseconds."""

    def monotonic(self) -> float:
        """Monotonic time in seconds."""

    def monotonic_ns(self) -> int:
        """Monotonic time in nanoseconds."""

    def process_time_ns(self) -> int:
        """CPU time of this process in nanoseconds."""

    def sleep(self, seconds: float, /) -> None:
        """Return after this many seconds."""
