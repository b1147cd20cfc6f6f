"""Colours and sizes. Facts alone; it must not draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COLOUR_MAP = "viridis"
"""Perceptually even, and made for people with a colour vision deficiency too (van der Walt, Smith, 2015)."""

FONT = "DejaVu Sans"
"""The font that comes with matplotlib: the same letters on every machine."""

SMALL, USUAL, LARGE = 8.0, 9.0, 11.5
HATCH = "////"


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a theme. `runs` are of the palette of Okabe and Ito, in the order in which runs take them."""

    background: str
    text: str
    faint: str
    grid: str
    hole: str
    hatch: str
    line: str
    runs: tuple[str, ...]


THEMES: Mapping[str, Colours] = {
    "light": Colours(
        background="#ffffff",
        text="#1a1d21",
        faint="#59616b",
        grid="#d9dde2",
        hole="#e4e4e4",
        hatch="#a33b3b",
        line="#0072b2",
        runs=("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    ),
    "dark": Colours(
        background="#12161c",
        text="#eceff3",
        faint="#a3adb8",
        grid="#333b45",
        hole="#4a4a4a",
        hatch="#f08a8a",
        line="#56b4e9",
        runs=("#56b4e9", "#e69f00", "#2fc49c", "#e3a3c7"),
    ),
}


def settings(colours: Colours) -> dict[Any, Any]:
    """matplotlib's settings for a theme; texts of an SVG stay texts, and the same picture is the same bytes."""
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
        # names of files may hold dollars
        "text.parse_math": False,
        "xtick.color": colours.faint,
        "xtick.labelcolor": colours.text,
        "xtick.labelsize": SMALL,
        "ytick.color": colours.faint,
        "ytick.labelcolor": colours.text,
        "ytick.labelsize": SMALL,
    }
