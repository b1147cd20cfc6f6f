"""Formats times, rates, sizes, shares and lists of names for people, and makes texts of unknown origin safe to print.

`units` writes the formats that can be parsed again.
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ibpulse.base.units import SECOND_NS, format_rate

Scales = Sequence[tuple[float, str]]
"""Sizes of units and their symbols, the largest first."""

NOT_KNOWN = "-"
SECONDS: Scales = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
NANOSECONDS: Scales = ((SECOND_NS, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
BYTES: Scales = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))

SCALES: Mapping[str, Scales] = {
    "rate": ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")),
    "bytes": tuple((size, f" {sign}") for size, sign in BYTES),
    "seconds": tuple((size, f" {sign}") for size, sign in SECONDS),
    "ratio": ((0.01, " %"),),
    "number": ((1.0, ""),),
}
"""The scales of each kind of statistic, for `statistic_text`."""
DIGITS = 4
SHOWN_NAMES = 8
SHOWN_CHARACTERS = 40
NAMED_SUBJECTS = 4

_NAME_PARTS = re.compile("[0-9]+|[^0-9]")
# control characters, separators of lines, what changes the direction of text (Unicode Bidi_Control), and halves of
# surrogate pairs, which stand for bytes that are not UTF-8 in the names of files
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# the last four are their wide forms, which some spreadsheets take for the others
_FORMULA = tuple("=+-@＝＋－＠")


def escape_controls(text: str, keep: str = "") -> str:
    """The text with control characters in the notation of JSON, so that it stays on its line and only shows text.

    Characters in `keep` stay: a newline for a text of several lines. JSON stays the same JSON.
    """
    if text.isprintable():
        return text

    def escape(found: re.Match[str]) -> str:
        return found[0] if found[0] in keep else _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"

    return _CONTROLS.sub(escape, text)


def split_lines(text: str) -> list[str]:
    """The lines of a text, which only line feeds end: `str.splitlines` also splits names with separators in them."""
    return text.removesuffix("\n").split("\n") if text else []


def show(value: object) -> str:
    """A value in quotes, shortened."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…")


