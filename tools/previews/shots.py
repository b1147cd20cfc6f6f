"""Pictures of boards in a headless browser, with what the page and its measurement found."""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

MEASURE = (Path(__file__).parent / "page" / "measure.js").read_text().partition("\n")[2]
DRAWN = "window.__failed || (window.__expected && window.__done >= window.__expected)"
HIGHEST = 16_000
"""Pixels; a picture of a higher board ends there."""
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture to take: a board by the name of its file, the theme, the width in pixels, and a span in ms."""

    board: str
    theme: str
    width: int
    from_ms: int
    to_ms: int
    expand: bool

    @property
    def name(self) -> str:
        """The name of the picture."""
        return f"{self.board}-{self.theme}-{self.width}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a panel in a picture."""

    shot: str
    panel: str
    problem: str


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium.

    Raises:
        SystemExit: it is not installed.
    """
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("neither chromium nor google-chrome is installed; the previews need one of them")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
        running = playwright.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


def take(running: Browser, address: str, shot: Shot, values: Mapping[str, Sequence[str]], out: Path) -> list[Finding]:
    """Draw a board, write its picture into `out`, and return what is wrong with it."""
    query = {"board": shot.board, "theme": shot.theme, "width": shot.width, "from": shot.from_ms, "to": shot.to_ms}
    given = [*query.items(), *((f"var-{name}", value) for name, many in values.items() for value in many)]
    if shot.expand:
        given.append(("expand", "1"))
    page = running.new_page(viewport={"width": shot.width, "height": 1000})
    try:
        page.goto(f"{address}/?{urllib.parse.urlencode(given)}")
        page.wait_for_function("window.__failed || document.querySelector('#board')", timeout=SECONDS * 1000)
        height = int(page.evaluate("document.querySelector('#board')?.scrollHeight ?? 1000"))
        # a table draws only the rows that are in view
        page.set_viewport_size({"width": shot.width, "height": min(height, HIGHEST)})
        page.wait_for_function(DRAWN, timeout=SECONDS * 1000)
        page.wait_for_timeout(1000)
        page.screenshot(path=out / f"{shot.name}.png")
        problems = [text.partition(": ") for text in page.evaluate("window.__problems")]
        found = [Finding(shot.name, panel, problem) for panel, _, problem in problems]
        return found + [Finding(shot.name, each["panel"], each["problem"]) for each in page.evaluate(MEASURE)]
    finally:
        page.close()
