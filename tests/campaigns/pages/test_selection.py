"""A selected span: by pointer and keys, its statistics, and what it can be saved and copied as."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import AXIS_PIXELS, Live, live
from tests.campaigns.pages.staged import PORTS, WELL, at_ms, shown, story
from tests.perfetto_reader import read_trace
from tests.running import eventually

PROMTOOL = shutil.which("promtool")
__all__ = ["shown", "story"]
pytestmark = pytest.mark.needs("chromium")
# a second of it is after mlx5_1:1 and mlx5_2:1 have ended
VIEW = f"#from={at_ms(16)}&to={at_ms(24)}"


def selected(shown: Live) -> tuple[float, float] | None:
    span = shown.page.evaluate("ibpulse.selected.span && [ibpulse.selected.span.fromMs, ibpulse.selected.span.toMs]")
    return tuple(span) if span else None


def choose(shown: Live, begin: float, end: float, view: str = VIEW) -> None:
    """A view with a selection between two seconds of the story, with its statistics."""
    shown.open(f"{view}&select={at_ms(begin)}-{at_ms(end)}")
    eventually(lambda: "Missing" in shown.text("#selected"))


def drag(shown: Live, begin: float, end: float, y: float, key: str = "") -> None:
    """Drag over fractions of the picture's width."""
    box = shown.page.locator("#waterfall").bounding_box()
    assert box
    if key:
        shown.page.keyboard.down(key)
    shown.page.mouse.move(box["x"] + begin * box["width"], box["y"] + y)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + end * box["width"], box["y"] + y, steps=3)
    shown.page.mouse.up()
    if key:
        shown.page.keyboard.up(key)


def facts(shown: Live) -> dict[str, str]:
    # at one instant, because the page may write them anew
    both = "['dt', 'dd'].map((tag) => [...document.querySelectorAll(`.selected-facts ${tag}`)]"
    texts = shown.page.evaluate(f"{both}.map((each) => each.innerText))")
    return dict(zip(*texts, strict=True))


def samples(shown: Live, begin: float, end: float, statistic: str = "mean") -> np.ndarray:
    """The rates of a span by /api/v1/window: (series, points)."""
    query = f"from={at_ms(begin)}&to={at_ms(end)}&statistic={statistic}&" + "&".join(f"port={port}" for port in PORTS)
    answer = shown.page.request.get(f"{shown.url}/api/v1/window?{query}").json()
    return np.array([series["values"] for series in answer["series"]], dtype=float)


def test_a_drag_along_the_axis_or_with_shift_selects_and_a_click_does_not(shown: Live) -> None:
    shown.open(VIEW)
    shown.settle()
    height = shown.page.evaluate("document.querySelector('#waterfall').clientHeight")
    begin, end = shown.span()
    for y, key in ((height - AXIS_PIXELS / 2, ""), (40, "Shift")):
        drag(shown, 0.25, 0.5, y, key)
        shown.settle()
        span = selected(shown)
        assert span is not None
        assert span == pytest.approx((begin + 2000, begin + 4000), abs=25)
        assert all(ms % 10 == 0 for ms in span)
        assert shown.span() == (begin, end)
        band = shown.page.locator("#band").bounding_box()
        canvas = shown.page.locator("#waterfall").bounding_box()
        assert band
        assert canvas
        assert band["x"] - canvas["x"] == pytest.approx(canvas["width"] / 4, abs=4)
        assert band["width"] == pytest.approx(canvas["width"] / 4, abs=4)
        assert shown.text("#band").endswith(" s")
        shown.press("x")
        assert selected(shown) is None
        eventually(lambda: not shown.page.is_visible("#selected"))
    shown.page.locator("#waterfall").click(position={"x": 50, "y": height - AXIS_PIXELS / 2})
    assert selected(shown) is None


def test_a_span_is_selected_zoomed_and_cleared_with_keys(shown: Live) -> None:
    shown.open(VIEW)
    shown.settle()
    begin, end = shown.span()
    shown.press("[")
    assert selected(shown) == pytest.approx(((begin + end) / 2, end), abs=10)
    shown.press(".", ".", ".", "]")
    span = selected(shown)
    assert span is not None
    assert 0 < span[1] - span[0] < 200
    shown.press("a")
    assert selected(shown) == (begin, end)
    shown.press("Escape", "Escape")
    assert selected(shown) is None
    choose(shown, 18, 19)
    shown.press("z")
    assert shown.span() == (at_ms(18), at_ms(19))
    assert f"select={at_ms(18)}-{at_ms(19)}" in shown.page.url


def test_a_selection_while_live_holds_the_view(shown: Live) -> None:
    shown.open("#span=5000")
    shown.wait("live")
    drag(shown, 0.5, 0.75, 30, "Shift")
    shown.wait("held")
    span = selected(shown)
    assert span is not None
    assert span[1] - span[0] == pytest.approx(1250, abs=40)


def test_the_statistics_of_a_selection_are_those_of_its_samples(shown: Live) -> None:
    choose(shown, 16, 18)
    rates = samples(shown, 16, 18)
    sent, received = rates[::2], rates[1::2]
    found = facts(shown)
    assert shown.text(".selected-head p").startswith("Selected 2 s")
    for name, ways in (("Transmit", sent), ("Receive", received)):
        mean, total = ways.mean(axis=1).sum() / 1e9, ways.sum() * 0.01 / 1e9
        assert found[name] == f"mean {mean:.{1 if mean >= 9.995 else 2}f} GB/s, {float(f'{total:.3g}'):g} GB"
    peak = samples(shown, 16, 18, "max").sum(axis=0).max() / 1e9
    assert found["Highest sample"] == f"{peak:.{0 if peak >= 99.95 else 1}f} GB/s"
    assert found["Missing"] == "nothing"


