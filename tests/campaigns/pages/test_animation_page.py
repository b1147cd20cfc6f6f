"""The page in a browser: its script draws the same as the frames of a GIF."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser

from ibpulse.pictures import render
from ibpulse.pictures.animation_layout import lay_out_animation
from ibpulse.pictures.frames import build_motion, draw_frames
from ibpulse.pictures.picture_run import choose_scale
from tests.pictures.runs import MOVING, event, take


def test_a_browser_draws_the_frames_of_the_gif_and_asks_for_nothing(tmp_path: Path, browser: Browser) -> None:
    rates = np.repeat(np.array([[0.0], [100e9], [50e9]]), 200, axis=1)
    rates[2, 150:] = np.nan
    rates[1, 100:140] = 30e9
    down = np.zeros(rates.shape, dtype=np.bool_)
    rates[1, 120:], down[1, 120:] = 0.0, True
    run = take(rates, down=down, events=[event(1.1), event(1.55)])
    render("animation", [run], tmp_path / "a.html", MOVING)
    with browser.new_page(reduced_motion="reduce") as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{tmp_path / 'a.html'}")
        page.wait_for_function("still.complete && !playing")
        page.evaluate("draw(15)")
        url = page.evaluate("canvas.toDataURL('image/png')")
    assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")).astype(int)
    scale = choose_scale([run], MOVING)
    layout = lay_out_animation([run], scale, MOVING)
    expected = layout.palette[
        list(draw_frames(layout, [build_motion(run, layout.bands[0], scale, 20, MOVING)]))[15]
    ].astype(int)
    # letters and hatching are the browser's own
    text, hole = layout.bands[0].text, layout.bands[0].rails
    same = np.abs(drawn - expected).max(axis=2) <= 2
    same[text.top : text.top + text.height, text.left :] = True
    same[hole.top + 2 * layout.bands[0].row : hole.top + hole.height] = True
    same[
        layout.bands[0].bars.top + 2 * layout.bands[0].row : layout.bands[0].bars.top + layout.bands[0].bars.height
    ] = True
    assert same.all(), np.argwhere(~same)[:5]
