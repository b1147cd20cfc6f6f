"""The pages in a real browser: they show samples and leave no error on the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.programs import find
from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.parts import IBPULSE, becomes, get, plain_tree, program

pytestmark = pytest.mark.needs("chromium", "libatomic")
LAPTOP, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 844}
HANG_MS = HANG_SECONDS * 1000
JOB, NODES = "1001", ["node1", "node2"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        running = playwright.chromium.launch(executable_path=find("chromium"), args=flags, timeout=HANG_MS)
        yield running
        running.close()


@contextmanager
def opened(browser: Browser, url: str, size: dict[str, int]) -> Iterator[Page]:
    """A page that must not complain."""
    context = browser.new_context(viewport=size)
    context.set_default_timeout(HANG_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        page.goto(url)
        yield page
        assert complaints == []
    finally:
        context.close()


def check_that_it_is_live(page: Page) -> None:
    """Samples are drawn, and newer ones come."""
    # the page forbids eval, which the browser's own way to wait needs
    eventually(lambda: page.evaluate("Boolean(window.ibpulse && ibpulse.ready && ibpulse.store.newestMs > 0)"))
    eventually(lambda: page.get_attribute("#state", "data-state") == "live")
    first = page.evaluate("ibpulse.store.newestMs")
    eventually(lambda: page.evaluate("ibpulse.store.newestMs") > first)


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_page_of_a_node_is_live(browser: Browser, tmp_path: Path, size: dict[str, int]) -> None:
    daemon = Running(plain_tree(tmp_path / "sys"), tmp_path / "ring")
    with daemon, opened(browser, daemon.url, size) as page:
        check_that_it_is_live(page)
        assert page.locator("#names li").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_gateway_shows_its_nodes_the_page_of_a_job_and_that_of_a_node(browser: Browser, tmp_path: Path) -> None:
    words = (*IBPULSE, "gateway", f"--demo={len(NODES)}", "--web.listen-address=127.0.0.1:0")
    with program(tmp_path / "gateway.log", *words) as gateway:
        url = gateway.said(r"serving (http://[^ ]+)/\n")
        becomes(lambda: [len(job["nodes"]) for job in get(f"{url}/api/v1/jobs")["jobs"]], [len(NODES)])
        with opened(browser, url, LAPTOP) as page:
            eventually(lambda: page.locator("#node-table tbody tr").count() == len(NODES))
            page.click(f"#job-table a:text-is('{JOB}')")
            page.wait_for_url(f"{url}/job/**")
            check_that_it_is_live(page)
            shown = "[...document.querySelectorAll('#names li .long')].map(name => name.textContent).sort()"
            assert page.evaluate(shown) == NODES
            page.click(f"#names .node:has-text('{NODES[0]}')")
            page.wait_for_url(f"{url}/node/{NODES[0]}/**")
            check_that_it_is_live(page)
