"""`ibpulse render RECORDING... -o OUT`: plots recordings."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.base.text import escape_controls, kilobytes
from ibpulse.commands.sources import check_output, load_source, read_recordings, source_path
from ibpulse.workbench.pictures import render
from ibpulse.workbench.pictures.options import KINDS, PictureOptions, choose_kind, size_faults
from ibpulse.workbench.pictures.still import name_runs, picture_run
from ibpulse.workbench.reports.span import ReportOptions


def run(arguments: argparse.Namespace, settings: Settings) -> int:
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
