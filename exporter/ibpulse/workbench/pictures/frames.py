"""The frames of an animation: the moving parts as numbers of pixels, written into a copy of the layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import PictureError
from ibpulse.core.arrays import Counts, Floats, Pixels
from ibpulse.workbench.pictures.animation_layout import (
    BACKGROUND,
    BAR,
    CURSOR,
    DOWN,
    HOLE_FILL,
    HOLE_LINE,
    INK,
    INKS,
    LEVELS,
    MARK,
    Band,
    Layout,
    Rect,
)
from ibpulse.workbench.pictures.figure import FONT, Image, ImageDraw, ImageFont, font_manager
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.picture_run import PictureRun, Scale, reduce

UNKNOWN, LINK_DOWN = -1, -2
MOST_FRAMES = 6000
HATCH_PIXELS = 6
WINDOW_PIXELS = 4
# between the lines of two events, and from one dash of such a line to the next
EVENT_PIXELS, DASH_PIXELS = 16, 6


@dataclass(frozen=True, slots=True)
class Motion:
    """A run in motion.

    `strip` (ports, columns) holds indices into the palette; frame i shows those before column `ends[i]`. `events` are
    the columns at which something happened. `bars` and `marks` (frames, ports) are lengths in pixels, -1 if unknown, -2
    if the link is down. `cursor` and `begin` (frames,) are pixels on the timeline: now, and the oldest column shown.
    `texts` has a line for each frame.
    """

    strip: npt.NDArray[np.uint8]
    ends: Counts
    events: Counts
    bars: Counts
    marks: Counts
    cursor: Counts
    begin: Counts
    texts: tuple[str, ...]


def count_frames(runs: Sequence[PictureRun], options: PictureOptions) -> int:
    """Frames from the beginning to the end of the longest run.

    Raises:
        PictureError: there are too many.
    """
    longest = max(run.span_seconds for run in runs)
    frames = max(1, math.ceil(longest * options.frames_per_second / options.speed - 1e-9))
    if frames > MOST_FRAMES:
        raise PictureError(
            f"an animation of {longest:g} s would have {frames} frames, but the maximum is {MOST_FRAMES}; "
            "cut it with --last, or increase --speed"
        )
    return frames


def build_motion(run: PictureRun, band: Band, scale: Scale, frames: int, options: PictureOptions) -> Motion:
    """The run in motion on its band; a run shorter than the others stops at its end."""
    frame_ticks = options.speed / options.frames_per_second / run.interval_seconds
    instants = np.arange(1, frames + 1) * frame_ticks
    ends = np.clip(np.floor(instants + 1e-6).astype(np.int64), 1, run.ticks)
    starts = np.clip(np.minimum(ends - 1, np.floor(ends - frame_ticks + 1e-6).astype(np.int64)), 0, None)
    shown = band.columns * band.ticks
    values, peaks = scale.of_ports(run), scale.of_ports(run, peaks=True)
    bars = _lengths(_means(values, run.seconds, starts, ends), scale.port, band.bars.width)
    bars[(bars <= 0) & run.down[:, ends - 1].T] = LINK_DOWN
    marks = np.stack([_highest(peaks[:, max(0, end - shown) : end]) for end in ends.tolist()])
    part = band.timeline.width / run.ticks
    return Motion(
        strip=_strip(run, peaks, band, scale),
        ends=ends // band.ticks + band.columns,
        events=_event_columns(run, band),
        bars=bars,
        marks=_lengths(marks, scale.port, band.bars.width - 1),
        cursor=np.minimum(np.floor(ends * part).astype(np.int64), band.timeline.width - 1),
        begin=np.floor(np.maximum(ends - shown, 0) * part).astype(np.int64),
        texts=_texts(run, scale, starts, ends, shown),
    )


def _strip(run: PictureRun, values: Floats, band: Band, scale: Scale) -> npt.NDArray[np.uint8]:
    """Empty space before the first column, as wide as the visible part."""
    columns = reduce(values, run.seconds, -(-run.ticks // band.ticks), run.down)
    levels = np.full(columns.highest.shape, HOLE_FILL, dtype=np.uint8)
    known = ~np.isnan(columns.highest)
    levels[known] = np.round(np.clip(columns.highest[known] / scale.port, 0, 1) * (LEVELS - 1))
    levels[columns.down] = DOWN
    before = np.full((len(levels), band.columns), BACKGROUND, dtype=np.uint8)
    return np.concatenate((before, levels), axis=1)


def _event_columns(run: PictureRun, band: Band) -> Counts:
    """The columns of the strip at which something happened, not too close to each other."""
    least = EVENT_PIXELS * band.columns / band.rails.width
    found: list[int] = []
    for event in run.events:
        column = (event.time_ns - run.begin_ns) // (run.interval_ns * band.ticks) + band.columns
        if not found or column - found[-1] >= least:
            found.append(column)
    return np.array(found, dtype=np.int64)


def _means(values: Floats, seconds: Floats, starts: Counts, ends: Counts) -> Floats:
    """The mean of each row from each start to its end: (spans, rows), NaN if unknown."""
    known = ~np.isnan(values)
    weight = np.where(known, seconds, 0.0)
    moved = np.where(known, values, 0.0) * weight
    sums = [np.concatenate((np.zeros((len(values), 1)), np.cumsum(one, axis=1)), axis=1) for one in (moved, weight)]
    above, below = (one[:, ends] - one[:, starts] for one in sums)
    out = np.full(above.shape, np.nan)
    # rounding errors of cancelling sums do not count as time
    np.divide(above, below, out=out, where=below > 1e-9)
    return out.T


def _highest(values: Floats) -> Floats:
    return np.asarray(np.fmax.reduce(values, axis=1))


def _lengths(values: Floats, highest: float, width: int) -> Counts:
    known = ~np.isnan(values)
    out = np.full(values.shape, UNKNOWN, dtype=np.int64)
    out[known] = np.round(np.clip(values[known] / highest, 0, 1) * width)
    return out


def _texts(run: PictureRun, scale: Scale, starts: Counts, ends: Counts, shown: int) -> tuple[str, ...]:
    node, peaks = scale.of_node(run), scale.of_node(run, peaks=True)
    now = _means(node[None], run.node.seconds[None], starts, ends)[:, 0]
    oldest = np.maximum(ends - shown, 0)
    mean = _means(node[None], run.node.seconds[None], oldest, ends)[:, 0]
    peak = [
        float(_highest(peaks[None, first:end])[0]) for first, end in zip(oldest.tolist(), ends.tolist(), strict=True)
    ]
    return tuple(
        f"{end * run.interval_seconds:7.2f} s   node {_number(one)} {scale.sign}   "
        f"shown: mean {_number(middle)}, peak {_number(top)} {scale.sign}"
        for end, one, middle, top in zip(ends.tolist(), now.tolist(), mean.tolist(), peak, strict=True)
    )


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def draw_frames(
    layout: Layout, motions: Sequence[Motion], first: int = 0, count: int | None = None
) -> Iterator[Pixels]:
    """The frames in order, `count` of them from `first` on: (height, width), indices into the layout's palette."""
    every = len(motions[0].texts)
    end = every if count is None else min(every, first + count)
    font = ImageFont.truetype(font_manager.findfont(FONT), layout.letter_pixels)
    for frame in range(first, end):
        picture = layout.base.copy()
        for band, motion in zip(layout.bands, motions, strict=True):
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
    part[(part == DOWN) & ~_middle(band, part.shape[0])[:, None]] = BACKGROUND
    part[band.row - 1 :: band.row] = BACKGROUND
    for column in motion.events[(motion.events >= end - band.columns) & (motion.events < end)].tolist():
        at_pixel = -(-(column - end + band.columns) * band.rails.width // band.columns)
        _draw_event(part[:, at_pixel])


def _draw_event(pixels: Pixels) -> None:
    """A dashed line; its ink is the colour of texts."""
    dashes = np.arange(len(pixels)) % DASH_PIXELS
    pixels[dashes < DASH_PIXELS // 2] = INK + INKS - 1
    pixels[dashes == DASH_PIXELS // 2] = BACKGROUND


def _middle(band: Band, height: int) -> npt.NDArray[np.bool_]:
    """The rows of pixels that the line of a link that is down takes: (height,)."""
    place = np.arange(height) % band.row - band.line_top
    return np.asarray((place >= 0) & (place < band.line))


def _hatch(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return np.asarray((rows + columns) % HATCH_PIXELS == 0)


def _draw_bars(part: Pixels, band: Band, motion: Motion, frame: int) -> None:
    down = _middle(band, band.row)[2:-2]
    for port, (length, mark) in enumerate(zip(motion.bars[frame], motion.marks[frame], strict=True)):
        row = part[port * band.row + 2 : (port + 1) * band.row - 2]
        if length == UNKNOWN:
            row[:] = np.where(_hatch(row.shape), HOLE_LINE, HOLE_FILL)
            continue
        if length == LINK_DOWN:
            row[down, 1:] = DOWN
            continue
        row[:, 1:length] = BAR
        if mark != UNKNOWN:
            row[:, max(1, mark - 1) : mark + 1] = MARK


def _draw_cursor(part: Pixels, motion: Motion, frame: int) -> None:
    begin, now = int(motion.begin[frame]), int(motion.cursor[frame])
    part[:WINDOW_PIXELS, begin : now + 1] = CURSOR
    part[:, max(0, now - 1) : now + 1] = CURSOR


def _write(part: Pixels, text: str, font: ImageFont.FreeTypeFont) -> None:
    """Write the text, aligned to the right end of its rectangle."""
    mask = Image.new("L", (part.shape[1], part.shape[0]))
    ImageDraw.Draw(mask).text((part.shape[1] - 1, part.shape[0] // 2), text, fill=255, font=font, anchor="rm")
    ink = np.asarray(mask).astype(np.uint16) * (INKS - 1) // 255
    part[:] = np.where(ink > 0, ink + INK, part)
