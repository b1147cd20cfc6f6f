"""The options of the verbs about many nodes."""

from __future__ import annotations

import os
from pathlib import Path

from ibpulse.base.values import ANY_WHOLE, INSTANT, SOME_TIME, whole
from ibpulse.commands.options import Option, format_option, recording_or_address
from ibpulse.workbench.pictures.options import THEMES

LAST = "5m"
MAX_PROCESSES = 256
FLEET_PICTURES = ("waterfall", "rails", "lateness")
ORDERS = ("lateness", "rack", "name")
WIDTH, DPI = 2000, 200

CHOICE = (
    Option("dataset", type=Path, metavar="DATASET", help="Directory that `ibpulse fleet collect` wrote."),
    Option("--job", default="", metavar="ID", help="Only the parts collected for this job."),
    Option(
        "--from",
        dest="begin",
        type=INSTANT,
        help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z.",
    ),
    Option("--to", dest="end", type=INSTANT, help="End at this wall-clock time."),
)
"""The dataset, and the part of it."""
OPTIONS = {
    "fleet collect": (
        Option(
            "files",
            type=recording_or_address,
            nargs="*",
            metavar="FILE",
            help="Captures or recordings to collect instead of asking nodes, or the URL of a gateway.",
        ),
        Option(
            "-o",
            "--output",
            required=True,
            metavar="DATASET",
            help="Directory or URI (s3://bucket/path) of the dataset; one that exists is continued.",
        ),
        Option("--url", metavar="URL", help="Collect the nodes of a gateway, such as http://gateway:10056."),
        Option("--job", default="", metavar="ID", help="Collect the nodes of this job, and its ports."),
        Option("--last", type=SOME_TIME, help=f"Collect the time up to now (default: {LAST})."),
        Option(
            "--from",
            dest="begin",
            type=INSTANT,
            help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z.",
        ),
        Option("--to", dest="end", type=INSTANT, help="End at this wall-clock time (default: now)."),
        Option(
            "--processes",
            type=whole(1, MAX_PROCESSES),
            default=min(os.cpu_count() or 1, MAX_PROCESSES),
            help="Processes that compute the small tiers (default: one for each CPU).",
        ),
        Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Compute the small tiers on a Dask scheduler, such as tcp://dask:8786.",
        ),
    ),
    "fleet report": (
        *CHOICE,
        Option("--compare-job", metavar="ID", help="Compare the steps with those of this job."),
        Option("--compare-from", type=INSTANT, help="Compare with the span that begins at this time."),
        Option("--compare-to", type=INSTANT, help="End of that span."),
        format_option("text", "json", "html"),
    ),
    "fleet render": (
        *CHOICE,
        Option("-o", "--output", type=Path, required=True, metavar="OUT", help="Picture to write, .png or .svg."),
        Option(
            "--picture",
            choices=FLEET_PICTURES,
            default="waterfall",
            help="waterfall: nodes over time; rails: nodes and rails; lateness: lateness over time (default: "
            "waterfall).",
        ),
        Option(
            "--sort",
            choices=ORDERS,
            default="lateness",
            help=f"Order of the nodes: {', '.join(ORDERS)} (default: lateness).",
        ),
        Option("--theme", choices=THEMES, default="light", help="Colours: light or dark (default: light)."),
        Option("--width", type=ANY_WHOLE, default=WIDTH, metavar="PIXELS", help=f"Width (default: {WIDTH})."),
        Option(
            "--dpi",
            type=ANY_WHOLE,
            default=DPI,
            metavar="NUMBER",
            help=f"Pixels per inch; more enlarges the text (default: {DPI}).",
        ),
    ),
}
