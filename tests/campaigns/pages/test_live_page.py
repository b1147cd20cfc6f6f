"""The live page in a real browser over the running demo."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")

IDLE = 6
VIRIDIS_ZERO = np.array([0x44, 0x01, 0x54])


def lightness(pixels: np.ndarray) -> np.ndarray:
    """Luma of pixels, 0 to 255 (ITU-R BT.709)."""
    return pixels @ np.array([0.2126, 0.7152, 0.0722])


def bright(pixels: np.ndarray) -> float:
    """Part of the pixels that are both light and coloured, as no idle sample and no hole is."""
    spread = pixels.max(axis=1).astype(int) - pixels.min(axis=1)
    return float(((lightness(pixels) > 80) & (spread > 40)).mean())


def dark(pixels: np.ndarray) -> float:
    """Part of the pixels that have the colour of no traffic."""
    return float((np.abs(pixels.astype(int) - VIRIDIS_ZERO).max(axis=1) < 12).mean())


def step_ms(daemon: Running) -> float:
    """Zero while there is none. 315, or more if the simulator pauses on a busy machine."""
    return sum(daemon.metrics().find("ibpulse_node_step_period_seconds").values()) * 1000


def viewers(daemon: Running) -> float:
    return daemon.metrics().value("ibpulse_http_stream_viewers")


def test_the_page_draws_the_demo_and_an_idle_rail_stays_dark(shown: Live) -> None:
    shown.open("#direction=transmit")
    shown.wait("live")
    eventually(lambda: bright(shown.row(0)[-300:]) > 0.2)
    for rail in range(8):
        # the other columns are missing samples, of which a busy machine has many for a moment
        if rail == IDLE:
            eventually(lambda: dark(shown.row(IDLE)[-300:]) > 0.6)
            assert bright(shown.row(IDLE)[-300:]) < 0.02
        else:
            eventually(lambda rail=rail: bright(shown.row(rail)[-300:]) > 0.2)


def test_the_numbers_are_those_of_the_daemon(shown: Live, daemon: Running) -> None:
    shown.open("#window=10s")
    eventually(lambda: re.search(rf"Step period\s+{step_ms(daemon):.0f}\s+ms", shown.card("Step period")), 60)
    assert "7\nof 8\nidle: mlx5_6:1" in re.sub(r"\n+", "\n", shown.card("Active rails"))
    peak = "ibpulse_node_bandwidth_peak_bytes_per_second"
    eventually(lambda: f"{daemon.metrics().value(peak, window='10s') / 1e9:.0f}\n" in shown.card("Peak"))
    # of all eight rails of 400 Gb/s, one of them idle
    share = "ibpulse_node_bandwidth_peak_utilization_ratio"
    eventually(
        lambda: (
            f"{daemon.metrics().value(share, window='10s') * 100:.0f} % of the line rate, 800 GB/s"
            in re.sub(r"\s+", " ", shown.card("Peak"))
        )
    )
    assert re.search(r"CV\)\s+\d\.\d\d\s+10ms\s+50ms", shown.card("Burstiness (CV)"))
    assert re.search(r"confidence \d+ %", shown.card("Signature"))
    assert re.search(r"Samples captured \d+(\.\d+)? %", shown.text("#health"))
    assert "idle" in shown.text("#names li:nth-child(7)")
    shown.press("w")
    assert "window=1m" in shown.page.url


def test_only_simulated_ports_are_marked(shown: Live, tree: Path) -> None:
    shown.open()
    shown.wait("live")
    chip, marker = shown.page.locator("#simulated"), tree / "ibpulse-simulated"
    eventually(chip.is_visible)
    assert chip.inner_text() == "SIMULATED"
    text = marker.read_text()
    marker.unlink()
    try:
        eventually(chip.is_hidden)
    finally:
        marker.write_text(text)
    eventually(chip.is_visible)


def test_a_held_picture_stands_still_and_costs_the_server_nothing(shown: Live, daemon: Running) -> None:
    shown.open()
    shown.wait("live")
    assert viewers(daemon) == 1
    shown.press(" ")
    assert shown.state() == "held"
    eventually(lambda: viewers(daemon) == 0)
    shown.settle()
    first = shown.pixels()
    eventually(lambda: "of this view" in shown.text("#numbers-about"))
    time.sleep(0.5)
    assert (shown.pixels() == first).all()
    shown.press(" ")
    shown.wait("live")
    eventually(lambda: viewers(daemon) == 1)
    assert "#" not in shown.page.url


def test_a_hidden_page_closes_the_stream(shown: Live, daemon: Running) -> None:
    shown.open()
    shown.wait("live")
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    shown.page.evaluate(hide % "true" + tell)
    eventually(lambda: viewers(daemon) == 0)
    shown.page.evaluate(hide % "false" + tell)
    eventually(lambda: viewers(daemon) == 1)
    shown.wait("live")


def test_the_history_can_be_scrolled_with_keys_and_with_the_pointer(shown: Live) -> None:
    shown.open("#span=1000")
    shown.wait("live")
    begin, end = shown.span()
    shown.press("ArrowLeft")
    later = shown.span()
    assert later[0] < begin
    assert shown.state() == "held"
    shown.press("Shift+ArrowLeft")
    assert shown.span()[0] == pytest.approx(later[0] - 1000, abs=1)
    box = shown.page.locator("#waterfall").bounding_box()
    assert box
    before = shown.span()
    shown.page.mouse.move(box["x"] + 200, box["y"] + 50)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 200 + box["width"] / 2, box["y"] + 50, steps=4)
    shown.page.mouse.up()
    assert shown.span()[0] == pytest.approx(before[0] - 500, abs=2)
    shown.press("Home")
    shown.settle()
    assert shown.span()[0] <= begin - 1000
    overview = shown.page.locator("#overview").bounding_box()
    assert overview
    shown.page.mouse.click(box["x"], overview["y"] + 10)
    assert shown.span()[0] < begin
    shown.press("End")
    shown.wait("live")
    assert shown.span()[1] >= end


def test_zooming_out_shows_the_highest_samples_and_says_so(shown: Live) -> None:
    shown.open("#direction=transmit")
    shown.wait("live")
    assert "Each column is one 10 ms sample." in shown.text("#column")
    shown.press("-", "-", "-")
    eventually(lambda: re.search(r"highest 10 ms sample in \d+(\.\d+)? ms\.", shown.text("#column")))
    shown.press(" ")
    shown.settle()
    assert np.median(lightness(shown.row(IDLE)[-100:])) < 30
    shown.press("+", "+", "+", "+", "+")
    eventually(lambda: "one 10 ms sample" in shown.text("#column"))
    begin, end = shown.span()
    box = shown.page.locator("#waterfall").bounding_box()
    assert box
    shown.page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    shown.page.mouse.wheel(0, 400)
    eventually(lambda: shown.span()[1] - shown.span()[0] > 1.5 * (end - begin))
    assert shown.span()[1] == pytest.approx(end, abs=30)


def test_pointing_reads_the_sample_that_the_window_api_gives(shown: Live) -> None:
    shown.open("#span=2000")
    shown.wait("live")
    shown.press(" ")
    shown.settle()
    box = shown.page.locator("#waterfall").bounding_box()
    assert box
    begin, end = shown.span()
    tick, rates = a_sample(shown, begin, end)
    shown.page.mouse.move(box["x"] + box["width"] * (tick + 5 - begin) / (end - begin), box["y"] + 10)
    eventually(lambda: shown.page.is_visible("#reading"))
    reading = shown.text("#reading")
    assert reading.startswith("mlx5_0:1")
    assert time.strftime("%H:%M:%S", time.localtime(tick / 1000)) in reading
    found = [float(text) for text in re.findall(r"([\d.]+) GB/s", reading)]
    assert found == pytest.approx([rate / 1e9 for rate in rates], abs=0.06)
    shown.press(".", "ArrowDown")
    eventually(lambda: shown.text("#reading").startswith("mlx5_1:1"))
    shown.press("Escape")
    eventually(lambda: not shown.page.is_visible("#reading"))


def a_sample(shown: Live, begin: float, end: float) -> tuple[int, list[float]]:
    """Time and rates of a sample of the first port near the middle of a span that is no hole."""
    window = f"{shown.url}/api/v1/window?from={begin:.0f}&to={end:.0f}&port=mlx5_0:1"
    answer = shown.page.request.get(window).json()
    samples = list(zip(*(series["values"] for series in answer["series"]), strict=True))
    good = [index for index, rates in enumerate(samples) if None not in rates]
    index = min(good, key=lambda each: abs(each - len(samples) / 2))
    return answer["start_ms"] + 10 * index, samples[index]


def test_a_view_is_shared_by_its_address(shown: Live, browser: Browser) -> None:
    shown.open("#span=3000&direction=receive&unit=bytes&map=inferno&theme=light&ports=mlx5_0:1,mlx5_6:1")
    shown.wait("live")
    time.sleep(0.3)
    shown.press(" ")
    shown.settle()
    assert shown.page.locator("#names li").count() == 2
    with live(browser, shown.url) as other:
        other.open(shown.page.url.removeprefix(shown.url).removeprefix("/"))
        other.wait("held")
        # the labels next to the picture come with the statistics of the view
        for each in (shown, other):
            eventually(lambda each=each: "of this view" in each.text("#numbers-about"))
            each.settle()
        assert other.page.get_attribute("html", "data-theme") == "light"
        eventually(lambda: (other.pixels() == shown.pixels()).all(axis=2).mean() > 0.99)
        assert other.complaints == []


def test_where_nothing_was_measured_the_picture_shows_a_hole(shown: Live, tree: Path) -> None:
    shown.open("#direction=transmit&span=3000")
    shown.wait("live")
    (tree / "faults.json").write_text('{"einval": ["mlx5_2"]}')
    try:
        eventually(lambda: is_hatched(shown.row(2)[-200:]), seconds=30)
        assert not is_hatched(shown.row(1)[-200:])
        assert not is_hatched(shown.row(IDLE)[-200:])
        shown.press(" ")
        box = shown.page.locator("#waterfall").bounding_box()
        assert box
        shown.page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 2.5 * (box["height"] - 28) / 8)
        eventually(lambda: shown.text("#reading").endswith(("read was missed", "no data: unreadable")))
    finally:
        (tree / "faults.json").write_text("{}")


def is_hatched(pixels: np.ndarray) -> bool:
    """Whether most pixels are neutral grey, which no value is drawn in."""
    spread = pixels.max(axis=1).astype(int) - pixels.min(axis=1)
    return bool((spread < 40).mean() > 0.8)


def test_rails_are_chosen(shown: Live) -> None:
    shown.open()
    shown.press("r")
    shown.page.uncheck("#rails input[value='mlx5_3:1']")
    eventually(lambda: shown.page.locator("#names li").count() == 7)
    assert "mlx5_3:1" not in shown.page.url
    shown.page.click("#rails button")
    eventually(lambda: shown.page.locator("#names li").count() == 8)
    shown.press("Escape")
    eventually(lambda: not shown.page.is_visible("#rails"))


def test_the_theme_follows_the_system_until_it_is_chosen(browser: Browser, daemon: Running) -> None:
    with live(browser, daemon.url, color_scheme="light") as found:
        found.open()
        assert found.page.get_attribute("html", "data-theme") == "light"
        found.page.emulate_media(color_scheme="dark")
        eventually(lambda: found.page.get_attribute("html", "data-theme") == "dark")
        found.press("t")
        assert found.page.get_attribute("html", "data-theme") == "light"
        assert found.complaints == []


@pytest.mark.parametrize("name", ["viridis", "inferno"])
def test_the_colours_are_the_published_ones(shown: Live, name: str) -> None:
    words = np.array(
        shown.page.evaluate(f"import('/static/colours.js').then((m) => [...m.shades('{name}')])"), dtype=np.uint32
    )
    ours = np.stack([words & 255, (words >> 8) & 255, (words >> 16) & 255], axis=1).astype(int)
    published = np.round(colormaps[name](np.arange(256))[:, :3] * 255).astype(int)
    assert np.abs(ours - published).max() <= 8
    assert (np.diff(lightness(ours)) > -0.5).all()


def test_nothing_is_asked_of_another_host_and_no_foreign_script_runs(browser: Browser, daemon: Running) -> None:
    with live(browser, daemon.url) as found:
        found.open()
        found.wait("live")
        assert {request.split("/")[2] for request in found.requests if "://" in request} == {daemon.url.split("/")[2]}
        assert found.complaints == []
        inject = (
            "const s = document.createElement('script'); s.textContent = 'window.intruder = 1'; document.body.append(s)"
        )
        found.page.evaluate(inject)
        refused = found.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'got', () => 'refused')")
        assert (found.page.evaluate("window.intruder"), refused) == (None, "refused")
        assert sum("Content Security Policy" in text for text in found.complaints) >= 2


def test_without_javascript_the_page_has_links_and_ports(browser: Browser, daemon: Running) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(daemon.url)
    assert "The live view needs JavaScript." in page.inner_text("body")
    assert "mlx5_0:1" in page.inner_text(".facts table")
    assert page.is_visible("a[href='metrics']")
    assert not page.is_visible("#waterfall")
    context.close()
