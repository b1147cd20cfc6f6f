"""`ibpulse fleet report DATASET`: who is late, which rails are hot, stalls and more, from a dataset of many nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.datasets.report_source import DatasetChoice

FORMATS = ("text", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, its part, what it is compared with, and the format."""
    add_choice(parser)
    parser.add_argument("--compare-job", metavar="ID", help="Compare the steps with those of this job.")
    parser.add_argument("--compare-from", metavar="TIME", help="Compare with the span that begins at this time.")
    parser.add_argument("--compare-to", metavar="TIME", help="End of that span.")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, and which part of it."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="Directory that `ibpulse fleet collect` wrote.")
    parser.add_argument("--job", default="", metavar="ID", help="Only the parts collected for this job.")
    parser.add_argument(
        "--from", dest="begin", metavar="TIME", help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z."
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="End at this wall-clock time.")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        DatasetError: the dataset cannot be read.
    """
    from ibpulse.datasets.fleet_report import describe_dataset  # not for help texts
    from ibpulse.datasets.fleet_report_formats import render_json, render_page, render_text

    faults: list[str] = []
    choice = read_choice(arguments, faults)
    against = _read_other(arguments, choice, faults)
    if faults:
        raise ConfigError(faults)
    report = describe_dataset(arguments.dataset, choice, against)
    render = {"text": render_text, "json": render_json, "html": render_page}[arguments.format]
    print(render(report), end="")
    return 0


def read_choice(arguments: argparse.Namespace, faults: list[str]) -> DatasetChoice:
    """The chosen part; errors are appended to `faults`."""
    from ibpulse.datasets.report_source import DatasetChoice  # not for help texts

    begin = read_instant("--from", arguments.begin, faults)
    end = read_instant("--to", arguments.end, faults)
    _check_order("--to", begin, end, faults)
    return DatasetChoice(arguments.job, begin, end)


def _read_other(arguments: argparse.Namespace, choice: DatasetChoice, faults: list[str]) -> DatasetChoice | None:
    from ibpulse.datasets.report_source import DatasetChoice

    if not any((arguments.compare_job, arguments.compare_from, arguments.compare_to)):
        return None
    begin = read_instant("--compare-from", arguments.compare_from, faults)
    end = read_instant("--compare-to", arguments.compare_to, faults)
    _check_order("--compare-to", begin, end, faults)
    return DatasetChoice(arguments.compare_job or choice.job, begin, end)


def _check_order(flag: str, begin_ns: int | None, end_ns: int | None, faults: list[str]) -> None:
    if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
        faults.append(f"flag {flag}: the span ends before it begins; give a later time")


def read_instant(flag: str, text: str | None, faults: list[str]) -> int | None:
    """The instant of a flag in ns, None if it is absent; errors are appended to `faults`."""
    from ibpulse.instants import parse_instant  # not for help texts

    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError:
        faults.append(f"flag {flag}: {text!r} is not a time; write it like 2026-11-21T12:00:00Z")
    return None
