"""Frames as GIF or MP4. It must not know what they show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ibpulse.errors import PictureError
from ibpulse.pictures.libraries import Image

Pixels = npt.NDArray[np.uint8]


def write_gif(path: Path, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
    """Write the frames as a GIF that starts over and over."""
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
    """The path of ffmpeg.

    Raises:
        PictureError: there is none.
    """
    found = shutil.which("ffmpeg")
    if found is None:
        raise PictureError(
            "an .mp4 is written by ffmpeg, which is not on the PATH; install it, or write a .gif or .html"
        )
    return found


def write_mp4(path: Path, frames: Iterator[Pixels], palette: Pixels, frames_per_second: int) -> None:
    """Let ffmpeg write the frames as H.264, which players and browsers read.

    Raises:
        PictureError: there is no ffmpeg, or it failed.
    """
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(frames_per_second), "-i", "-"]
    # H.264 counts pixels in pairs
    picture = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p"]
    same = ["-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart"]
    command = [find_ffmpeg(), "-v", "error", "-y", *source, *picture, *same, "-f", "mp4", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdin is None or process.stderr is None:
            raise PictureError("ffmpeg was started without pipes")
        try:
            process.stdin.write(palette[first].tobytes())
            for frame in frames:
                process.stdin.write(palette[frame].tobytes())
            process.stdin.close()
        except BrokenPipeError:
            # it ended early, and says why
            pass
        reason = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        lines = reason.splitlines() or [f"exit code {process.returncode}"]
        raise PictureError(f"ffmpeg failed: {lines[0][:200]}; write a .gif or .html")
