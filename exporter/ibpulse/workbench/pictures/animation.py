"""The animation as GIF or MP4: a bar per rail, the recent past of all rails, and a timeline."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from ibpulse.base.errors import PictureError
from ibpulse.base.text import size_text, split_lines
from ibpulse.core.arrays import Pixels
from ibpulse.workbench.pictures.animation_layout import Layout, lay_out_animation
from ibpulse.workbench.pictures.figure import Image, write_whole
from ibpulse.workbench.pictures.frames import Motion, build_motion, count_frames, draw_frames
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.picture_run import PictureRun, choose_scale

SAMPLED_FRAMES = 4


def write_gif(path: Path | BinaryIO, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
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


def estimate_gif_bytes(layout: Layout, motions: Sequence[Motion], options: PictureOptions) -> int:
    """The size of the GIF, from a few frames in the middle of each quarter."""
    frames, sizes, first_bytes = len(motions[0].texts), [], 0
    for quarter in range(4):
        some = list(draw_frames(layout, motions, frames * (2 * quarter + 1) // 8, SAMPLED_FRAMES))
        one, all_of_them = (_gif_bytes(part, layout, options) for part in (some[:1], some))
        first_bytes = max(first_bytes, one)
        if len(some) > 1:
            sizes.append((all_of_them - one) / (len(some) - 1))
    return first_bytes + round((frames - 1) * sum(sizes) / max(1, len(sizes)))


def _gif_bytes(frames: Sequence[Pixels], layout: Layout, options: PictureOptions) -> int:
    buffer = io.BytesIO()
    write_gif(buffer, iter(frames), layout.palette, options.frames_per_second)
    return buffer.getbuffer().nbytes


def find_ffmpeg() -> str:
    """The path of ffmpeg.

    Raises:
        PictureError: ffmpeg is not installed.
    """
    found = shutil.which("ffmpeg")
    if found is None:
        raise PictureError(".mp4 files need ffmpeg, which is not on the PATH; install it, or write a .gif")
    return found


def write_mp4(path: Path, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
    """Let ffmpeg write the frames as H.264, which players and browsers can read.

    Raises:
        PictureError: ffmpeg is not installed, or it failed.
    """
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


def save_animation(
    runs: Sequence[PictureRun], output: Path, options: PictureOptions, announce: Callable[[str], None]
) -> None:
    """Write an animation of one or two runs as GIF or MP4, depending on the suffix.

    `announce` gets a sentence about the size of a GIF before it is written.

    Raises:
        PictureError: it would be too long, a line rate is unknown, ffmpeg is missing, or the file cannot be written.
    """
    kind = output.suffix.removeprefix(".").lower()
    if kind == "mp4":
        find_ffmpeg()
    frames = count_frames(runs, options)
    scale = choose_scale(runs, options)
    layout = lay_out_animation(runs, scale, options)
    motions = [build_motion(run, band, scale, frames, options) for run, band in zip(runs, layout.bands, strict=True)]
    if kind == "gif":
        announce(f"{frames} frames, about {size_text(estimate_gif_bytes(layout, motions, options))}")
    write = {"gif": write_gif, "mp4": write_mp4}[kind]
    write_whole(
        output,
        lambda path: write(path, draw_frames(layout, motions), layout.palette, options.frames_per_second),
    )
