"""Recordings as pictures: heatmap, animation, distribution.

options  the options of a picture, and the file types of each kind
run      the drawn part of one recording: columns of samples, and the scale shared by all runs
figure   the drawing libraries, or how to install them; colours; writing a figure to a file
panels   the parts that several pictures share
heatmap, distribution   two kinds of still pictures
still    still pictures of recordings, with the key numbers of their reports
layout   the static parts of an animation, and the positions of the moving ones
animation  the frames of an animation, as GIF or MP4
steps, trace   predicted steps; a trace of the profiler above the wire
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ibpulse.workbench.pictures.options import PictureOptions
    from ibpulse.workbench.pictures.run import PictureRun
    from ibpulse.workbench.pictures.steps import PredictedPicture, predicted_steps_url, save_predicted_steps
    from ibpulse.workbench.pictures.still import draw_report
    from ibpulse.workbench.pictures.trace import save_trace_picture

__all__ = [
    "PredictedPicture",
    "draw_report",
    "predicted_steps_url",
    "render",
    "save_predicted_steps",
    "save_trace_picture",
]

__getattr__ = late_names(
    __name__,
    {
        "PredictedPicture": "steps",
        "draw_report": "still",
        "predicted_steps_url": "steps",
        "save_predicted_steps": "steps",
        "save_trace_picture": "trace",
    },
)
"""Matplotlib is optional and slow to import."""


def render(
    kind: str,
    runs: Sequence[PictureRun],
    output: Path,
    options: PictureOptions,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Draw the runs as a picture of that kind into the file; `announce` gets a sentence if that takes long.

    Raises:
        PictureError: the picture cannot be drawn or written.
    """
    # matplotlib is slow to import, and optional
    from ibpulse.workbench.pictures.distribution import draw_distribution
    from ibpulse.workbench.pictures.figure import save_figure
    from ibpulse.workbench.pictures.heatmap import draw_heatmap

    if kind == "animation":
        from ibpulse.workbench.pictures.animation import save_animation

        save_animation(runs, output, options, announce)
        return
    draw = {"heatmap": draw_heatmap, "distribution": draw_distribution}[kind]
    save_figure(draw(runs, options), output, options.theme)
