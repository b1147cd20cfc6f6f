"""A report as one HTML page that needs nothing else: no script, no font, no picture. It must not know what it says."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.errors import RecordingError
from ibpulse.reporters.cells import columns, sections
from ibpulse.reporters.notes import about, remarks
from ibpulse.reporters.report import Report

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "page.html.j2"


def render_page(report: Report) -> str:
    """The report as HTML.

    Raises:
        RecordingError: jinja2 is not installed.
    """
    return _template().render(
        names=report.names,
        abouts=[about(run) for run in report.runs],
        columns=columns(report),
        sections=sections(report),
        remarks=remarks(report),
    )


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise RecordingError("reports as HTML need jinja2; install it with pip install 'ibpulse[recording]'") from error
    # file names and labels of captures come from elsewhere
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE)
