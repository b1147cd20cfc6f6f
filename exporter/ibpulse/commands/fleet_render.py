"""`ibpulse fleet render DATASET -o OUT`: plots a dataset of many nodes."""

from __future__ import annotations

import argparse

from ibpulse.commands.fleet_report import read_choice
from ibpulse.config import Settings
from ibpulse.datasets.fleet_pictures import render_fleet
from ibpulse.datasets.fleet_report import describe_dataset
from ibpulse.datasets.report_source import ReportSource
from ibpulse.errors import ConfigError, PictureError
from ibpulse.pictures.options import PictureOptions, size_faults
from ibpulse.text import escape_controls, kilobytes

TYPES = (".png", ".svg")


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

    report = describe_dataset(arguments.dataset, choice)
    options = PictureOptions(arguments.width, arguments.dpi, theme=arguments.theme)
    source = ReportSource(arguments.dataset, choice)
    try:
        render_fleet(arguments.picture, source, report, arguments.sort, arguments.output, options)
    finally:
        source.close()
    size = kilobytes(arguments.output.stat().st_size)
    print(escape_controls(f"{arguments.output}: {arguments.picture} of {arguments.dataset}, {size}"))
    return 0
