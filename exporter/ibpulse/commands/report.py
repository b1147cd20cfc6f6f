"""`ibpulse report RECORDING...`: prints the statistics of recordings side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import ANY_WHOLE, RATIO, SOME_TIME, many, number, whole
from ibpulse.commands.arguments import (
    add_output_arguments,
    add_recordings,
    add_window_arguments,
    check_output,
    load_source,
    read_recordings,
    source_path,
)
from ibpulse.errors import ConfigError, PictureError, RecordingError
from ibpulse.text import escape_controls, size_text
from ibpulse.units import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibpulse.config import Settings
    from ibpulse.recordings import Recording
    from ibpulse.reports.comparison import Report
    from ibpulse.reports.span import Outside, ReportOptions

FORMATS = ("text", "markdown", "json", "html")
SUFFIXES = {".md": "markdown", ".json": "json", ".html": "html"}
# a heatmap takes two; pixels of its width
MOST_DRAWN, PICTURE_PIXELS = 2, 1800
TIMESCALES = "10ms,50ms,100ms,1s"
LEAST_RESAMPLES, MOST_RESAMPLES = 100, 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the part to use, and the format."""
    add_recordings(parser, "Files, or addresses of daemons; the first one is the baseline.")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help=f"Output format: {', '.join(FORMATS)} (default: that of the suffix of OUT, otherwise text).",
    )
    parser.add_argument("--brief", action="store_true", help="Show only the ten rows that say most.")
    add_output_arguments(parser, "File to write, such as report.html (default: standard output).", required=False)
    add_window_arguments(parser)
    parser.add_argument(
        "--timescales",
        type=many(SOME_TIME, lambda scales: tuple(dict.fromkeys(scales))),
        default=TIMESCALES,
        help=f"Timescales of burstiness; multiples of the sampling interval (default: {TIMESCALES}).",
    )
    parser.add_argument(
        "--least-change",
        type=number(0, None, "RATIO", "0.01"),
        default=0.01,
        help="Smallest change to flag, if statistically significant (default: 0.01).",
    )
    parser.add_argument(
        "--resamples",
        type=whole(LEAST_RESAMPLES, MOST_RESAMPLES),
        default=4000,
        help="Number of bootstrap resamples (default: 4000).",
    )
    parser.add_argument(
        "--gpu-active",
        type=RATIO,
        action="append",
        default=[],
        help="Share of the time in which the GPUs compute, for the bounds of exposed communication; once for all "
        "recordings, or once for each (default: unknown).",
    )
    parser.add_argument(
        "--claim",
        type=SOME_TIME,
        help="Saving per step to check against the time on the wire, for two recordings (default: the measured one).",
    )
    parser.add_argument(
        "--seed", type=ANY_WHOLE, default=0, metavar="NUMBER", help="Seed of the resampling (default: 0)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report, or write it to a file.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        RecordingError: a file cannot be read, the chosen part of it is empty, or the output cannot be written.
    """
    from ibpulse.reports.comparison import assemble  # not for help texts
    from ibpulse.reports.run import describe_run

    faults: list[str] = arguments.faults
    sources = read_recordings(arguments, faults)
    options, last_ns = _options(arguments, settings, len(sources), faults)
    output: Path | None = arguments.output
    form = arguments.format or SUFFIXES.get(output.suffix.lower() if output else "", "text")
    runs, drawn = [], []
    for place, source in enumerate(sources):
        recording, outside = load_source(source, options, last_ns)
        runs.append(describe_run(source_path(source), recording, options, place, outside))
        if form == "html" and place < MOST_DRAWN:
            drawn.append((recording, outside))
    report = assemble(runs, options, arguments.title)
    text = _page(report, drawn) if form == "html" else _renderer(form)(report)
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
        print(escape_controls(f"{output}: report of {', '.join(report.names)}, {size_text(output.stat().st_size)}"))
    return 0


def _page(report: Report, drawn: Sequence[tuple[Recording, Outside]]) -> str:
    """The page, with a heatmap of the first recordings if matplotlib is installed."""
    from ibpulse.reports.formats import PagePicture, render_page  # not for help texts

    try:
        light, dark = (_draw(report, drawn, theme) for theme in ("light", "dark"))
    except PictureError as error:
        print(f"ibpulse: the page has no picture: {error}", file=sys.stderr)
        return render_page(report)
    left_out = len(report.runs) - len(drawn)
    caption = f"The first {len(drawn)} of {len(report.runs)} recordings." if left_out else ""
    return render_page(report, PagePicture(light, dark, caption))


def _draw(report: Report, drawn: Sequence[tuple[Recording, Outside]], theme: str) -> bytes:
    from ibpulse.api.pictures_of_runs import draw_runs, picture_run  # not for help texts

    named = zip(report.names, report.runs, drawn, strict=False)
    runs = [
        picture_run(run.path, name, recording, report.options, outside=outside)
        for name, run, (recording, outside) in named
    ]
    levels = report.options.thresholds()
    return draw_runs(
        runs,
        "heatmap",
        theme=theme,
        width_pixels=PICTURE_PIXELS,
        active_bytes_per_second=levels.high,
        burst_low_bytes_per_second=levels.low,
    ).png()


def _renderer(form: str) -> Callable[[Report], str]:
    from ibpulse.reports.formats import render_json, render_markdown, render_text  # not for help texts

    return {"text": render_text, "markdown": render_markdown, "json": render_json}[form]


def _write(output: Path, text: str) -> None:
    """Write the file, whole or not at all.

    Raises:
        RecordingError: it cannot be written.
    """
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(output)
    except OSError as error:
        raise RecordingError(f"output {output} cannot be written: {error.strerror}; name another file") from error
    finally:
        temporary.unlink(missing_ok=True)


def _options(
    arguments: argparse.Namespace, settings: Settings, count: int, faults: list[str]
) -> tuple[ReportOptions, int]:
    """The options for `count` recordings, and the length of the end of each to use, 0 for all of it.

    Raises:
        ConfigError: there are `faults`, or arguments are invalid; lists all of them.
    """
    from ibpulse.reports.span import ReportOptions

    check_output(arguments, faults)
    given = len(arguments.gpu_active)
    if given not in (0, 1, count):
        faults.append(f"flag --gpu-active: given {given} times for {count} recordings; give it once, or once for each")
    if arguments.claim and count != 2:
        faults.append(f"flag --claim: is about two recordings, before and after a change; {count} are given")
    if faults:
        raise ConfigError(faults)
    options = ReportOptions(
        ports=tuple(arguments.port),
        begin=arguments.begin,
        end=arguments.end,
        trim=arguments.trim,
        active_bytes_per_second=settings.analysis.active_threshold,
        timescales_ns=arguments.timescales,
        least_change=arguments.least_change,
        resamples=arguments.resamples,
        seed=arguments.seed,
        gpu_active=tuple(arguments.gpu_active),
        claim_seconds=(arguments.claim or 0) / SECOND_NS,
        brief=arguments.brief,
    )
    return options, arguments.last or 0
