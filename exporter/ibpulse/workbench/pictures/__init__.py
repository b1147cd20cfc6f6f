"""Recordings as pictures: heatmap, animation, distribution.

options  the options of a picture, and the file types of each kind
run      the drawn part of one recording: columns of samples, and the scale shared by all runs
panels   the drawing libraries, or how to install them; colours; the parts that several pictures share; writing a file
heatmap, distribution   two kinds of still pictures
still    pictures of recordings, with the key numbers of their reports
animation  the layout of an animation, and its frames as GIF or MP4
steps    predicted steps
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.workbench.pictures.steps import PredictedPicture, save_predicted_steps

__all__ = ["PredictedPicture", "save_predicted_steps"]

__getattr__ = late_names(__name__, {"PredictedPicture": "steps", "save_predicted_steps": "steps"})
"""Matplotlib is optional and slow to import."""
