"""The drawing libraries, or how to install them; colours and sizes; writing a figure to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse.base.errors import PictureError
from ibpulse.base.files import write_whole
from ibpulse.base.installation import how_to_install

try:
    import matplotlib
    from matplotlib import font_manager, ticker
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise PictureError(f"pictures need matplotlib and pillow; {how_to_install('matplotlib', 'pillow')}") from error

__all__ = [
    "Axes",
    "Figure",
    "FigureCanvasAgg",
    "Image",
    "ImageDraw",
    "ImageFont",
    "Polygon",
    "font_manager",
    "matplotlib",
    "ticker",
]

COLOUR_MAP = "viridis"
"""Perceptually uniform, also for people with colour vision deficiency (van der Walt, Smith, 2015)."""

FONT = "DejaVu Sans"
"""The font that comes with matplotlib: identical on every machine."""

TINY, SMALL, USUAL, LARGE = 7.0, 8.0, 9.0, 11.5
HATCH = "////"


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a theme. `runs` come from the palette of Okabe and Ito, in the order of the runs.

    Missing data has the neutral colour `hole`, hatched with `hatch`. A link that is down is a line of colour `down` on
    the background. Both differ from the colour map in shape as well, hence also without colours.
    """

    background: str
    text: str
    faint: str
    grid: str
    hole: str
    hatch: str
    down: str
    line: str
    runs: tuple[str, ...]


THEMES: Mapping[str, Colours] = {
    "light": Colours(
        background="#ffffff",
        text="#1a1d21",
        faint="#59616b",
        grid="#d9dde2",
        hole="#e4e4e4",
        hatch="#858d97",
        down="#d55e00",
        line="#0072b2",
        runs=("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    ),
    "dark": Colours(
        background="#12161c",
        text="#eceff3",
        faint="#a3adb8",
        grid="#333b45",
        hole="#3c444e",
        hatch="#98a2ae",
        down="#ff8a3d",
        line="#56b4e9",
        runs=("#56b4e9", "#e69f00", "#2fc49c", "#e3a3c7"),
    ),
}


def settings(colours: Colours) -> dict[Any, Any]:
    """matplotlib's settings for a theme; SVG texts stay texts, and equal pictures are equal bytes."""
    return {
        "axes.edgecolor": colours.faint,
        "axes.facecolor": colours.background,
        "axes.labelcolor": colours.text,
        "axes.labelsize": USUAL,
        "axes.linewidth": 0.8,
        "axes.titlesize": USUAL,
        "figure.facecolor": colours.background,
        "font.family": FONT,
        "font.size": USUAL,
        "grid.color": colours.grid,
        "hatch.linewidth": 0.7,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "path.simplify": False,
        "savefig.facecolor": colours.background,
        "svg.fonttype": "none",
        "svg.hashsalt": "ibpulse",
        "text.color": colours.text,
        # file names may contain dollar signs
        "text.parse_math": False,
        "xtick.color": colours.faint,
        "xtick.labelcolor": colours.text,
        "xtick.labelsize": SMALL,
        "ytick.color": colours.faint,
        "ytick.labelcolor": colours.text,
        "ytick.labelsize": SMALL,
    }


# otherwise files contain a date and a version, and no two are equal
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "ibpulse", "Format": None, "Type": None},
}


def save_figure(figure: Figure, output: Path, theme: str) -> None:
    """Write a figure as PNG or SVG, depending on the suffix.

    Raises:
        PictureError: the file cannot be written.
    """
    kind = output.suffix.removeprefix(".").lower()

    def write(path: Path) -> None:
        with matplotlib.rc_context(settings(THEMES[theme])):
            figure.savefig(path, format=kind, metadata=_METADATA[kind])

    write_whole(output, write, PictureError)
