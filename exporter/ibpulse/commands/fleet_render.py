"""`ibpulse fleet render DATASET -o OUT`: plots a dataset of many nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import ANY_WHOLE
from ibpulse.commands.fleet_report import add_choice, read_choice
from ibpulse.errors import ConfigError, PictureError
from ibpulse.pictures.options import THEMES, PictureOptions, size_faults
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from ibpulse.config import Settings

FLEET_PICTURES = ("waterfall", "rails", "lateness")
ORDERS = ("lateness", "rack", "name")
TYPES = (".png", ".svg")
WIDTH, DPI = 2000, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the dataset, its part, the kind of picture, and the drawing options."""
    add_choice(parser)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="Picture to write, .png or .svg."
    )
    parser.add_argument(
        "--picture",
        choices=FLEET_PICTURES,
        default="waterfall",
        help="waterfall: nodes over time; rails: nodes and rails; lateness: lateness over time (default: waterfall).",
    )
    parser.add_argument(
        "--sort",
        choices=ORDERS,
        default="lateness",
        help=f"Order of the nodes: {', '.join(ORDERS)} (default: lateness).",
    )
    parser.add_argument("--theme", choices=THEMES, default="light", help="Colours: light or dark (default: light).")
    parser.add_argument("--width", type=ANY_WHOLE, default=WIDTH, metavar="PIXELS", help=f"Width (default: {WIDTH}).")
    parser.add_argument(
        "--dpi",
        type=ANY_WHOLE,
        default=DPI,
        metavar="NUMBER",
        help=f"Pixels per inch; more enlarges the text (default: {DPI}).",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Draw the picture and print its path and size.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        DatasetError: the dataset cannot be read.
        PictureError: the picture cannot be drawn or written.
    """
    faults: list[str] = arguments.faults
    if not faults:
        faults += size_faults(arguments.width, arguments.dpi)
    choice = read_choice(arguments, faults)
    if faults:
        raise ConfigError(faults)
    if arguments.output.suffix.lower() not in TYPES:
        raise PictureError(f"output {arguments.output}: a picture of a dataset can only be written as .png or .svg")
    from ibpulse.datasets.fleet_pictures import render_fleet  # not for help texts
    from ibpulse.datasets.fleet_report import describe_dataset
    from ibpulse.datasets.report_source import ReportSource

    report = describe_dataset(arguments.dataset, choice)
    options = PictureOptions(arguments.width, arguments.dpi, theme=arguments.theme)
    source = ReportSource(arguments.dataset, choice)
    try:
        render_fleet(arguments.picture, source, report, arguments.sort, arguments.output, options)
    finally:
        source.close()
    size = f"{arguments.output.stat().st_size / 1e3:,.0f} kB"
    print(escape_controls(f"{arguments.output}: {arguments.picture} of {arguments.dataset}, {size}"))
    return 0
