"""The documentation site: built with warnings as errors, complete, and usable without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.campaigns.pages.browser import chromium
from tests.docs.pages import ROOT

# the build takes 20 s, and longer on a busy machine
pytestmark = [pytest.mark.needs("sphinx"), pytest.mark.timeout(1200)]


FIRST_FOUND = {
    "hang": "runbooks/IBPulseTrafficStalled",
    "stuck": "runbooks/IBPulseTrafficStalled",
    "NCCL timeout": "runbooks/IBPulseTrafficStalled",
    "straggler": "runbooks/IBPulseNodeBehindItsJob",
    "slow GPU": "runbooks/IBPulseNodeBehindItsJob",
    "flap": "runbooks/IBPulseLinkWentDown",
    "10 ms": "getting-started",
    "compare": "report",
    "perfquery": "faq",
}
"""What people search for, and a page that has to be among the first six."""


class Page(HTMLParser):
    """The links, the files and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.files: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag in ("img", "script") and "src" in given:
            self.files.add(given["src"])
        elif tag == "link" and given.get("rel") == "stylesheet":
            self.files.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs-site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", ROOT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_page_is_in_the_site_and_in_its_navigation(pages: dict[Path, Page], site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert written <= {path.relative_to(site) for path in pages}
    # the runbooks are below their index
    chosen = {str(path) for path in written if path.parent == Path() or path.name == "README.html"} - {"README.html"}
    # a page has no link to itself
    assert chosen <= pages[site / "faq.html"].links | pages[site / "reading.html"].links


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            file = (path.parent / unquote(target)).resolve() if target else path
            if not file.exists():
                wrong.append(f"{path.name}: {link}")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                wrong.append(f"{path.name}: {link}: no such heading")
    assert wrong == []


def test_nothing_is_loaded_from_another_host(pages: dict[Path, Page], site: Path) -> None:
    for path, page in pages.items():
        assert [name for name in page.files if "//" in name] == [], path
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text()), style


@pytest.mark.needs("chromium")
def test_the_search_finds_what_people_type_and_works_from_a_file(site: Path) -> None:
    found = {}
    with chromium() as browser:
        for words in FIRST_FOUND:
            page = browser.new_page()
            page.goto(f"file://{site}/search.html?q={words.replace(' ', '+')}")
            page.wait_for_selector("#search-results h2 + p:not(:empty)")
            page.wait_for_selector("ul.search li a")
            page.wait_for_timeout(2000)
            links = [str(link.get_attribute("href")) for link in page.query_selector_all("ul.search li a")]
            found[words] = [re.split(r"[#?]", link)[0].removesuffix(".html") for link in links[:6]]
            page.close()
    assert {words: name for words, name in FIRST_FOUND.items() if name not in found[words]} == {}
