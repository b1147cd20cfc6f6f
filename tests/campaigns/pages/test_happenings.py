"""Events and captures on the page of a node: the list, taking one, a refusal, and links older than the history."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def capturing(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with a short history on which anyone may take captures."""
    flags = (
        "--capture.allow-unauthenticated=true",
        "--capture.before=2s",
        "--capture.after=1s",
    )
    with Running(tree, tmp_path_factory.mktemp("short") / "ring", "--sampler.history=20s", *flags) as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Browser, capturing: Running) -> Iterator[Live]:
    with live(browser, capturing.url) as found:
        yield found


def test_a_capture_is_refused_with_the_reason_where_it_is_not_allowed(shown: Live) -> None:
    shown.open()
    shown.wait("live")
    before = shown.page.evaluate("document.querySelector('#waterfall').getBoundingClientRect().top")
    shown.page.click("#save-menu summary")
    shown.page.click("#capture")
    eventually(lambda: "No capture was taken. Taking and deleting captures requires a user" in shown.text("#message"))
    assert shown.page.get_attribute("#message", "role") == "status"
    # a message moves nothing
    assert shown.page.evaluate("document.querySelector('#waterfall').getBoundingClientRect().top") == before
    # the browser itself writes down that a request was refused
    refused = [text for text in shown.complaints if "403" in text]
    assert len(refused) == 1
    shown.complaints.clear()


def test_a_capture_is_taken_listed_shown_and_downloaded(page: Live) -> None:
    page.open()
    page.wait("live")
    page.page.click("#happenings summary")
    eventually(lambda: "the daemon started" in page.text("#happenings"))
    page.page.click("#save-menu summary")
    page.page.click("#capture")
    eventually(lambda: "Capturing the time around" in page.text("#message"))
    row = page.page.locator("#happenings tr", has_text="Download")
    eventually(lambda: row.count() == 1, seconds=40)
    with page.page.expect_download() as waiting:
        row.get_by_role("link", name="Download").click()
    assert waiting.value.suggested_filename.endswith(".parquet")
    assert pq.read_metadata(io.BytesIO(Path(waiting.value.path()).read_bytes())).num_rows > 100
    eventually(lambda: page.page.locator(".mark-event[data-sort=capture]").count() == 1)
    row.locator("button").click()
    page.wait("held")
    begin, end = page.span()
    assert end - begin == pytest.approx(5000, abs=1)
    assert page.page.evaluate("document.activeElement.id") == "waterfall"
    marked = page.page.evaluate("ibpulse.events.list.find((each) => each.kind === 'capture').time_ms")
    assert begin < marked < end
    # the overview has a line at the time of the capture
    x = "Math.round((ms - ibpulse.reach.fromMs) / (ibpulse.reach.toMs - ibpulse.reach.fromMs) * canvas.width)"
    read = f"((canvas, ms) => [...canvas.getContext('2d').getImageData({x} - 3, 2, 7, 1).data])"
    page.press("End")
    page.wait("live")
    eventually(lambda: 0x6F in page.page.evaluate(f"{read}(document.querySelector('#history'), {marked})")[::4])
    assert page.complaints == []


def test_a_link_older_than_the_history_offers_the_captures_of_that_time(page: Live) -> None:
    now = round(time.time() * 1000)
    page.open(f"#from={now - 60_000}&to={now - 55_000}")
    eventually(lambda: "is older than the history of" in page.text("#notices"))
    eventually(lambda: page.page.locator("#notices a[download]").count() == 1)
    assert "Captures taken within five minutes of it:" in page.text("#notices")
    page.open("#from=1763683200000&to=1763683210000")
    eventually(lambda: "No capture was taken within five minutes of it." in page.text("#notices"))
    assert page.page.get_attribute("#notices a", "href") == "api/v1/captures"
    assert page.complaints == []


def test_events_stay_listed_without_their_samples(page: Live) -> None:
    row = page.page.locator("#happenings tr", has_text="the daemon started")

    def listed() -> str:
        page.open()
        page.page.click("#happenings summary")
        row.wait_for()
        return row.inner_text()

    # the history is 20 s long
    eventually(lambda: "no samples" in listed(), seconds=60)
    assert "Events of the last 24 hours" in page.text("#happenings")
    assert page.complaints == []
