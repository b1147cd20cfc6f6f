"""Runs to a file, by the kind of picture. It must not draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ibpulse.pictures.animation import save_animation
from ibpulse.pictures.distribution import draw_distribution
from ibpulse.pictures.files import save_figure
from ibpulse.pictures.heatmap import draw_heatmap
from ibpulse.pictures.options import PictureOptions
from ibpulse.pictures.run import PictureRun


def render(kind: str, runs: Sequence[PictureRun], output: Path, options: PictureOptions) -> None:
    """Draw the runs as a picture of that kind into the file.

    Raises:
        PictureError: it cannot be drawn or written.
    """
    if kind == "animation":
        save_animation(runs, output, options)
        return
    draw = {"heatmap": draw_heatmap, "distribution": draw_distribution}[kind]
    save_figure(draw(runs, options), output, options.theme)
