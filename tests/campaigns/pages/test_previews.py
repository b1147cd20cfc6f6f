"""The program that draws the boards: exact versions, and a server that reaches nothing but what it should."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from tools.previews.board_server import serving
from tools.previews.bundle import INSTALL, SOURCES
from tools.previews.shots import MEASURE

PACKAGES = json.loads((SOURCES / "package.json").read_text())["dependencies"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, with a page of its own and no Prometheus."""
    folder = tmp_path_factory.mktemp("previews")
    for name in ("page", "boards", "secret"):
        (folder / name).mkdir()
    (folder / "page" / "index.html").write_text("the page")
    (folder / "boards" / "fleet.json").write_text("{}")
    (folder / "secret" / "key.json").write_text("secret")
    with serving(folder / "page", folder / "boards", "http://127.0.0.1:1") as running:
        yield running


def test_the_versions_of_all_packages_are_exact_and_there_is_no_lock_file() -> None:
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in PACKAGES.values())
    assert "--no-package-lock" in INSTALL
    assert not list(Path(SOURCES).rglob("*lock*"))


@pytest.mark.parametrize(
    "path", ["/boards/../secret/key.json", "/boards/%2e%2e/secret/key.json", "/../secret/key.json"]
)
def test_no_file_outside_of_its_folders_is_served(address: str, path: str) -> None:
    answer = httpx.request("GET", httpx.URL(address).copy_with(raw_path=path.encode()))
    assert answer.status_code == 404


def test_only_nodes_on_this_machine_are_asked(address: str) -> None:
    url = "http://192.0.2.1:10055/api/v1/window"
    assert httpx.get(f"{address}/infinity", params={"url": url}).status_code == 403


CELL = "width:60px;overflow:hidden;white-space:nowrap"
PAGE = f"""
<style>body {{ background: #fff; color: #000; font: 16px sans-serif }}</style>
<div class="panel" data-title="cut">
  <div style="{CELL};display:flex;justify-content:flex-end"><div><span>Transmit mean</span></div></div>
  <div style="{CELL};text-overflow:ellipsis">A long title of a panel</div>
</div>
<div class="panel" data-title="pale"><span style="color:#aaa">pale</span><span style="color:#56B4E9">sky</span></div>
<div class="panel" data-title="small"><span style="font-size:5px">small</span></div>
<div class="panel" data-title="good">
  <div style="{CELL}">short</div>
  <div style="width:1px;height:1px;overflow:hidden">for screen readers only</div>
  <span style="color:#777;font-size:30px">large</span>
  <span style="color:#1F83C4">unit</span>
</div>
"""


@pytest.mark.needs("chromium")
def test_cut_and_pale_text_is_found_and_other_text_is_not(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(PAGE)
    found = page.evaluate(MEASURE)
    page.close()
    assert [(each["panel"], each["problem"]) for each in found] == [
        ("cut", 'cut: "Transmit mean"'),
        ("cut", 'cut: "A long title of a panel"'),
        ("pale", 'contrast 2.32 of "pale" is below 4.5'),
        ("pale", 'contrast 2.31 of "sky" is below 4.1'),
        ("small", 'text of 5px: "small"'),
    ]
