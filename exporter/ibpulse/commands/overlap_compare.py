"""`ibpulse overlap compare BEFORE AFTER`: compares the steps of a job before and after a change."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.commands.arguments import add_window_arguments, read_amount, read_part
from ibpulse.errors import ConfigError
from ibpulse.units import SECOND_NS, parse_duration

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.reports.span import ReportOptions
    from ibpulse.reports.step_comparison import StepRun

FORMATS = ("text", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the recordings, the part to use, and a claimed saving."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="Recording of one node before the change.")
    parser.add_argument("after", type=Path, metavar="AFTER", help="Recording of the same node and job after it.")
    parser.add_argument(
        "--claim",
        metavar="DURATION",
        help="Saving per step to check against the time on the wire (default: the measured one).",
    )
    add_window_arguments(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="Seed of the resampling (default: 0).")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the comparison.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        RecordingError: a recording cannot be read, or the chosen part of it is empty.
    """
    from ibpulse.reports.step_comparison import compare_steps  # not for help texts
    from ibpulse.reports.step_comparison_text import render_json, render_text

    options, last_ns, claim_ns = _options(arguments, settings)
    before, after = (
        _describe(path, options, last_ns, at) for at, path in enumerate((arguments.before, arguments.after))
    )
    found = compare_steps(before, after, options, claim_ns / SECOND_NS)
    print(render_json(found) if arguments.format == "json" else render_text(found), end="")
    return 0


def _describe(path: Path, options: ReportOptions, last_ns: int, place: int) -> StepRun:
    from ibpulse.reports.span import load_part
    from ibpulse.reports.step_comparison import describe_steps_of

    recording, outside = load_part(path, options, last_ns)
    return describe_steps_of(path, recording, options, place, outside)


def _options(arguments: argparse.Namespace, settings: Settings) -> tuple[ReportOptions, int, int]:
    from ibpulse.reports.span import ReportOptions

    faults: list[str] = []
    part = read_part(arguments, faults)
    claim_ns = read_amount("--claim", arguments.claim, parse_duration, faults) or 0
    if arguments.seed < 0:
        faults.append(f"flag --seed: {arguments.seed} is negative; give 0 or more")
    if faults:
        raise ConfigError(faults)
    options = ReportOptions(
        ports=tuple(arguments.port),
        begin=part.begin,
        end=part.end,
        trim=arguments.trim,
        active_bytes_per_second=settings.analysis.active_threshold,
        seed=arguments.seed,
    )
    return options, part.last_ns, claim_ns
