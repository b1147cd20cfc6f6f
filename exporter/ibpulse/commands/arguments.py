"""Arguments shared by several verbs: durations, amounts, the part of a recording to use, and the file to write."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.errors import ConfigError
from ibpulse.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibpulse.recordings import Recording
    from ibpulse.reports.span import Moment, Outside, ReportOptions

LAST = "60s"


def add_window_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the part of recordings to use: `--last`, `--from`, `--to`, `--trim` and `--port`."""
    parser.add_argument(
        "--last", metavar="DURATION", help="Use only this much of the end of each recording; not with --from or --to."
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="Start at this offset into each recording (10s) or at this wall-clock time (2026-11-21T12:00:00Z).",
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="End at this offset or wall-clock time, like --from.")
    add_trim_argument(parser)
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT",
        help="Port or device to show, such as mlx5_0:1; repeatable (default: the rails).",
    )


def add_against_arguments(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare `--against` and `--last`."""
    parser.add_argument("--against", metavar="RECORDING|URL", help=text)
    parser.add_argument(
        "--last",
        metavar="DURATION",
        help=f"Compare with this much of its end (default: all; {LAST} of a daemon).",
    )


def load_against(arguments: argparse.Namespace, options: ReportOptions) -> tuple[Recording, Outside]:
    """The recording of `--against`: a file or its end, or the last seconds of a daemon.

    Raises:
        ConfigError: `--last` is not a duration.
        IbpulseError: the file cannot be read, or the daemon does not answer.
    """
    faults: list[str] = []
    last_ns = read_amount("--last", arguments.last, parse_duration, faults) or 0
    if faults:
        raise ConfigError(faults)
    if arguments.against.startswith(("http://", "https://")):
        from ibpulse.recordings.recent import fetch_recent  # not for help texts

        return fetch_recent(arguments.against, last_ns or parse_duration(LAST)), (0, 0)
    from ibpulse.reports.span import load_part

    return load_part(Path(arguments.against), options, last_ns)


def add_output_arguments(parser: argparse.ArgumentParser, text: str, *, required: bool) -> None:
    """Declare the file to write, described by `text`, `--force`, and the names to show: `--title`."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar="OUT", help=text)
    add_force_argument(parser, "OUT")
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        metavar="TEXT",
        help="Name to show for a recording; repeatable, in the order of the files (default: the names of the files).",
    )


def add_force_argument(parser: argparse.ArgumentParser, file: str) -> None:
    """Declare `--force` for the file with this placeholder."""
    parser.add_argument("--force", action="store_true", help=f"Replace {file} if it exists.")


def add_trim_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--trim`."""
    parser.add_argument(
        "--trim", action="store_true", help="Cut the silence before the first active sample and after the last."
    )


@dataclass(frozen=True, slots=True)
class ChosenPart:
    """The part of each recording to use: `begin` and `end`, or the last `last_ns` if that is not 0."""

    begin: Moment | None
    end: Moment | None
    last_ns: int


def read_part(arguments: argparse.Namespace, faults: list[str]) -> ChosenPart:
    """The part that `--last`, `--from` and `--to` choose; errors are appended to `faults`."""
    begin = read_moment("--from", arguments.begin, faults)
    end = read_moment("--to", arguments.end, faults)
    last_ns = read_duration("--last", arguments.last, faults) if arguments.last else 0
    faults += [
        f"flag --last: cannot be combined with {flag}"
        for flag, given in (("--from", arguments.begin), ("--to", arguments.end))
        if arguments.last and given
    ]
    return ChosenPart(begin, end, last_ns)


def check_output(arguments: argparse.Namespace, faults: list[str]) -> None:
    """Check that the output may be written, and that there are not more titles than files.

    Errors are appended to `faults`.
    """
    output, files = arguments.output, len(arguments.files)
    if output is not None and not arguments.force and output.exists():
        faults.append(f"output {output} exists; use --force to replace it, or name another file")
    if len(arguments.title) > files:
        faults.append(f"flag --title: {len(arguments.title)} titles for {files} recordings; give at most one for each")


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
