"""The page works below any path prefix, because nothing on it knows where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.campaigns.pages.prefixed import prefixed
from tests.running import Running, eventually

pytestmark = pytest.mark.needs("chromium")
PREFIX = "/clusters/a/node/gpu-001"


@pytest.fixture(scope="module")
def shown(browser: Browser, daemon: Running) -> Iterator[Live]:
    with prefixed(daemon.url, PREFIX) as url, live(browser, url) as found:
        yield found


def test_the_page_is_live_and_asks_nothing_outside_its_prefix(shown: Live) -> None:
    shown.open()
    shown.wait("live")
    shown.press(" ", "ArrowLeft")
    shown.settle()
    eventually(lambda: "of this view" in shown.text("#numbers-about"))
    paths = [request.split("/", 3)[3] for request in shown.requests if "://" in request]
    assert {path.startswith(f"{PREFIX[1:]}/") for path in paths} == {True}
    asked = {re.sub(r"\?.*", "", path.removeprefix(f"{PREFIX[1:]}/")) for path in paths}
    assert {"api/v1/stream", "api/v1/window", "api/v1/summary", "static/main.js"} <= asked


def test_every_link_of_the_page_and_of_the_reference_stays_below_the_prefix(shown: Live) -> None:
    shown.open()
    for page in (f"{shown.url}/", f"{shown.url}/api/docs"):
        text = shown.page.request.get(page).text()
        links = [urljoin(page, unescape(link)) for link in re.findall(r'(?:href|src)="([^"#]+)"', text)]
        assert len(links) >= 2
        for link in links:
            assert link.startswith(f"{shown.url}/"), link
            assert shown.page.request.get(link).status == 200, link


def test_a_view_is_shared_by_its_address_below_the_prefix(shown: Live) -> None:
    shown.open("#unit=bytes")
    shown.press("u", "u")
    assert shown.page.url == f"{shown.url}/"
    shown.press("d")
    assert shown.page.url == f"{shown.url}/#direction=transmit"
    link = shown.page.get_attribute("#save-samples", "href")
    assert link is not None
    assert link.startswith("api/v1/window?")
