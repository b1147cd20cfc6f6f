"""`ibpulse render RECORDING... -o OUT`: plots recordings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, PictureError, RecordingError
from ibpulse.base.files import write_whole
from ibpulse.base.text import escape_controls, kilobytes, size_text
from ibpulse.base.units import SECOND_NS
from ibpulse.commands.sources import check_output, load_source, read_recordings, source_path
from ibpulse.core.recordings import Recording
from ibpulse.workbench import pictures
from ibpulse.workbench.pictures import render
from ibpulse.workbench.pictures.options import KINDS, PictureOptions, choose_kind, size_faults
from ibpulse.workbench.pictures.still import name_runs, picture_run
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.formats import render_json, render_markdown, render_page, render_text
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import Outside, ReportOptions

SUFFIXES = {".md": "markdown", ".json": "json", ".html": "html"}
RENDERERS = {"text": render_text, "markdown": render_markdown, "json": render_json}


def run_report(arguments: argparse.Namespace, settings: Settings) -> int:
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


def run_render(arguments: argparse.Namespace, settings: Settings) -> int:
    """Draw the picture and print its path and size.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        PictureError: the picture cannot be drawn or written.
        RecordingError: a file cannot be read, or the chosen part of it is empty.
    """
    kind = choose_kind(arguments.output, arguments.picture)
    faults: list[str] = arguments.faults
    sources = read_recordings(arguments, faults)
    chosen, options, last_ns = _read_options(arguments, settings, kind, len(sources), faults)

    names = name_runs([source_path(source) for source in sources], arguments.title)
    runs = []
    for source, name in zip(sources, names, strict=True):
        part, outside = load_source(source, chosen, last_ns)
        runs.append(picture_run(source_path(source), name, part, chosen, options.direction, outside))

    def announce(text: str) -> None:
        print(escape_controls(f"{arguments.output}: {text}"), flush=True)

    render(kind, runs, arguments.output, options, announce)
    size_bytes = arguments.output.stat().st_size
    print(escape_controls(f"{arguments.output}: {kind} of {', '.join(names)}, {kilobytes(size_bytes)}"))
    return 0


def _read_options(
    arguments: argparse.Namespace, settings: Settings, kind: str, count: int, faults: list[str]
) -> tuple[ReportOptions, PictureOptions, int]:
    """The part of `count` recordings, how to draw it, and the length of their ends to draw, 0 for all of them.

    Raises:
        ConfigError: there are `faults`, or arguments are invalid; lists all of them.
    """
    width = arguments.width or KINDS[kind].width_pixels
    dpi = arguments.dpi or KINDS[kind].dpi
    check_output(arguments, faults)
    chosen = ReportOptions(
        ports=tuple(arguments.port),
        begin=arguments.begin,
        end=arguments.end,
        trim=arguments.trim,
        active_bytes_per_second=settings.analysis.active_threshold,
        resamples=1,
    )
    options = PictureOptions(
        width_pixels=width,
        dpi=dpi,
        unit=arguments.unit,
        theme=arguments.theme,
        direction=arguments.direction,
        statistic=arguments.statistic,
        frames_per_second=arguments.fps,
        speed=arguments.speed,
        window_ns=arguments.window,
        active_bytes_per_second=chosen.thresholds().high,
        burst_low_bytes_per_second=chosen.thresholds().low,
    )
    faults += size_faults(width, dpi)
    if count > KINDS[kind].most_runs:
        faults.append(f"{count} recordings given, but a {kind} takes at most {KINDS[kind].most_runs}")
    if faults:
        raise ConfigError(faults)
    return chosen, options, arguments.last or 0
