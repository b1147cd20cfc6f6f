"""The page shows the state of each moment: links that are down, ports without samples, and marks for events."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.campaigns.pages.browser import Live
from tests.campaigns.pages.staged import (
    CAPTURE,
    DOWN,
    FLAPPED,
    GONE,
    SLOWER,
    UNREADABLE,
    WELL,
    Stage,
    at_ms,
    held,
    shown,
    story,
)
from tests.running import eventually

__all__ = ["shown", "story"]
pytestmark = pytest.mark.needs("chromium")
ROWS = 4
ZERO = np.array([0x44, 0x01, 0x54])
TOP = np.array([0xFD, 0xE7, 0x25])
HALF = np.array([0x21, 0x91, 0x8C])
INCIDENTS = f"#from={at_ms(8)}&to={at_ms(24)}"


def during(shown: Live, port: str, begin: float, end: float) -> np.ndarray:
    """The pixels of a port's transmit row between two seconds of the story: (height, width, 3)."""
    pixels = shown.pixels()
    number, (first, last) = int(port[5]), shown.span()
    top, height = number * len(pixels) / ROWS, len(pixels) / ROWS
    left, right = ((at_ms(each) - first) / (last - first) * pixels.shape[1] for each in (begin, end))
    return pixels[round(top + 0.1 * height) : round(top + 0.8 * height), round(left) + 2 : round(right) - 2]


def share(pixels: np.ndarray, colour: np.ndarray) -> float:
    """Part of the pixels that have nearly this colour."""
    return float((np.abs(pixels.astype(int) - colour).max(axis=2) < 14).mean())


def is_grey(pixels: np.ndarray) -> bool:
    """Whether most pixels are neutral, as only missing data is."""
    spread = pixels.max(axis=2).astype(int) - pixels.min(axis=2)
    return float((spread < 40).mean()) > 0.9


def names(shown: Live) -> dict[str, str]:
    """The label of each row."""
    rows = shown.page.locator("#names li").all()
    labels = (row.locator(".mark").inner_text() if row.locator(".mark").is_visible() else "" for row in rows)
    return dict(zip((row.locator(".long").inner_text() for row in rows), labels, strict=True))


def test_a_link_that_went_down_keeps_its_past_as_share_of_the_rate_of_then(shown: Live) -> None:
    held(shown, f"{INCIDENTS}&direction=transmit")
    # 25 GB/s: half of 50 GB/s before, all of 25 GB/s after
    assert 0.1 < share(during(shown, FLAPPED, 8, 10), HALF) < 0.4
    assert share(during(shown, FLAPPED, 8, 10), TOP) == 0
    assert 0.1 < share(during(shown, FLAPPED, 15, 24), TOP) < 0.4
    assert not is_grey(during(shown, FLAPPED, 8, 10))


def test_a_link_that_is_down_differs_from_no_traffic_and_from_missing_data(shown: Live) -> None:
    held(shown, f"{INCIDENTS}&direction=transmit")
    down, missing = during(shown, FLAPPED, 10, 14), during(shown, UNREADABLE, 20, 24)
    silence = during(shown, WELL, 10.3, 10.9)
    assert share(silence, ZERO) > 0.99
    assert share(down, ZERO) == 0
    assert not is_grey(down)
    assert is_grey(missing)
    # a pattern and not a colour: it has light and dark pixels
    luma = down @ np.array([0.2126, 0.7152, 0.0722])
    assert (luma > 150).mean() > 0.15
    assert (luma < 80).mean() > 0.15
    shown.press("u")
    shown.settle()
    assert share(during(shown, FLAPPED, 10, 14), ZERO) == 0
    assert is_grey(during(shown, UNREADABLE, 20, 24))


