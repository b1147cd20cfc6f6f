"""`ibpulse report RECORDING...`: prints the statistics of recordings side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, PictureError, RecordingError
from ibpulse.base.files import write_whole
from ibpulse.base.text import escape_controls, size_text
from ibpulse.base.units import SECOND_NS
from ibpulse.commands.sources import check_output, load_source, read_recordings, source_path
from ibpulse.core.recordings import Recording
from ibpulse.workbench import pictures
from ibpulse.workbench.pictures.options import KINDS
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import Outside, ReportOptions

SUFFIXES = {".md": "markdown", ".json": "json", ".html": "html"}
RENDERERS = {"text": render_text, "markdown": render_markdown, "json": render_json}


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report, or write it to a file.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        RecordingError: a file cannot be read, the chosen part of it is empty, or the output cannot be written.
    """
    faults: list[str] = arguments.faults
    sources = read_recordings(arguments, faults)
    options, last_ns = _options(arguments, settings, len(sources), faults)
    output: Path | None = arguments.output
    form = arguments.format or SUFFIXES.get(output.suffix.lower() if output else "", "text")
    runs, drawn = [], []
    for place, source in enumerate(sources):
        recording, outside = load_source(source, options, last_ns)
        runs.append(describe_run(source_path(source), recording, options, place, outside))
        if form == "html" and place < KINDS["heatmap"].most_runs:
            drawn.append((recording, outside))
    report = assemble(runs, options, arguments.title)
    text = _page(report, drawn) if form == "html" else RENDERERS[form](report)
    if output is None:
        print(text, end="")
    else:
        write_whole(output, lambda path: path.write_text(text, encoding="utf-8"), RecordingError)
        print(escape_controls(f"{output}: report of {', '.join(report.names)}, {size_text(output.stat().st_size)}"))
    return 0


def _page(report: Report, drawn: Sequence[tuple[Recording, Outside]]) -> str:
    """The page, with a heatmap of the first recordings if matplotlib is installed."""
    try:
        return render_page(report, pictures.draw_report(report, drawn))
    except PictureError as error:
        print(f"ibpulse: the page has no picture: {error}", file=sys.stderr)
        return render_page(report)


def _options(
    arguments: argparse.Namespace, settings: Settings, count: int, faults: list[str]
) -> tuple[ReportOptions, int]:
    """The options for `count` recordings, and the length of the end of each to use, 0 for all of it.

    Raises:
        ConfigError: there are `faults`, or arguments are invalid; lists all of them.
    """
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
