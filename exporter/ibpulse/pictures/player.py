"""An animation as a page that needs nothing else: the stage as an image, what moves as numbers, and a small script."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from ibpulse.pictures.libraries import Image
from ibpulse.pictures.motion import Motion
from ibpulse.pictures.options import PictureOptions
from ibpulse.pictures.stage import BACKGROUND, BAR, CURSOR, HOLE_FILL, HOLE_LINE, MARK, Band, Stage
from ibpulse.pictures.theme import FONT, THEMES

TEMPLATE = "player.html"
_PLACES = {
    "background": BACKGROUND,
    "hole": HOLE_FILL,
    "hatch": HOLE_LINE,
    "bar": BAR,
    "mark": MARK,
    "cursor": CURSOR,
}


def write_page(path: Path, title: str, stage: Stage, motions: Sequence[Motion], options: PictureOptions) -> None:
    """Write the page."""
    colours = THEMES[options.theme]
    movie = {
        "framesPerSecond": options.frames_per_second,
        "frames": len(motions[0].texts),
        "font": f"{stage.letter_pixels}px '{FONT}', Verdana, sans-serif",
        "ink": colours.text,
        "palette": [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in stage.palette.tolist()],
        "places": _PLACES,
        "runs": [_motion(band, motion) for band, motion in zip(stage.bands, motions, strict=True)],
    }
    page = resources.files("ibpulse.pictures").joinpath(TEMPLATE).read_text(encoding="utf-8")
    for mark, text in {
        "{{title}}": html.escape(title),
        "{{background}}": colours.background,
        "{{text}}": colours.text,
        "{{width}}": str(stage.base.shape[1]),
        "{{height}}": str(stage.base.shape[0]),
        "{{stage}}": _png(stage),
        # a name in it must not end the script
        "{{movie}}": json.dumps(movie, separators=(",", ":")).replace("<", "\\u003c"),
    }.items():
        page = page.replace(mark, text)
    path.write_text(page, encoding="utf-8")


def _motion(band: Band, motion: Motion) -> dict[str, Any]:
    return {
        **asdict(band),
        "ports": len(motion.strip),
        "strip": base64.b64encode(motion.strip.tobytes()).decode(),
        "ends": motion.ends.tolist(),
        "lengths": motion.bars.tolist(),
        "marks": motion.marks.tolist(),
        "cursor": motion.cursor.tolist(),
        "begin": motion.begin.tolist(),
        "texts": motion.texts,
    }


def _png(stage: Stage) -> str:
    height, width = stage.base.shape
    picture = Image.frombytes("P", (width, height), stage.base.tobytes())
    picture.putpalette(stage.palette.tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
