"""The options of the verbs that record and compare."""

from __future__ import annotations

from pathlib import Path

from ibpulse.agent.config.settings import INTERVAL
from ibpulse.base.units import AMOUNT_UNITS, RATE_UNITS
from ibpulse.base.values import ANY_WHOLE, RATIO, SOME_RATE, SOME_TIME, TIME, many, number, whole
from ibpulse.commands.options import TRIM, WINDOW, Option, force_option, output_options, recording_options, url_options
from ibpulse.core.model import DIRECTIONS
from ibpulse.workbench.pictures.options import KINDS, STATISTICS, THEMES, UNITS

IDLE = "10s"
TIME_UNITS = ("s", "ms", "us", "ns")
FORMATS = ("text", "markdown", "json", "html")
TIMESCALES = "10ms,50ms,100ms,1s"
MIN_RESAMPLES, MAX_RESAMPLES = 100, 100_000
# a GIF gives frame durations in whole hundredths of a second
FRAME_RATES = (1, 2, 4, 5, 10, 20, 25, 50)

OPTIONS = {
    "record": (
        Option("file", type=Path, metavar="FILE", help="Recording to write, a Parquet file."),
        Option("--duration", type=SOME_TIME, help="Length of the recording, like 60s or 8h (default: until Ctrl-C)."),
        Option(
            "--until-idle",
            type=SOME_TIME,
            nargs="?",
            const=IDLE,
            help=f"Stop once the rails have been active and then idle for this long (without a value: {IDLE}).",
        ),
        TRIM,
        *url_options(
            "Record the samples of a running daemon, such as node7:10055 or https://node7, instead of this node."
        ),
        force_option("FILE"),
    ),
    "replay": (
        Option("file", type=Path, metavar="FILE", help="Recording or capture to replay."),
        Option("directory", type=Path, metavar="DIR", help="New or empty directory, preferably on tmpfs."),
        Option("--speed", type=number(0.01, 1000, "FACTOR", "0.5"), default=1.0, help="Replay speed (default: 1.0)."),
        Option("--loop", action="store_true", help="Start over at the end of the recording, until Ctrl-C."),
        Option(
            "--delay",
            type=TIME,
            default="0s",
            help="Time to hold the counters still before the first sample (default: 0s).",
        ),
        Option(
            "--interval",
            type=INTERVAL,
            help="Time between two values of a counter; use the sampler's interval (default: that of the recording).",
        ),
    ),
    "import": (
        Option("file", type=Path, metavar="FILE", help="Log to convert: CSV, optionally gzipped, or Parquet."),
        Option("-o", "--output", type=Path, required=True, metavar="OUT", help="Recording to write."),
        Option("--time", required=True, metavar="COLUMN", help="Column with timestamps: numbers or text, in UTC."),
        Option(
            "--time-unit",
            choices=TIME_UNITS,
            help="Unit of numeric timestamps: s, ms, us or ns (default: guessed from their magnitude).",
        ),
        Option("--port", metavar="COLUMN", help="Column with the port name, for a log with one row per port."),
        Option(
            "--transmit",
            metavar="COLUMN",
            help="Column with the transmitted amount; for a log with one column per port, a pattern such as "
            "'{port}_tx'.",
        ),
        Option(
            "--receive", metavar="COLUMN", help="Column with the received amount, or a pattern like that of --transmit."
        ),
        Option(
            "--unit",
            choices=(*AMOUNT_UNITS, *RATE_UNITS),
            default="bytes",
            metavar="UNIT",
            help=f"Unit of counters: {', '.join(AMOUNT_UNITS)}; of rates: {', '.join(RATE_UNITS)} (default: bytes).",
        ),
        Option(
            "--since-before",
            action="store_true",
            help="Values are amounts since the previous row, not running counters.",
        ),
        Option(
            "--interval",
            type=SOME_TIME,
            help="Sampling interval of the recording (default: close to the spacing of the log's rows).",
        ),
        Option(
            "--longest-gap",
            type=SOME_TIME,
            help="Longest gap between rows to fill; longer gaps become missing data (default: 5 times the usual "
            "spacing).",
        ),
        Option("--line-rate", type=SOME_RATE, help="Line rate of each port, one direction, such as 50GB/s."),
        Option("--host", metavar="NAME", help="Node name to store in the recording."),
    ),
    "report": (
        *recording_options("Files, or addresses of daemons; the first one is the baseline."),
        Option(
            "--format",
            choices=FORMATS,
            help=f"Output format: {', '.join(FORMATS)} (default: that of the suffix of OUT, otherwise text).",
        ),
        Option("--brief", action="store_true", help="Show only the ten rows that say most."),
        *output_options("File to write, such as report.html (default: standard output).", required=False),
        *WINDOW,
        Option(
            "--timescales",
            type=many(SOME_TIME, lambda scales: tuple(dict.fromkeys(scales))),
            default=TIMESCALES,
            help=f"Timescales of burstiness; multiples of the sampling interval (default: {TIMESCALES}).",
        ),
        Option(
            "--least-change",
            type=number(0, None, "RATIO", "0.01"),
            default=0.01,
            help="Smallest change to flag, if statistically significant (default: 0.01).",
        ),
        Option(
            "--resamples",
            type=whole(MIN_RESAMPLES, MAX_RESAMPLES),
            default=4000,
            help="Number of bootstrap resamples (default: 4000).",
        ),
        Option(
            "--gpu-active",
            repeated=True,
            type=RATIO,
            help="Share of the time in which the GPUs compute, for the bounds of exposed communication; once for all "
            "recordings, or once for each (default: unknown).",
        ),
        Option(
            "--claim",
            type=SOME_TIME,
            help="Saving per step to check against the time on the wire, for two recordings (default: the measured "
            "one).",
        ),
        Option("--seed", type=ANY_WHOLE, default=0, metavar="NUMBER", help="Seed of the resampling (default: 0)."),
    ),
    "render": (
        *recording_options(
            "Files, or addresses of daemons, drawn side by side on a common scale; for Perfetto also datasets."
        ),
        *output_options(
            "Picture to write, with the extension .png, .svg, .gif or .mp4, or .perfetto: a trace for Perfetto.",
            required=True,
        ),
        Option(
            "--job",
            default="",
            metavar="ID",
            help="Trace the nodes of this job, of the gateway at --url or of a dataset (.perfetto only).",
        ),
        Option(
            "--picture",
            choices=tuple(KINDS),
            default="",
            help=f"Kind of picture: {', '.join(KINDS)}. A heatmap is .png or .svg, an animation .gif or .mp4. "
            "Default: the first that matches the extension.",
        ),
        *WINDOW,
        Option(
            "--direction",
            choices=(*DIRECTIONS, "both"),
            default="both",
            help="Direction to draw: transmit, receive, or the sum of both (default: both).",
        ),
        Option(
            "--unit", choices=UNITS, default="GB/s", help=f"Unit of the scale: {' or '.join(UNITS)} (default: GB/s)."
        ),
        Option(
            "--statistic",
            choices=STATISTICS,
            default="both",
            help="Statistic of a heatmap column: max, mean, or both in two maps (default: both).",
        ),
        Option("--theme", choices=THEMES, default="light", help=f"Colours: {' or '.join(THEMES)} (default: light)."),
        Option(
            "--width", type=ANY_WHOLE, metavar="PIXELS", help="Width of the picture (default: 2000; animation: 1000)."
        ),
        Option(
            "--dpi",
            type=ANY_WHOLE,
            metavar="NUMBER",
            help="Pixels per inch; higher values enlarge the text (default: 200; animation: 130).",
        ),
        Option(
            "--fps",
            type=ANY_WHOLE,
            choices=FRAME_RATES,
            default=20,
            help="Frames per second of an animation (default: 20).",
        ),
        Option(
            "--speed",
            type=number(0.001, 1000, "FACTOR", "0.5"),
            default=1.0,
            help="Speed of an animation (default: 1.0, real time).",
        ),
        Option("--window", type=SOME_TIME, default="2s", help="Time span that an animation shows (default: 2s)."),
    ),
}
