"""`ibpulse render FILE... -o OUT`: plots recordings."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.commands.arguments import add_window_arguments, read_duration, read_moment
from ibpulse.errors import ConfigError
from ibpulse.model import DIRECTIONS
from ibpulse.pictures.options import KINDS, STATISTICS, THEMES, UNITS, PictureOptions, choose_kind, size_faults
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibpulse.config import Settings
    from ibpulse.pictures.picture_run import PictureRun
    from ibpulse.recordings import Recording
    from ibpulse.reports.span import Outside, ReportOptions

# a GIF gives frame durations in whole hundredths of a second
FRAME_RATES = (1, 2, 4, 5, 10, 20, 25, 50)
FACTS = (
    ("mean_bytes_per_second", "mean"),
    ("active_mean_bytes_per_second", "active mean"),
    ("peak_bytes_per_second", "peak"),
    ("duty_cycle_ratio", "duty cycle"),
    ("", "burstiness"),
    ("step_period_seconds", "step period"),
    ("utilization_ratio", "mean utilisation"),
    ("idle_rails", "idle rails"),
)
"""Key numbers of a run, by their row in the report; the row without a name is the CV at the finest timescale."""
FINEST_NS = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the kind of picture, the part of the recordings, and the drawing options."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="Recordings, drawn side by side on a common scale."
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="Picture to write, with the extension .png, .svg, .gif, .mp4 or .html.",
    )
    parser.add_argument(
        "--picture",
        choices=tuple(KINDS),
        default="",
        help=f"Kind of picture: {', '.join(KINDS)}. A heatmap is .png or .svg, an animation .gif, .mp4 or .html. "
        "Default: the first that matches the extension.",
    )
    add_window_arguments(parser)
    parser.add_argument(
        "--last", metavar="DURATION", help="Draw only this much of the end of each recording; not with --from."
    )
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
        help="Statistic of a heatmap column that covers several samples: max, mean, or both in two maps "
        "(default: both).",
    )
    parser.add_argument(
        "--theme", choices=THEMES, default="light", help=f"Colours: {' or '.join(THEMES)} (default: light)."
    )
    parser.add_argument(
        "--width", type=int, metavar="PIXELS", help="Width of the picture (default: 2000; animation: 1000)."
    )
    parser.add_argument(
        "--dpi",
        type=int,
        metavar="NUMBER",
        help="Pixels per inch; higher values enlarge the text (default: 200; animation: 130).",
    )
    parser.add_argument(
        "--fps",
        type=int,
        choices=FRAME_RATES,
        default=20,
        help=f"Frames per second of an animation: {', '.join(map(str, FRAME_RATES))} (default: 20).",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="Speed of an animation (default: 1.0, real time).",
    )
    parser.add_argument(
        "--window", default="2s", metavar="DURATION", help="Time span that an animation shows (default: 2s)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Draw the picture and print its path and size.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        PictureError: the picture cannot be drawn or written.
        RecordingError: a file cannot be read, or the chosen part of it is empty.
    """
    kind = choose_kind(arguments.output, arguments.picture)
    chosen, options = _read_options(arguments, settings, kind)
    from ibpulse.pictures import render  # not for help texts

    names = _names(arguments.files)
    last_ns = read_duration("--last", arguments.last, []) if arguments.last else 0
    runs = [
        _take(path, name, chosen, options.direction, last_ns) for path, name in zip(arguments.files, names, strict=True)
    ]
    render(kind, runs, arguments.output, options)
    size = f"{arguments.output.stat().st_size / 1e3:,.0f} kB"
    print(escape_controls(f"{arguments.output}: {kind} of {', '.join(names)}, {size}"))
    return 0


def _read_options(arguments: argparse.Namespace, settings: Settings, kind: str) -> tuple[ReportOptions, PictureOptions]:
    from ibpulse.reports.span import ReportOptions  # not for help texts

    faults: list[str] = []
    width = arguments.width or KINDS[kind].width_pixels
    dpi = arguments.dpi or KINDS[kind].dpi
    chosen = ReportOptions(
        ports=tuple(arguments.port),
        begin=read_moment("--from", arguments.begin, faults),
        end=read_moment("--to", arguments.end, faults),
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
        window_ns=read_duration("--window", arguments.window, faults),
        active_bytes_per_second=chosen.thresholds().high,
        burst_low_bytes_per_second=chosen.thresholds().low,
    )
    faults += size_faults(width, dpi) + _faults(arguments, kind)
    if faults:
        raise ConfigError(faults)
    return chosen, options


def _faults(arguments: argparse.Namespace, kind: str) -> list[str]:
    faults: list[str] = []
    most = KINDS[kind].most_runs
    if len(arguments.files) > most:
        faults.append(f"{len(arguments.files)} recordings given, but a {kind} takes at most {most}")
    if not (math.isfinite(arguments.speed) and 0.001 <= arguments.speed <= 1000):
        faults.append(f"flag --speed: {arguments.speed} is out of bounds; give 0.001 to 1000")
    if arguments.last:
        read_duration("--last", arguments.last, faults)
        if arguments.begin:
            faults.append("flag --last: cannot be combined with --from")
    return faults


def _names(files: Sequence[Path]) -> list[str]:
    """The name of each file, with its directory if another file has the same name."""
    stems = [path.stem for path in files]
    return [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(files, stems, strict=True)
    ]


def _take(path: Path, name: str, chosen: ReportOptions, direction: str, last_ns: int) -> PictureRun:
    """One file's window to draw, and its key numbers as in a report."""
    from ibpulse.analysis.span_statistics import find_lines
    from ibpulse.pictures.picture_run import PictureNode, keep_direction, take_run  # not for help texts
    from ibpulse.reports.span import choose_window, load_part

    part, outside = load_part(path, chosen, last_ns)
    recording = keep_direction(part, direction)
    window = choose_window(path, recording, chosen, outside)
    series = window.series
    span = slice(series.lead, series.lead + series.ticks)
    facts = _describe(path, recording, chosen, outside)
    lines, peaks = find_lines(series), series.certain_bandwidth[span]
    node = PictureNode(series.bandwidth[span], series.measured[span], lines, facts, peaks)
    return take_run(name, window.recording, list(series.rails.names), node)


def _describe(path: Path, recording: Recording, chosen: ReportOptions, outside: Outside) -> tuple[tuple[str, str], ...]:
    """The key numbers as text."""
    from ibpulse.reports.report_table import plain_text
    from ibpulse.reports.rows import rows, variation_key
    from ibpulse.reports.run import describe_run
    from ibpulse.text import duration_text  # not for help texts

    scale_ns = max(FINEST_NS, recording.meta.interval_ns)
    chosen = replace(chosen, timescales_ns=(scale_ns,))
    values = describe_run(path, recording, chosen, outside=outside).values
    by_key = {row.key: row for row in rows(chosen.timescales_ns)}
    found = []
    for key, label in FACTS:
        row = by_key[key or variation_key(scale_ns)]
        text = plain_text(values[row.key], row.unit)
        found.append((label if key else f"CV at {duration_text(scale_ns)}", text))
    return tuple(found)
