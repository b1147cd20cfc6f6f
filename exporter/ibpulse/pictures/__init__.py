"""Recordings as pictures: heatmap, animation, distribution.

options  the options of a picture, and the file types of each kind
run      the drawn part of one recording: columns of samples, and the scale shared by all runs
figure   the drawing libraries, or how to install them; colours; writing a figure to a file
panels   the parts that several pictures share
heatmap, distribution   the still pictures
layout   the static parts of an animation, and the positions of the moving ones
animation  the frames of an animation, as GIF or MP4
steps, trace   predicted steps; a trace of the profiler above the wire
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ibpulse.pictures.options import PictureOptions
    from ibpulse.pictures.run import PictureRun
    from ibpulse.pictures.steps import PredictedPicture, predicted_steps_url, save_predicted_steps
    from ibpulse.pictures.trace import save_trace_picture

__all__ = ["PredictedPicture", "predicted_steps_url", "render", "save_predicted_steps", "save_trace_picture"]

_PLACES = {
    "PredictedPicture": "steps",
    "predicted_steps_url": "steps",
    "save_predicted_steps": "steps",
    "save_trace_picture": "trace",
}


def __getattr__(name: str) -> Any:
    """Import the pictures of steps and traces on first use, because matplotlib is optional and slow to import.

    Raises:
        PictureError: it is not installed.
    """
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    from ibpulse.pictures.distribution import draw_distribution
    from ibpulse.pictures.figure import save_figure
    from ibpulse.pictures.heatmap import draw_heatmap

    if kind == "animation":
        from ibpulse.pictures.animation import save_animation

        save_animation(runs, output, options, announce)
        return
    draw = {"heatmap": draw_heatmap, "distribution": draw_distribution}[kind]
    save_figure(draw(runs, options), output, options.theme)
