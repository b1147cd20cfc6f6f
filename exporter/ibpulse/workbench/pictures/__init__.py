"""Recordings as pictures: heatmap, animation, distribution.

options  the options of a picture, and the file types of each kind
run      the drawn part of one recording: columns of samples, and the scale shared by all runs
panels   the drawing libraries, or how to install them; colours; the parts that several pictures share; writing a file
heatmap, distribution   two kinds of still pictures
still    pictures of recordings, with the key numbers of their reports
layout   the static parts of an animation, and the positions of the moving ones
animation  the frames of an animation, as GIF or MP4
steps, trace   predicted steps; a trace of the profiler above the wire
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.workbench.pictures.steps import PredictedPicture, predicted_steps_url, save_predicted_steps
    from ibpulse.workbench.pictures.trace import save_trace_picture

__all__ = ["PredictedPicture", "predicted_steps_url", "save_predicted_steps", "save_trace_picture"]

__getattr__ = late_names(
    __name__,
    {
        "PredictedPicture": "steps",
        "predicted_steps_url": "steps",
        "save_predicted_steps": "steps",
        "save_trace_picture": "trace",
    },
)
"""Matplotlib is optional and slow to import."""
