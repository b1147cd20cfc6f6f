from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from ibpulse.base.errors import PictureError
from ibpulse.workbench.pictures.animation import (
    BACKGROUND,
    BAR,
    DOWN,
    HOLE_FILL,
    HOLE_LINE,
    INK,
    INKS,
    LEVELS,
    LINK_DOWN,
    UNKNOWN,
    Layout,
    build_motion,
    count_frames,
    draw_frames,
    lay_out_animation,
)
from ibpulse.workbench.pictures.run import choose_scale
from ibpulse.workbench.pictures.still import render
from tests.pictures.runs import MOVING, event, rails, take


@pytest.fixture(scope="module")
def layout() -> Layout:
    return lay_out_animation([take(rails())], choose_scale([take(rails())], MOVING), MOVING)


def test_gif_has_all_frames_and_their_duration(tmp_path: Path) -> None:
    render("animation", [take(rails()), take(rails(100), "b")], tmp_path / "a.gif", MOVING)
    with Image.open(tmp_path / "a.gif") as picture:
        assert (picture.n_frames, picture.width) == (20, 600)
        assert sum(frame.info["duration"] for frame in ImageSequence.Iterator(picture)) == 2000


def test_too_many_frames_and_an_mp4_without_ffmpeg_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PictureError, match=r"of 2 s would have 20000 frames, but the maximum is 6000; cut it with --last"
    ):
        count_frames([take(rails())], replace(MOVING, speed=0.001))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PictureError, match=r"files need ffmpeg, which is not on the PATH; install it, or write a .gif"):
        render("animation", [take(rails())], tmp_path / "a.mp4", MOVING)


def test_bars_are_means_and_marks_are_peaks(layout: Layout) -> None:
    rates = rails()
    rates[0, 3] = 100e9
    run, band = take(rates), layout.bands[0]
    motion = build_motion(run, band, choose_scale([run], MOVING), 20, MOVING)
    assert motion.bars[0].tolist() == [round(band.bars.width / 10), band.bars.width, round(band.bars.width / 2)]
    assert motion.marks[0, 0] == motion.marks[19, 0] == band.bars.width - 1
    assert motion.bars[19].tolist() == [0, band.bars.width, UNKNOWN]
    assert motion.cursor[19] == band.timeline.width - 1
    assert motion.texts[0].strip() == "0.10 s   node 160 GB/s   shown: mean 160, peak 250 GB/s"
    assert "node - GB/s" in motion.texts[19]


def test_a_frame_shows_dark_bright_and_hatched_rails(layout: Layout) -> None:
    run, band = take(rails()), layout.bands[0]
    motion = build_motion(run, band, choose_scale([run], MOVING), 20, MOVING)
    picture = list(draw_frames(layout, [motion]))[19]
    place = band.rails
    row = [
        picture[place.top + port * band.row + band.row // 2, place.left : place.left + place.width]
        for port in (0, 1, 2)
    ]
    assert (row[0] == 0).all()
    assert (row[1] == LEVELS - 1).all()
    assert set(row[2][place.width // 2 + 3 :].tolist()) == {HOLE_FILL, HOLE_LINE}
    assert (row[2][: place.width // 2 - 3] == round((LEVELS - 1) / 2)).all()
    bars = picture[band.bars.top : band.bars.top + band.bars.height, band.bars.left : band.bars.left + band.bars.width]
    assert np.count_nonzero(bars == BAR) > 0.6 * band.row * band.bars.width


def test_frame_shows_down_links_and_events() -> None:
    rates, down = rails(), np.zeros((3, 200), dtype=np.bool_)
    rates[1, 100:], down[1, 100:] = 0.0, True
    run = take(rates, down=down, events=[event(1.0), event(1.001), event(1.2, "")])
    scale = choose_scale([run], MOVING)
    layout = lay_out_animation([run], scale, MOVING)
    band = layout.bands[0]
    motion = build_motion(run, band, scale, 20, MOVING)
    assert motion.bars[:, 1].tolist() == [band.bars.width] * 10 + [LINK_DOWN] * 10
    # the second event is too close to the first one for a line of its own
    assert (motion.events - band.columns).tolist() == [100, 120]
    picture = list(draw_frames(layout, [motion]))[19]
    place = band.rails
    row = picture[place.top + band.row : place.top + 2 * band.row, place.left : place.left + place.width]
    ink = row[:, -(-100 * place.width // band.columns)]
    assert set(ink.tolist()) > {INK + INKS - 1}
    second = -(-120 * place.width // band.columns)
    quiet = np.delete(row, second, axis=1)[:, place.width // 2 + 2 :]
    assert (quiet == quiet[:, :1]).all()
    lines = (quiet[:, 0] == DOWN).nonzero()[0].tolist()
    assert lines == list(range(band.line_top, band.line_top + band.line))
    assert set(np.delete(quiet[:, 0], lines).tolist()) == {BACKGROUND}
    bar = picture[band.bars.top + band.row : band.bars.top + 2 * band.row, band.bars.left + 1 : band.bars.left + 20]
    assert ((bar == DOWN).all(axis=1).nonzero()[0] == lines).all()


def put_program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in ffmpeg's place."""
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.real("process")
def test_ffmpeg_gets_every_frame_as_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(tmp_path, 'for last; do :; done; cat > "$last"', monkeypatch)
    render("animation", [take(rails())], tmp_path / "a.mp4", MOVING)
    scale = choose_scale([take(rails())], MOVING)
    shape = lay_out_animation([take(rails())], scale, MOVING).base.shape
    assert (tmp_path / "a.mp4").stat().st_size == 20 * 3 * shape[0] * shape[1]


@pytest.mark.real("process")
@pytest.mark.parametrize(("script", "reason"), [("echo no codec >&2; exit 1", "no codec"), ("exit 3", "exit code 3")])
def test_what_ffmpeg_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    put_program(tmp_path, script, monkeypatch)
    with pytest.raises(PictureError, match=rf"ffmpeg failed: {reason}; write a .gif"):
        render("animation", [take(rails())], tmp_path / "a.mp4", MOVING)
    assert not list(tmp_path.glob("*.mp4*"))


@pytest.mark.needs("ffmpeg")
@pytest.mark.real("process")
def test_ffmpeg_writes_an_mp4(tmp_path: Path) -> None:
    render("animation", [take(rails())], tmp_path / "a.mp4", MOVING)
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"


def test_gif_keeps_every_pixel(tmp_path: Path) -> None:
    rates = np.random.default_rng(1).uniform(0, 100e9, (3, 200))
    rates[2, 100:] = np.nan
    run = take(rates)
    render("animation", [run], tmp_path / "a.gif", MOVING)
    scale = choose_scale([run], MOVING)
    layout = lay_out_animation([run], scale, MOVING)
    drawn = draw_frames(layout, [build_motion(run, layout.bands[0], scale, 20, MOVING)])
    with Image.open(tmp_path / "a.gif") as picture:
        for shown, frame in zip(ImageSequence.Iterator(picture), drawn, strict=True):
            np.testing.assert_array_equal(np.asarray(shown.convert("RGB")), layout.palette[frame])
