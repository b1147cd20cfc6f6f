"""The frames of an animation: a copy of the stage into which numbers are written. No figure is made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ibpulse.pictures.libraries import Image, ImageDraw, ImageFont, font_manager
from ibpulse.pictures.motion import UNKNOWN, Motion
from ibpulse.pictures.stage import BACKGROUND, BAR, CURSOR, HOLE_FILL, HOLE_LINE, INK, INKS, MARK, Band, Rect, Stage
from ibpulse.pictures.theme import FONT

Pixels = npt.NDArray[np.uint8]

HATCH_PIXELS = 6
WINDOW_PIXELS = 4


def draw_frames(stage: Stage, motions: Sequence[Motion]) -> Iterator[Pixels]:
    """The frames, one after the other: (height, width), places in the stage's palette."""
    font = ImageFont.truetype(font_manager.findfont(FONT), stage.letter_pixels)
    for frame in range(len(motions[0].texts)):
        picture = stage.base.copy()
        for band, motion in zip(stage.bands, motions, strict=True):
            _draw_rails(_part(picture, band.rails), band, motion, frame)
            _draw_bars(_part(picture, band.bars), band, motion, frame)
            _draw_cursor(_part(picture, band.timeline), motion, frame)
            _write(_part(picture, band.text), motion.texts[frame], font)
        yield picture


def _part(picture: Pixels, place: Rect) -> Pixels:
    return picture[place.top : place.top + place.height, place.left : place.left + place.width]


def _draw_rails(part: Pixels, band: Band, motion: Motion, frame: int) -> None:
    end = int(motion.ends[frame])
    shown = motion.strip[:, end - band.columns : end]
    at = np.arange(band.rails.width) * band.columns // band.rails.width
    part[:] = np.repeat(shown[:, at], band.row, axis=0)
    part[(part == HOLE_FILL) & _hatch(part.shape)] = HOLE_LINE
    part[band.row - 1 :: band.row] = BACKGROUND


def _hatch(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return np.asarray((rows + columns) % HATCH_PIXELS == 0)


def _draw_bars(part: Pixels, band: Band, motion: Motion, frame: int) -> None:
    for port, (length, mark) in enumerate(zip(motion.bars[frame], motion.marks[frame], strict=True)):
        row = part[port * band.row + 2 : (port + 1) * band.row - 2]
        if length == UNKNOWN:
            row[:] = np.where(_hatch(row.shape), HOLE_LINE, HOLE_FILL)
            continue
        row[:, 1:length] = BAR
        if mark != UNKNOWN:
            row[:, max(1, mark - 1) : mark + 1] = MARK


def _draw_cursor(part: Pixels, motion: Motion, frame: int) -> None:
    begin, now = int(motion.begin[frame]), int(motion.cursor[frame])
    part[:WINDOW_PIXELS, begin : now + 1] = CURSOR
    part[:, max(0, now - 1) : now + 1] = CURSOR


def _write(part: Pixels, text: str, font: ImageFont.FreeTypeFont) -> None:
    """The text, at the right end of its place."""
    mask = Image.new("L", (part.shape[1], part.shape[0]))
    ImageDraw.Draw(mask).text((part.shape[1] - 1, part.shape[0] // 2), text, fill=255, font=font, anchor="rm")
    ink = np.asarray(mask).astype(np.uint16) * (INKS - 1) // 255
    part[:] = np.where(ink > 0, ink + INK, part)
