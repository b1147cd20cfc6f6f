"""The animation: a bar per rail, the last moments of all rails, and the whole as a line on which now moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ibpulse.pictures.files import write_whole
from ibpulse.pictures.frames import draw_frames
from ibpulse.pictures.motion import count_frames, move
from ibpulse.pictures.movie import find_ffmpeg, write_gif, write_mp4
from ibpulse.pictures.options import PictureOptions
from ibpulse.pictures.player import write_page
from ibpulse.pictures.run import PictureRun
from ibpulse.pictures.scale import choose_scale
from ibpulse.pictures.stage import set_stage


def save_animation(runs: Sequence[PictureRun], output: Path, options: PictureOptions) -> None:
    """Write one or two runs in motion as GIF, MP4 or HTML, as the name says.

    Raises:
        PictureError: it would be too long, a line rate is not known, there is no ffmpeg, or the file cannot be written.
    """
    kind = output.suffix.removeprefix(".").lower()
    if kind == "mp4":
        find_ffmpeg()
    frames = count_frames(runs, options)
    scale = choose_scale(runs, options)
    stage = set_stage(runs, scale, options)
    motions = [move(run, band, scale, frames, options) for run, band in zip(runs, stage.bands, strict=True)]
    if kind == "html":
        title = ", ".join(run.name for run in runs)
        write_whole(output, lambda path: write_page(path, title, stage, motions, options))
        return
    write = {"gif": write_gif, "mp4": write_mp4}[kind]
    write_whole(
        output,
        lambda path: write(path, draw_frames(stage, motions), stage.palette, options.frames_per_second),
    )