def test_the_legend_names_all_three_in_the_picture_and_in_the_saved_one(shown: Live, tmp_path: Path) -> None:
    held(shown, INCIDENTS)
    legend = shown.text(".legend")
    assert [words for words in ("No traffic", "Link down", "No data") if words in legend] == [
        "No traffic",
        "Link down",
        "No data",
    ]
    swatches = [shown.page.locator(f".legend li:nth-child({n}) .swatch").first.screenshot() for n in (1, 2, 3)]
    zero, lattice, hatch = (np.asarray(Image.open(io.BytesIO(each)).convert("RGB"))[2:-2, 2:-2] for each in swatches)
    assert share(zero, ZERO) > 0.95
    assert is_grey(hatch)
    assert not is_grey(lattice)
    with shown.page.expect_download() as waiting:
        shown.press("p")
    waiting.value.save_as(tmp_path / "saved.png")
    saved = np.asarray(Image.open(tmp_path / "saved.png").convert("RGB"))
    below = saved[-92 * 2 + 44 * 2 : -92 * 2 + 56 * 2]
    reddish = (below[..., 0].astype(int) - below[..., 2] > 40) & (below[..., 1] < 60)
    assert reddish.sum() > 100
    body = saved[128 : 128 + 88]
    assert ((body[..., 0].astype(int) - body[..., 2] > 40) & (body[..., 1] < 60)).mean() > 0.1


def test_silence_before_a_link_was_seen_to_be_up_is_not_drawn_as_down(shown: Live) -> None:
    """The link came up at most a second before 15 s."""
    held(shown, f"{INCIDENTS}&direction=transmit")
    assert share(during(shown, FLAPPED, 10, 14), ZERO) == 0
    assert share(during(shown, FLAPPED, 14.1, 15), ZERO) > 0.99


def test_labels_and_notices_of_a_held_view_are_those_of_its_time(shown: Live) -> None:
    held(shown, f"#from={at_ms(3)}&to={at_ms(8)}")
    eventually(lambda: "of this view" in shown.text("#numbers-about"))
    assert set(names(shown).values()) <= {"", "slow"}
    eventually(lambda: shown.text("#notices") == "")
    held(shown, f"#from={at_ms(9)}&to={at_ms(14)}")
    eventually(lambda: names(shown)[FLAPPED] == "down")
    eventually(lambda: "Link down: mlx5_0:1 since" in shown.text("#notices"))
    assert not is_grey(during(shown, FLAPPED, 10, 14))
    held(shown, INCIDENTS)
    eventually(lambda: names(shown)[FLAPPED] in ("", "slow"))


def test_ports_without_samples_keep_a_row_that_says_why_and_since_when(shown: Live) -> None:
    shown.open("#span=30000")
    shown.wait("live")
    eventually(lambda: names(shown)[GONE] == "disappeared")
    assert names(shown)[UNREADABLE] == "unreadable"
    notices = [
        f"Disappeared: {GONE} since {clock(shown, 20)}.",
        f"Cannot be read: {UNREADABLE} since {clock(shown, 20)}.",
    ]
    eventually(lambda: shown.text("#notices").split("\n") == notices)
    eventually(lambda: "of 4" in shown.card("Active rails"))
    eventually(lambda: "1 disappeared, 1 unreadable" in shown.card("Active rails"))
    held(shown, INCIDENTS)
    for port in (GONE, UNREADABLE):
        assert not is_grey(during(shown, port, 10, 19))
        assert is_grey(during(shown, port, 20, 24))


def clock(shown: Live, second: float) -> str:
    """The time of day of a second of the story, as the page writes it."""
    return str(shown.page.evaluate(f"new Date({at_ms(second)}).toTimeString().slice(0, 8)"))


def test_a_change_of_state_shows_by_itself_and_the_picture_goes_on(shown: Live, story: Stage) -> None:
    shown.open("#span=10000")
    shown.wait("live")
    shown.page.evaluate("window.before = ibpulse.store.tiles")
    kept = shown.page.evaluate("ibpulse.store.firstMs()")
    story.change("link-down", FLAPPED, DOWN)
    try:
        eventually(lambda: names(shown)[FLAPPED] == "down")
        assert shown.page.evaluate("window.before === ibpulse.store.tiles && ibpulse.store.tiles.size > 0")
        # older seconds may still arrive; none is thrown away
        assert shown.page.evaluate("ibpulse.store.firstMs()") <= kept
        eventually(lambda: shown.page.locator(".mark-event[aria-label*='link-down']").count() == 1)
    finally:
        story.change("link-up", FLAPPED, SLOWER)