def test_missing_samples_are_no_bytes_and_the_table_compares_the_rows(shown: Live) -> None:
    choose(shown, 19, 21)
    rates = samples(shown, 19, 21)
    lost = np.isnan(rates).mean()
    assert facts(shown)["Missing"] == f"{lost * 100:.1f} % of {rates.size} values; bytes count the others"
    shown.page.click("#selected summary")
    table = {row[0]: row for row in (line.split("\t") for line in shown.text("#selected table").split("\n"))}
    means = {port: np.nanmean(rates[2 * index]) for index, port in enumerate(PORTS)}
    by = (means[WELL] - np.median(list(means.values()))) / 1e9
    assert table[WELL][1] == f"{means[WELL] / 1e9:.2f} GB/s"
    assert table[WELL][2] == f"{'−' if by < 0 else '+'}{abs(by):.2f} GB/s"
    assert table[WELL][7] == ""
    assert table[PORTS[1]][7] == "50.0 %"


def test_a_selection_is_saved_as_parquet_csv_trace_and_picture(shown: Live, tmp_path: Path) -> None:
    choose(shown, 19, 21)
    shown.page.click("#selected button:has-text('Save')")
    eventually(lambda: shown.text("#save-what") == "The selection, 2 s")
    with shown.page.expect_download() as waiting:
        shown.page.click("#save-parquet")
    assert waiting.value.suggested_filename.endswith(f"-{at_ms(19)}.parquet")
    waiting.value.save_as(tmp_path / "saved.parquet")
    table = pq.read_table(tmp_path / "saved.parquet")
    frame = table.to_pandas().set_index("time_ms")
    assert str(table.schema.field("time_ms").type) == "timestamp[ms, tz=UTC]"
    assert table.schema.metadata[b"ibpulse.resolution_ms"] == b"10"
    rates = samples(shown, 19, 21)
    assert list(frame)[:2] == [f"{PORTS[0]} transmit bytes_per_second", f"{PORTS[0]} receive bytes_per_second"]
    assert frame.index[0] == pd.Timestamp(at_ms(19), unit="ms", tz="UTC")
    np.testing.assert_array_equal(frame.to_numpy().T, rates.astype(np.float32))
    assert sum(table.column(number).null_count for number in range(1, 9)) == np.isnan(rates).sum() > 0
    shown.page.click("#save-menu summary")
    with shown.page.expect_download() as waiting:
        shown.page.click("#save-samples")
    assert waiting.value.suggested_filename.endswith(f"-{at_ms(19)}.csv")
    assert len(Path(waiting.value.path()).read_text().splitlines()) == 201
    with shown.page.expect_download() as waiting:
        shown.page.click("#save-perfetto")
    assert waiting.value.suggested_filename.endswith(f"-{at_ms(19)}.perfetto")
    tracks = {path[1:]: track for path, track in read_trace(Path(waiting.value.path()).read_bytes()).items()}
    found = {time_ns: value for time_ns, value in tracks[(f"{PORTS[1]} receive",)].samples if value == value}
    # a sample covers the 10 ms before its time
    expected = {(at_ms(19) + 10 * (place - 1)) * 1_000_000: rate for place, rate in enumerate(rates[3]) if rate == rate}
    assert found == pytest.approx({time_ns: rate / 1e9 for time_ns, rate in expected.items()})
    shown.press("Escape")
    with shown.page.expect_download() as waiting:
        shown.press("p")
    assert Image.open(io.BytesIO(Path(waiting.value.path()).read_bytes())).width == 2800


def test_a_selection_is_copied_as_link_curl_pandas_and_promql(shown: Live, browser: Browser, tmp_path: Path) -> None:
    choose(shown, 18, 19, f"{VIEW}&unit=bytes&direction=transmit")
    copied = {}
    for name in ("link", "curl", "pandas", "promql"):
        shown.page.click("#save-menu summary")
        shown.page.click(f"#copy-{name}")
        eventually(lambda: "copied" in shown.text("#message"))
        copied[name] = str(shown.page.evaluate("navigator.clipboard.readText()"))
        shown.page.evaluate("document.querySelector('#message').textContent = ''")
    text = subprocess.run(shlex.split(copied["curl"]), capture_output=True, text=True, check=True).stdout
    assert len(text.splitlines()) == 101
    space: dict[str, pd.DataFrame] = {}
    exec(copied["pandas"], space)
    np.testing.assert_allclose(space["rates"].to_numpy(dtype=float).T, samples(shown, 18, 19, "max")[::2])
    assert f"[60s] @ {at_ms(19) / 1000:.3f}" in copied["promql"]
    assert 'ibpulse_port_transmit_bytes_total{device=~"mlx5_0|mlx5_1|mlx5_2|mlx5_3"}' in copied["promql"]
    rule = {"groups": [{"name": "a", "rules": [{"record": "a:b", "expr": copied["promql"]}]}]}
    (tmp_path / "rules.json").write_text(json.dumps(rule))
    if PROMTOOL is not None:
        subprocess.run([PROMTOOL, "check", "rules", str(tmp_path / "rules.json")], check=True, capture_output=True)
    with live(browser, shown.url) as other:
        other.open(copied["link"].removeprefix(shown.url).removeprefix("/"))
        eventually(lambda: facts(other) == facts(shown))
        assert other.complaints == []
