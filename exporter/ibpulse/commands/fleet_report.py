"""`ibpulse fleet report DATASET`: who is late, which rails are hot, stalls and more, from a dataset of many nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import INSTANT
from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.datasets.report_source import DatasetChoice

FORMATS = ("text", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, its part, what it is compared with, and the format."""
    add_choice(parser)
    parser.add_argument("--compare-job", metavar="ID", help="Compare the steps with those of this job.")
    parser.add_argument("--compare-from", type=INSTANT, help="Compare with the span that begins at this time.")
    parser.add_argument("--compare-to", type=INSTANT, help="End of that span.")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, and which part of it."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="Directory that `ibpulse fleet collect` wrote.")
    parser.add_argument("--job", default="", metavar="ID", help="Only the parts collected for this job.")
    parser.add_argument(
        "--from",
        dest="begin",
        type=INSTANT,
        help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z.",
    )
    parser.add_argument("--to", dest="end", type=INSTANT, help="End at this wall-clock time.")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        DatasetError: the dataset cannot be read.
    """
    from ibpulse.datasets.fleet_report import describe_dataset  # not for help texts
    from ibpulse.datasets.fleet_report_formats import render_json, render_page, render_text

    faults: list[str] = arguments.faults
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

    _check_order("--to", arguments.begin, arguments.end, faults)
    return DatasetChoice(arguments.job, arguments.begin, arguments.end)


def _read_other(arguments: argparse.Namespace, choice: DatasetChoice, faults: list[str]) -> DatasetChoice | None:
    from ibpulse.datasets.report_source import DatasetChoice

    begin_ns, end_ns = arguments.compare_from, arguments.compare_to
    if not arguments.compare_job and begin_ns is None and end_ns is None:
        return None
    _check_order("--compare-to", begin_ns, end_ns, faults)
    return DatasetChoice(arguments.compare_job or choice.job, begin_ns, end_ns)


def _check_order(flag: str, begin_ns: int | None, end_ns: int | None, faults: list[str]) -> None:
    if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
        faults.append(f"flag {flag}: the span ends before it begins; give a later time")