def test_marks_say_what_happened_when_and_how_sure_that_is(shown: Live) -> None:
    held(shown, INCIDENTS)
    marks = shown.page.locator(".mark-event")
    eventually(lambda: marks.all_inner_texts() == ["▼", "●", "▲", "2"])
    box, canvas = marks.nth(0).bounding_box(), shown.page.locator("#waterfall").bounding_box()
    assert box
    assert canvas
    assert box["x"] + box["width"] / 2 == pytest.approx(canvas["x"] + canvas["width"] * 2 / 16, abs=1.5)
    marks.nth(0).hover()
    eventually(lambda: "mlx5_0:1 went down" in shown.text("#event-card"))
    assert f"{clock(shown, 10)}.00 or up to 1 s earlier" in shown.text("#event-card")
    band = shown.page.locator("#doubt").bounding_box()
    assert band
    assert (band["x"] - canvas["x"], band["width"]) == pytest.approx(
        (canvas["width"] / 16, canvas["width"] / 16), abs=2.5
    )
    marks.nth(3).hover()
    eventually(lambda: f"{GONE} disappeared" in shown.text("#event-card"))
    assert f"{UNREADABLE} cannot be read" in shown.text("#event-card")
    shown.page.mouse.move(5, 5)
    eventually(lambda: not shown.page.is_visible("#event-card"))


def test_a_mark_is_reached_with_the_keyboard_and_a_capture_can_be_downloaded(shown: Live) -> None:
    held(shown, INCIDENTS)
    eventually(lambda: shown.page.locator(".mark-event").count() == 4)
    shown.page.locator(".mark-event").nth(0).focus()
    shown.press("Tab")
    eventually(lambda: "capture" in shown.text("#event-card"))
    assert shown.page.locator("#event-card a").first.get_attribute("href") == f"api/v1/captures/{CAPTURE}"
    shown.press("Enter")
    assert shown.page.evaluate("document.activeElement.textContent") == "Download"
    shown.press("Escape")
    eventually(lambda: not shown.page.is_visible("#event-card"))
    assert shown.complaints == []


def test_marks_of_many_events_merge(shown: Live) -> None:
    shown.open()
    found = shown.page.evaluate(
        """import('/static/marks.js').then(({ grouped }) => {
          const at = (n) => ({ time_ms: n * 100, kind: 'link-flap', subject: 'a' });
          const events = Array.from({ length: 1000 }, (_, n) => at(n));
          const groups = grouped(events, 10_000);
          return [groups.length, groups.map((each) => each.events.length), groups[1].ms, groups[0].sort];
        })"""
    )
    assert found == [10, [100] * 10, 10_000, "bad"]


def test_the_overview_begins_with_the_samples_and_has_an_axis(shown: Live) -> None:
    shown.open()
    shown.wait("live")
    # to the width of a bin
    eventually(lambda: shown.page.evaluate("ibpulse.reach.fromMs") == pytest.approx(at_ms(0), abs=500))
    axis = "[...document.querySelector('.overview-axis').getContext('2d').getImageData(0, 0, 600, 20).data]"
    eventually(lambda: shown.page.evaluate(f"{axis}.some((value) => value > 0)"))
    held(shown, f"#from={at_ms(-10)}&to={at_ms(5)}")
    canvas = shown.page.locator("#waterfall").bounding_box()
    assert canvas
    shown.page.mouse.move(canvas["x"] + 40, canvas["y"] + 20)
    eventually(lambda: "no data: before the history" in shown.text("#reading"))


def test_the_menu_of_ports_names_the_role_at_the_time_of_the_view(shown: Live) -> None:
    shown.open()
    found = shown.page.evaluate(
        """Promise.all([import('/static/rails.js'), import('/static/states.js')]).then(([rails, states]) => {
          const state = { active: true, state: 'ACTIVE', rate_bytes_per_second: 50e9 };
          const as = (role) => ({ ...state, rail: role === 'compute', role });
          const later = { port: 'c:1', ...as('storage'), states: [as('compute'), { ...as('storage'), from_ms: 1000 }] };
          const layout = states.prepare({
            ports: [{ port: 'a:1', ...as('management') }, { port: 'b:1', ...as('unknown') }, later],
          });
          return [999, 1000].map((ms) => {
            const sheet = document.createElement('div');
            rails.showChoice(sheet, layout, null, ms, () => {});
            return [...sheet.querySelectorAll('label span')].map((each) => each.textContent);
          });
        })"""
    )
    assert found == [["management", "not a rail", "rail"], ["management", "not a rail", "storage"]]
