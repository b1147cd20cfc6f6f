"""matplotlib and pillow for the modules beside this one, or the sentence that says what to install.

Figures are made without pyplot, so nothing is shared between two pictures. It must hold nothing else.
"""

from __future__ import annotations

from ibpulse.errors import PictureError

try:
    import matplotlib
    from matplotlib import font_manager, ticker
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise PictureError(
        "pictures need matplotlib and pillow; install them with pip install 'ibpulse[pictures]'"
    ) from error

__all__ = [
    "Axes",
    "Figure",
    "FigureCanvasAgg",
    "Image",
    "ImageDraw",
    "ImageFont",
    "font_manager",
    "matplotlib",
    "ticker",
]
