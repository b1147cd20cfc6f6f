"""The animation as GIF or MP4: a bar per rail, the recent past of all rails, and a timeline.

A picture is an array of indices into one palette of 256 colours; its static parts are drawn once, and frames are made
by writing indices into a copy.
"""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import PictureError
from ibpulse.base.files import write_whole
from ibpulse.base.text import duration_text, split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats, Pixels
from ibpulse.workbench.pictures import panels
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.panels import FONT, Image, ImageDraw, ImageFont, font_manager
from ibpulse.workbench.pictures.run import PictureRun, Scale, choose_scale, reduce

UNKNOWN, LINK_DOWN = -1, -2
MAX_FRAMES = 6000
HATCH_PIXELS = 6
WINDOW_PIXELS = 4
# between the lines of two events, and from one dash of such a line to the next
EVENT_PIXELS, DASH_PIXELS = 16, 6
# positions in the palette: the colour map, then single colours, then shades from background to text, then the rest
LEVELS = 112
BACKGROUND, HOLE_FILL, HOLE_LINE, BAR, MARK, CURSOR, DOWN = range(LEVELS, LEVELS + 7)
INK, INKS = DOWN + 1, 16
REST = INK + INKS

# in inches
MARGIN, RIGHT, HEAD, TITLE, ROW, MIN_ROWS, AXIS, TIMELINE = 0.15, 0.95, 0.52, 0.02, 0.19, 1.0, 0.5, 0.75
BETWEEN, BARS, GAP = 0.4, 0.27, 0.14
MAX_MARKS = 6


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, in pixels from the left and upper edge."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Band:
    """The rectangles of a run: a bar per rail, its recent past as rows of columns, all of it as a line, and a text.

    A row is `row` pixels high, with `line` pixels for a link that is down, from `line_top` on. `columns` are shown,
    each at least one pixel wide and `ticks` samples long.
    """

    bars: Rect
    rails: Rect
    timeline: Rect
    text: Rect
    row: int
    line_top: int
    line: int
    ticks: int
    columns: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The static part: `base` (height, width), indices into `palette` (256, 3), and the bands of the runs."""

    base: Pixels
    palette: Pixels
    bands: tuple[Band, ...]
    letter_pixels: int


def lay_out_animation(runs: Sequence[PictureRun], scale: Scale, options: PictureOptions) -> Layout:
    """The layout of the runs, one above the other."""
    colours = panels.THEMES[options.theme]
    with panels.matplotlib.rc_context(panels.settings(colours)):
        labels = panels.label_inches(runs)
        width = options.width_inches - RIGHT - MARGIN - labels
        marks = [panels.gather_marks(run, width, MAX_MARKS) for run in runs]
        heights = [_band_inches(run, found) for run, found in zip(runs, marks, strict=True)]
        tops = np.cumsum([0.1, *heights]).tolist()
        bands = [
            _place_band(run, labels, top, panels.STRIP_INCHES if found else 0.0, options)
            for run, found, top in zip(runs, marks, tops, strict=False)
        ]
        foot = _foot(runs, bands, scale, options)
        page = panels.Page(
            options.width_inches,
            tops[-1] + panels.LEGEND_INCHES + panels.LINE_STEP * len(foot) + 0.12,
            options.dpi,
            colours,
        )
        bars = []
        for run, band, found, top in zip(runs, bands, marks, tops, strict=False):
            _draw_band(page, band, run, scale, top, options)
            _draw_timeline(page, band.timeline, run, scale, found)
            bars.append(_draw_scale(page, band, scale, options))
        panels.explain_runs(page, MARGIN, tops[-1], runs)
        page.lines(MARGIN, tops[-1] + panels.LEGEND_INCHES, foot)
        buffer = io.BytesIO()
        page.figure.savefig(buffer, format="png")
        picture = np.asarray(panels.Image.open(buffer).convert("RGB"))
    palette, base = _quantize(picture, colours)
    for bar in bars:
        levels = np.linspace(LEVELS - 1, 0, bar.height).round().astype(np.uint8)
        base[bar.top : bar.top + bar.height, bar.left : bar.left + bar.width] = levels[:, None]
    return Layout(base, palette, tuple(bands), round(panels.SMALL * options.dpi / 72))


def _rows_inches(run: PictureRun) -> float:
    return max(MIN_ROWS, ROW * len(run.ports))


def _band_inches(run: PictureRun, marks: panels.EventMarks) -> float:
    events = panels.STRIP_INCHES + panels.LINE_STEP * len(marks.lines) + GAP if marks else 0.0
    return HEAD + _rows_inches(run) + AXIS + TIMELINE + AXIS + TITLE + events


def _place_band(run: PictureRun, labels: float, top: float, strip: float, options: PictureOptions) -> Band:
    dpi = options.dpi
    row = round(_rows_inches(run) * dpi / len(run.ports))
    left, right = round((MARGIN + labels) * dpi), round((options.width_inches - RIGHT) * dpi)
    bars = Rect(left, round((top + HEAD) * dpi), round((right - left) * BARS), row * len(run.ports))
    begin = bars.left + bars.width + round(BETWEEN * dpi)
    rails = Rect(begin, bars.top, right - begin, bars.height)
    shown = max(1, round(options.window_ns / run.interval_ns))
    ticks = -(-shown // rails.width)
    below = bars.top + bars.height + round((AXIS + strip) * dpi)
    timeline = Rect(left, below, right - left, round(TIMELINE * dpi))
    text = Rect(begin, round((top + 0.02) * dpi), options.width_pixels - begin - 4, round(0.22 * dpi))
    line = max(2, round(min(panels.DOWN_ROWS * row, panels.DOWN_INCHES * dpi)))
    return Band(bars, rails, timeline, text, row, (row - line) // 2, line, ticks, max(1, shown // ticks))


def _draw_band(
    page: panels.Page, band: Band, run: PictureRun, scale: Scale, top: float, options: PictureOptions
) -> None:
    page.head(MARGIN, top, run, band.text.left / options.dpi - MARGIN, page.width)
    bars = _axes(page, band.bars)
    bars.set_xlim(0.0, scale.port)
    bars.set_ylim(len(run.ports), 0.0)
    bars.set_yticks(np.arange(len(run.ports)) + 0.5, run.ports)
    bars.tick_params(axis="y", length=0)
    bars.xaxis.set_major_locator(panels.ticker.MaxNLocator(4))
    bars.set_xlabel(f"rail now ({scale.sign})", fontsize=panels.SMALL)
    panels.plain(bars, grid=False)
    rails = _axes(page, band.rails)
    shown_seconds = band.columns * band.ticks * run.interval_seconds
    rails.set_xlim(-shown_seconds, 0.0)
    rails.set_yticks([])
    rails.xaxis.set_major_locator(panels.ticker.MaxNLocator(5))
    rails.set_xlabel("time before now (s)", fontsize=panels.SMALL)


def _draw_timeline(page: panels.Page, place: Rect, run: PictureRun, scale: Scale, marks: panels.EventMarks) -> None:
    axes = _axes(page, place)
    panels.draw_node(axes, run, scale, place.width, page.colours)
    # room for the mark of the span shown above
    axes.set_ylim(0.0, scale.node * 1.1)
    axes.yaxis.set_major_locator(panels.ticker.MaxNLocator(3))
    axes.set_ylabel(f"node ({scale.sign})", fontsize=panels.SMALL)
    axes.xaxis.label.set_fontsize(panels.SMALL)
    if marks:
        dpi = page.figure.dpi
        height = round(panels.STRIP_INCHES * dpi)
        marks.draw_lines(axes, page.colours)
        marks.draw_strip(_axes(page, Rect(place.left, place.top - height, place.width, height)), page.colours)
        page.lines(place.left / dpi, (place.top + place.height) / dpi + AXIS, marks.lines)


def _draw_scale(page: panels.Page, band: Band, scale: Scale, options: PictureOptions) -> Rect:
    """The colour scale; returns the rectangle to fill."""
    dpi = options.dpi
    place = Rect(round((page.width - RIGHT + 0.12) * dpi), band.rails.top, round(0.13 * dpi), band.rails.height)
    axes = _axes(page, place)
    axes.set_ylim(0.0, scale.port)
    panels.label_scale(axes, scale, f"rail ({scale.sign})", 4, panels.SMALL)
    axes.spines[:].set_visible(False)
    return place


def _axes(page: panels.Page, place: Rect) -> panels.Axes:
    dpi = page.figure.dpi
    return page.axes(place.left / dpi, place.top / dpi, place.width / dpi, place.height / dpi)


def _foot(runs: Sequence[PictureRun], bands: Sequence[Band], scale: Scale, options: PictureOptions) -> list[str]:
    frame = duration_text(round(SECOND_NS * options.speed / options.frames_per_second))
    tick = duration_text(runs[0].interval_ns)
    one = all(band.ticks == 1 for band in bands)
    reduced = any(run.ticks > band.timeline.width for run, band in zip(runs, bands, strict=True))
    parts = [
        f"bar: mean of {frame}",
        f"mark: highest {tick} sample shown",
        f"colours: every {tick} sample" if one else f"colours: highest {tick} sample of a column",
        options.directions_text,
        "1 GB = 10⁹ bytes",
        f"line: mean, pale: highest {tick} sample" if reduced else "",
        scale.exceeded,
    ]
    return panels.wrap([part for part in parts if part], options.width_inches - 2 * MARGIN)


def _quantize(picture: Pixels, colours: panels.Colours) -> tuple[Pixels, Pixels]:
    """The palette, and the picture as indices into it; the colours of legend and scale are exact."""
    drawn = panels.Image.fromarray(picture).quantize(256 - REST, dither=panels.Image.Dither.NONE)
    own = np.array(drawn.getpalette(), dtype=np.uint8).reshape(-1, 3)
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[:LEVELS] = np.round(255 * panels.matplotlib.colormaps[panels.COLOUR_MAP](np.linspace(0, 1, LEVELS))[:, :3])
    singles = (
        colours.background,
        colours.hole,
        colours.hatch,
        colours.line,
        colours.text,
        colours.runs[2],
        colours.down,
    )
    for place, colour in enumerate(singles, start=LEVELS):
        palette[place] = _rgb(colour)
    part = np.linspace(0, 1, INKS)[:, None]
    palette[INK:REST] = np.round((1 - part) * _rgb(colours.background) + part * _rgb(colours.text))
    palette[REST : REST + len(own)] = own
    base = (np.asarray(drawn) + REST).astype(np.uint8)
    for place in (0, LEVELS - 1, DOWN):
        base[(picture == palette[place]).all(axis=-1)] = place
    return palette, base


def _rgb(colour: str) -> Counts:
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])


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
    """Frames from the beginning to the end of the longest run."""
    longest = max(run.span_seconds for run in runs)
    frames = max(1, math.ceil(longest * options.frames_per_second / options.speed - 1e-9))
    if frames > MAX_FRAMES:
        raise PictureError(
            f"an animation of {longest:g} s would have {frames} frames, but the maximum is {MAX_FRAMES}; "
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


def draw_frames(layout: Layout, motions: Sequence[Motion]) -> Iterator[Pixels]:
    """The frames in order: (height, width), indices into the layout's palette."""
    font = ImageFont.truetype(font_manager.findfont(FONT), layout.letter_pixels)
    for frame in range(len(motions[0].texts)):
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


