"""Chromium with one page open on a daemon, and what happened on it. It asserts nothing by itself."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.programs import find
from tests.running import eventually

AXIS_PIXELS = 28


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Live:
    """The live page as its user sees it."""

    page: Page
    context: BrowserContext
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, view: str = "") -> None:
        """Load the page with a view in its address, and wait until samples are drawn."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{view}")
        self.until("window.ibpulse && ibpulse.ready && ibpulse.store.newestMs > 0 && !ibpulse.history.busy")

    def state(self) -> str:
        return str(self.page.get_attribute("#state", "data-state"))

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def card(self, name: str) -> str:
        """All that a card says."""
        return self.text(f".card:has(h3:text-is('{name}'))")

    def span(self) -> tuple[float, float]:
        """From when to when the picture is, in ms."""
        return tuple(self.page.evaluate("[ibpulse.span.fromMs, ibpulse.span.toMs]"))  # a pair

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The rows of the waterfall as they are on the screen: (height, width, 3)."""
        picture = Image.open(io.BytesIO(self.page.locator("#waterfall").screenshot())).convert("RGB")
        return np.asarray(picture)[:-AXIS_PIXELS]

    def row(self, number: int, rows: int = 8) -> npt.NDArray[np.uint8]:
        """The middle of one row of the waterfall: (width, 3)."""
        pixels = self.pixels()
        return np.asarray(pixels[round((number + 0.4) * len(pixels) / rows)])

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self) -> None:
        """Wait until all tiles of the view are here and painted."""
        self.until("!ibpulse.history.busy && !ibpulse.pending")

    def until(self, condition: str) -> None:
        """Wait for an expression to be true; the browser's own way to wait needs eval, which the page forbids."""
        eventually(lambda: self.page.evaluate(f"Boolean({condition})"), 60, pause=0.03)

    def wait(self, state: str) -> None:
        eventually(lambda: self.state() == state, 60, pause=0.05)


@contextmanager
def live(browser: Browser, url: str, **look: Any) -> Iterator[Live]:
    """A context of its own with the page in it, all complaints and all requests noted."""
    context = browser.new_context(**{"viewport": {"width": 1366, "height": 768}, "color_scheme": "dark", **look})
    page = context.new_page()
    found = Live(page, context, url)
    page.on("console", lambda message: found.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    try:
        yield found
    finally:
        context.close()
