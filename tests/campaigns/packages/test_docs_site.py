"""The documentation site: built with warnings as errors, complete, and usable without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_every_page_is_in_the_site_and_nothing_is_loaded_from_another_host(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.relative_to(site): path.read_text() for path in site.rglob("*.html")}
    assert written <= pages.keys()
    loaded = re.compile(r"""<(?:script|img)\b[^>]*\ssrc="([^"]*//[^"]*)"|<link rel="stylesheet"[^>]*href="([^"]*//)""")
    assert {str(path): found for path, text in pages.items() if (found := loaded.findall(text))} == {}
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
