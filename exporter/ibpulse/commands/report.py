"""`ibpulse report FILE...`: prints the statistics of recordings side by side."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.commands.arguments import add_trim_argument, add_window_arguments, read_moment
from ibpulse.errors import ConfigError
from ibpulse.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibpulse.config import Settings
    from ibpulse.reports.comparison import Report
    from ibpulse.reports.run import Run
    from ibpulse.reports.span import ReportOptions

FORMATS = ("text", "markdown", "json", "html")
TIMESCALES = "10ms,50ms,100ms,1s"
LEAST_RESAMPLES, MOST_RESAMPLES = 100, 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the part to use, and the format."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="Recordings; the first is the baseline of the comparison."
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )
    add_trim_argument(parser)
    add_window_arguments(parser)
    parser.add_argument(
        "--timescales",
        default=TIMESCALES,
        metavar="DURATION,...",
        help=f"Timescales of burstiness; multiples of the sampling interval (default: {TIMESCALES}).",
    )
    parser.add_argument(
        "--least-change",
        type=float,
        default=0.01,
        metavar="RATIO",
        help="Smallest change to flag, if statistically significant (default: 0.01).",
    )
    parser.add_argument(
        "--resamples", type=int, default=4000, metavar="COUNT", help="Number of bootstrap resamples (default: 4000)."
    )
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="Seed of the resampling (default: 0).")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        RecordingError: a file cannot be read, or the chosen part of it is empty.
    """
    from ibpulse.reports.comparison import assemble  # not for help texts

    options = _options(arguments, settings)
    runs = [_describe(path, options, place) for place, path in enumerate(arguments.files)]
    print(_renderer(arguments.format)(assemble(runs, options)), end="")
    return 0


def _describe(path: Path, options: ReportOptions, place: int) -> Run:
    from ibpulse.reports.run import describe_run  # not for help texts
    from ibpulse.reports.span import load_part

    recording, outside = load_part(path, options)
    return describe_run(path, recording, options, place, outside)


def _renderer(form: str) -> Callable[[Report], str]:
    from ibpulse.reports.formats import (
        render_json,  # not for help texts
        render_markdown,
        render_page,
        render_text,
    )

    return {"text": render_text, "markdown": render_markdown, "json": render_json, "html": render_page}[form]


def _options(arguments: argparse.Namespace, settings: Settings) -> ReportOptions:
    from ibpulse.reports.span import ReportOptions

    faults: list[str] = []
    begin = read_moment("--from", arguments.begin, faults)
    end = read_moment("--to", arguments.end, faults)
    timescales = _timescales(arguments.timescales, faults)
    if not (math.isfinite(arguments.least_change) and arguments.least_change >= 0):
        faults.append(f"flag --least-change: {arguments.least_change} is not a ratio; write one like 0.01")
    if not LEAST_RESAMPLES <= arguments.resamples <= MOST_RESAMPLES:
        bounds = f"{LEAST_RESAMPLES} to {MOST_RESAMPLES}"
        faults.append(f"flag --resamples: {arguments.resamples} is out of bounds; give {bounds}")
    if arguments.seed < 0:
        faults.append(f"flag --seed: {arguments.seed} is negative; give 0 or more")
    if faults:
        raise ConfigError(faults)
    return ReportOptions(
        ports=tuple(arguments.port),
        begin=begin,
        end=end,
        trim=arguments.trim,
        active_bytes_per_second=settings.analysis.active_threshold,
        timescales_ns=timescales,
        least_change=arguments.least_change,
        resamples=arguments.resamples,
        seed=arguments.seed,
    )


def _timescales(text: str, faults: list[str]) -> tuple[int, ...]:
    found = []
    for one in text.split(","):
        try:
            found.append(parse_duration(one.strip()))
        except ValueError as error:
            faults.append(f"flag --timescales: {error}")
    if 0 in found:
        faults.append("flag --timescales: 0 is not a timescale; write them like 10ms,1s")
    return tuple(dict.fromkeys(found))
