"""`ibpulse render RECORDING... -o OUT`: plots recordings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import ANY_WHOLE, SOME_TIME, number
from ibpulse.commands.arguments import (
    add_output_arguments,
    add_recordings,
    add_window_arguments,
    check_output,
    load_source,
    read_recordings,
    source_path,
)
from ibpulse.errors import ConfigError
from ibpulse.model import DIRECTIONS
from ibpulse.pictures.options import KINDS, STATISTICS, THEMES, UNITS, PictureOptions, choose_kind, size_faults
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibpulse.config import Settings
    from ibpulse.reports.span import ReportOptions

# a GIF gives frame durations in whole hundredths of a second
FRAME_RATES = (1, 2, 4, 5, 10, 20, 25, 50)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the kind of picture, the part of the recordings, and the drawing options."""
    add_recordings(parser, "Files, or addresses of daemons, drawn side by side on a common scale.")
    add_output_arguments(parser, "Picture to write, with the extension .png, .svg, .gif or .mp4.", required=True)
    parser.add_argument(
        "--picture",
        choices=tuple(KINDS),
        default="",
        help=f"Kind of picture: {', '.join(KINDS)}. A heatmap is .png or .svg, an animation .gif or .mp4. "
        "Default: the first that matches the extension.",
    )
    add_window_arguments(parser)
    parser.add_argument(
        "--direction",
        choices=(*DIRECTIONS, "both"),
        default="both",
        help="Direction to draw: transmit, receive, or the sum of both (default: both).",
    )
    _add_drawing(parser)


def _add_drawing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unit", choices=UNITS, default="GB/s", help=f"Unit of the scale: {' or '.join(UNITS)} (default: GB/s)."
    )
    parser.add_argument(
        "--statistic",
        choices=STATISTICS,
        default="both",
        help="Statistic of a heatmap column: max, mean, or both in two maps (default: both).",
    )
    parser.add_argument(
        "--theme", choices=THEMES, default="light", help=f"Colours: {' or '.join(THEMES)} (default: light)."
    )
    parser.add_argument(
        "--width", type=ANY_WHOLE, metavar="PIXELS", help="Width of the picture (default: 2000; animation: 1000)."
    )
    parser.add_argument(
        "--dpi",
        type=ANY_WHOLE,
        metavar="NUMBER",
        help="Pixels per inch; higher values enlarge the text (default: 200; animation: 130).",
    )
    parser.add_argument(
        "--fps",
        type=ANY_WHOLE,
        choices=FRAME_RATES,
        default=20,
        help="Frames per second of an animation (default: 20).",
    )
    parser.add_argument(
        "--speed",
        type=number(0.001, 1000, "FACTOR", "0.5"),
        default=1.0,
        help="Speed of an animation (default: 1.0, real time).",
    )
    parser.add_argument(
        "--window",
        type=SOME_TIME,
        default="2s",
        help="Time span that an animation shows (default: 2s).",
    )


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
    from ibpulse.api.pictures_of_runs import picture_run  # not for help texts
    from ibpulse.pictures import render

    names = _names([source_path(source) for source in sources], arguments.title)
    runs = []
    for source, name in zip(sources, names, strict=True):
        part, outside = load_source(source, chosen, last_ns)
        runs.append(picture_run(source_path(source), name, part, chosen, options.direction, outside))

    def announce(text: str) -> None:
        print(escape_controls(f"{arguments.output}: {text}"), flush=True)

    render(kind, runs, arguments.output, options, announce)
    size = f"{arguments.output.stat().st_size / 1e3:,.0f} kB"
    print(escape_controls(f"{arguments.output}: {kind} of {', '.join(names)}, {size}"))
    return 0


def _read_options(
    arguments: argparse.Namespace, settings: Settings, kind: str, count: int, faults: list[str]
) -> tuple[ReportOptions, PictureOptions, int]:
    """The part of `count` recordings, how to draw it, and the length of their ends to draw, 0 for all of them.

    Raises:
        ConfigError: there are `faults`, or arguments are invalid; lists all of them.
    """
    from ibpulse.reports.span import ReportOptions  # not for help texts

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


def _names(files: Sequence[Path], titles: Sequence[str]) -> list[str]:
    """The title of each file if it has one, else its name, with its directory if another file has the same name."""
    stems = [path.name.removesuffix(".parquet") for path in files]
    names = [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(files, stems, strict=True)
    ]
    return [*titles, *names[len(titles) :]]
