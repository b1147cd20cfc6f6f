"""Arguments shared by several verbs: durations, amounts, and the part of a recording to use."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ibpulse.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibpulse.reports.span import Moment


def add_window_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--from`, `--to` and `--port`."""
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="Start at this offset into each recording (10s) or at this wall-clock time (2026-11-21T12:00:00Z).",
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="End at this offset or wall-clock time, like --from.")
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT",
        help="Port or device to show, such as mlx5_0:1; repeatable (default: the rails).",
    )


def add_trim_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--trim`."""
    parser.add_argument(
        "--trim", action="store_true", help="Cut the silence before the first active sample and after the last."
    )


def read_moment(flag: str, text: str | None, faults: list[str]) -> Moment | None:
    """The instant given by a flag, None if the flag is absent; errors are appended to `faults`."""
    from ibpulse.instants import parse_instant  # not for help texts
    from ibpulse.reports.span import Moment

    if text is None:
        return None
    try:
        return Moment(parse_duration(text), after_begin=True)
    except ValueError:
        pass
    try:
        return Moment(parse_instant(text))
    except ValueError:
        faults.append(f"flag {flag}: {text!r} is not a time; write an offset like 10s, or 2026-11-21T12:00:00Z")
    return None


def read_duration(flag: str, text: str, faults: list[str]) -> int:
    """The duration given by a flag, in nanoseconds and more than 0; errors are appended to `faults`."""
    return read_amount(flag, text, parse_duration, faults) or 0


def read_amount(flag: str, text: str | None, parse: Callable[[str], int], faults: list[str]) -> int | None:
    """The amount given by a flag, more than 0, None if the flag is absent; errors are appended to `faults`."""
    if text is None:
        return None
    try:
        amount = parse(text)
    except ValueError as error:
        faults.append(f"flag {flag}: {error}")
        return None
    if not amount:
        faults.append(f"flag {flag}: {text!r} is zero; give more than 0")
    return amount