def csv_text(text: str) -> str:
    """A text for a cell of CSV: without control characters, and behind an apostrophe if it would be a formula."""
    text = escape_controls(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def time_text(seconds: float) -> str:
    """A time in three digits: `1.25 ms`, `40 µs`."""
    return _scaled(seconds, SECONDS, ".3g")


def duration_text(period_ns: int) -> str:
    """A duration in four digits: `10 ms`, `2.29 s`."""
    return _scaled(period_ns, NANOSECONDS, ".4g")


def elapsed_text(seconds: float) -> str:
    """Hours, minutes and seconds: `1h02m03s`, `2m03s` or `3.5s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{rest:02}s" if hours else f"{minutes}m{rest:02}s"


def moment_text(time_ns: int) -> str:
    """A wall time in whole seconds: `2025-11-21 00:00:03 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ns // SECOND_NS))


def step_text(seconds: float | None) -> str:
    """The duration of a step in s or ms, `-` if unknown."""
    if seconds is None:
        return NOT_KNOWN
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1e3:.{1 if seconds >= 0.01 else 2}f} ms"


def milliseconds(period_ns: float) -> str:
    """A number of milliseconds in three digits, without decimals from 100 on."""
    return f"{period_ns / 1e6:.0f}" if period_ns >= 100e6 else f"{period_ns / 1e6:.3g}"


def size_text(size_bytes: float) -> str:
    """A size in three digits and decimal units: `11.5 MB`."""
    return _scaled(size_bytes, BYTES, ".3g")


def kilobytes(size_bytes: float) -> str:
    """A size in whole kilobytes: `1,234 kB`."""
    return f"{size_bytes / 1e3:,.0f} kB"


def file_size_text(size_bytes: float) -> str:
    """A size with one decimal: `1.2 MB`, `999 B`."""
    return _scaled(size_bytes, BYTES, ".0f" if size_bytes < 1e3 else ".1f")


def rate_text(bytes_per_second: float) -> str:
    """A bandwidth with one decimal: `25.0 GB/s`, or `0 GB/s`."""
    return f"{bytes_per_second / 1e9:.1f} GB/s" if bytes_per_second else "0 GB/s"


def link_rate_text(bytes_per_second: float) -> str:
    """The rate of a link in three digits: `31.5 GB/s`."""
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def threshold_text(bytes_per_second: float) -> str:
    """A rate in the notation of the settings: `0.1 GB/s`."""
    return re.sub(r"([0-9])([A-Za-z])", r"\1 \2", format_rate(round(bytes_per_second)))


def gigabytes(bytes_per_second: float | None) -> str:
    """A rate in GB/s in six characters, `-` if unknown; a positive rate is never shown as 0."""
    if bytes_per_second is None:
        return NOT_KNOWN
    number = bytes_per_second / 1e9
    if number >= 0.95 or number <= 0:
        return f"{number:.1f}"
    return f"{number:.3f}" if number >= 0.001 else "<0.001"


def percent(ratio: float | None) -> str:
    """A share that is never rounded up to 100 %: `99.98 %`; `-` if unknown."""
    if ratio is None:
        return NOT_KNOWN
    return "100 %" if ratio >= 1 else f"{min(ratio * 100, 99.99):.2f} %"


def statistic_text(value: float, unit: str) -> str:
    """A statistic in four digits and a suitable unit; `unit` is a key of `SCALES`."""
    size, sign = find_scale(value, unit)
    return f"{significant(value / size)}{sign}"


def find_scale(value: float, unit: str) -> tuple[float, str]:
    """Size and symbol of the unit that fits a value."""
    scales = SCALES[unit]
    # 999.96 rounds to 1000 in four digits
    return next(
        (scale for scale in scales if abs(value) * (1 + 10.0**-DIGITS) >= scale[0]), scales[0 if not value else -1]
    )


def significant(value: float) -> str:
    """Four digits, or all digits before the decimal point."""
    if value == 0:
        return "0"
    decimals = max(0, min(DIGITS, DIGITS - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def count_text(number: int, what: str) -> str:
    """A number with its noun: `1 port`, `8 ports`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def names_text(names: Iterable[str], shown: int = SHOWN_NAMES) -> str:
    """Names separated by commas, in natural order; a long list is cut: `a, b and 3 more`."""
    return first_names(sorted(names, key=natural_key), shown)


def simulated_text(which: str = "") -> str:
    """The sentence about simulated recordings; `which` are their names if others are not."""
    return f"SIMULATED{f' ({which})' if which else ''}: recorded from a simulator or a replay, not from hardware."


def first_names(names: Sequence[str], shown: int) -> str:
    """Names separated by commas, in the given order; a long list is cut: `a, b and 3 more`."""
    more = len(names) - shown
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:shown])} and {more} more"


def group_remarks(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """One notice per distinct text, with the first few subjects and the number of the others."""
    subjects: dict[str, list[str]] = {}
    for subject, text in remarks:
        subjects.setdefault(text, []).append(subject)
    return [f"{first_names(names, NAMED_SUBJECTS)}: {text}" for text, names in subjects.items()]


def sentence_list(items: Sequence[str], word: str = "and") -> str:
    """Words joined as in a sentence: `a, b and c`."""
    return f" {word} ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def errno_text(number: int) -> str:
    """An error number as name and description: `EINVAL (Invalid argument)`."""
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


@lru_cache(maxsize=1024)
def natural_key(name: str) -> tuple[tuple[int, int], ...]:
    """A sort key that puts `mlx5_2` before `mlx5_10` by comparing runs of digits as numbers."""
    parts = _NAME_PARTS.findall(name)
    return tuple((ord("0"), int(part)) if part[0] in "0123456789" else (ord(part), 0) for part in parts)


def _scaled(value: float, scales: Scales, form: str) -> str:
    size, sign = next((scale for scale in scales if value >= scale[0]), scales[-1])
    return f"{value / size:{form}} {sign}"
