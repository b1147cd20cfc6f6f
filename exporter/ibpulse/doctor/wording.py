"""Times, rates, sizes and lists of ports as people read them. It must not judge."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from ibpulse.sysfs.files import natural_key

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SHOWN = 8


def say_seconds(seconds: float) -> str:
    """A time in three digits: `1.25 ms`, `40 µs`."""
    size, unit = next((row for row in _TIMES if seconds >= row[0]), _TIMES[-1])
    return f"{seconds / size:.3g} {unit}"


def say_rate(bytes_per_second: float) -> str:
    """A rate as the project counts bandwidth: `25.0 GB/s`, and 0 as such."""
    return f"{bytes_per_second / 1e9:.1f} GB/s" if bytes_per_second else "0 GB/s"


def say_bytes(size: float) -> str:
    """A size in decimal units: `11.5 MB`."""
    unit = next((row for row in _SIZES if size >= row[0]), (1.0, "B"))
    return f"{size / unit[0]:.3g} {unit[1]}"


def say_count(number: int, what: str) -> str:
    """A number with its noun: `1 port`, `8 ports`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def say_names(names: Iterable[str], shown: int = SHOWN) -> str:
    """Names with commas, in their natural order; of many, the first and how many more."""
    ordered = sorted(names, key=natural_key)
    more = len(ordered) - shown
    return ", ".join(ordered) if more <= 0 else f"{', '.join(ordered[:shown])} and {more} more"


def say_errno(number: int) -> str:
    """An error number by its name and in words: `EINVAL (Invalid argument)`."""
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


def say_plain(items: Sequence[str]) -> str:
    """Words joined as in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""