def _middle(band: Band, height: int) -> Bools:
    """The rows of pixels that the line of a link that is down takes: (height,)."""
    place = np.arange(height) % band.row - band.line_top
    return np.asarray((place >= 0) & (place < band.line))


def _hatch(shape: tuple[int, ...]) -> Bools:
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


def write_gif(path: Path, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
    """Write the frames as a GIF that repeats forever."""
    colours = palette.tobytes()

    def pictures() -> Iterator[Image.Image]:
        for frame in frames:
            picture = Image.frombytes("P", (frame.shape[1], frame.shape[0]), frame.tobytes())
            picture.putpalette(colours)
            yield picture

    every = pictures()
    first = next(every)
    first.save(
        path,
        format="GIF",
        save_all=True,
        append_images=every,
        duration=1000 // frames_per_second,
        loop=0,
        optimize=False,
    )


def find_ffmpeg() -> str:
    """The path of ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None:
        raise PictureError(".mp4 files need ffmpeg, which is not on the PATH; install it, or write a .gif")
    return found


def write_mp4(path: Path, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
    """Let ffmpeg write the frames as H.264, which players and browsers can read."""
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(frames_per_second), "-i", "-"]
    # H.264 requires even dimensions
    picture = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p"]
    same = ["-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart"]
    command = [find_ffmpeg(), "-v", "error", "-y", *source, *picture, *same, "-f", "mp4", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as process:
        if process.stdin is None or process.stderr is None:
            raise PictureError("ffmpeg was started without pipes")
        try:
            process.stdin.write(palette[first].tobytes())
            for frame in frames:
                process.stdin.write(palette[frame].tobytes())
            process.stdin.close()
        except BrokenPipeError:
            # ffmpeg ended early and gave a reason
            pass
        reason = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        lines = split_lines(reason) or [f"exit code {process.returncode}"]
        raise PictureError(f"ffmpeg failed: {lines[0][:200]}; write a .gif")


def save_animation(runs: Sequence[PictureRun], output: Path, options: PictureOptions) -> None:
    """Write an animation of one or two runs as GIF or MP4, depending on the suffix."""
    kind = output.suffix.removeprefix(".").lower()
    if kind == "mp4":
        find_ffmpeg()
    frames = count_frames(runs, options)
    scale = choose_scale(runs, options)
    layout = lay_out_animation(runs, scale, options)
    motions = [build_motion(run, band, scale, frames, options) for run, band in zip(runs, layout.bands, strict=True)]
    write = {"gif": write_gif, "mp4": write_mp4}[kind]
    write_whole(
        output,
        lambda path: write(path, draw_frames(layout, motions), layout.palette, options.frames_per_second),
        PictureError,
    )
