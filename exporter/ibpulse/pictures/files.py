"""A figure into its file, whole or not at all, and the drawing libraries or what to install."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ibpulse.errors import PictureError
from ibpulse.pictures.theme import THEMES, settings

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


# without these, a file would say when and by which version it was made, and no two would be the same
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "ibpulse", "Format": None, "Type": None},
}


def save_figure(figure: Figure, output: Path, theme: str) -> None:
    """Write a figure as PNG or SVG, as the name says.

    Raises:
        PictureError: the file cannot be written.
    """
    kind = output.suffix.removeprefix(".").lower()

    def write(path: Path) -> None:
        with matplotlib.rc_context(settings(THEMES[theme])):
            figure.savefig(path, format=kind, metadata=_METADATA[kind])

    write_whole(output, write)


def write_whole(output: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside the output, which then takes its place.

    Raises:
        PictureError: the file cannot be written.
    """
    beside = output.with_name(f".{output.name}.tmp")
    try:
        write(beside)
        beside.replace(output)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PictureError(f"output {output} cannot be written: {reason}; name another file") from error
    finally:
        # where nothing can be written there is nothing to remove either
        with suppress(OSError):
            beside.unlink()
