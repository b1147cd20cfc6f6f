"""Recordings as pictures: heatmap, animation, distribution.

options           what is asked of a picture, and which files each kind can be written to
picture_run       what is drawn of one recording: columns of ticks, and the scale that all runs of a picture share
figure            the drawing libraries, or what to install; colours; a figure into its file
panels            the parts that several pictures share
heatmap, distribution   the still pictures
animation_layout  the parts of an animation that stand still, and the places of the others
frames            the frames of an animation
animation         an animation as GIF, MP4 or page
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibpulse.pictures.options import PictureOptions
    from ibpulse.pictures.picture_run import PictureRun


def render(kind: str, runs: Sequence[PictureRun], output: Path, options: PictureOptions) -> None:
    """Draw the runs as a picture of that kind into the file.

    Raises:
        PictureError: it cannot be drawn or written.
    """
    # matplotlib is heavy, and may be missing
    from ibpulse.pictures.distribution import draw_distribution
    from ibpulse.pictures.figure import save_figure
    from ibpulse.pictures.heatmap import draw_heatmap

    if kind == "animation":
        from ibpulse.pictures.animation import save_animation

        save_animation(runs, output, options)
        return
    draw = {"heatmap": draw_heatmap, "distribution": draw_distribution}[kind]
    save_figure(draw(runs, options), output, options.theme)
