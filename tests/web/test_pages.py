"""Pages and static files: what they need, where they lead, and that they are complete."""

from __future__ import annotations

import re
import zipfile
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from hatchling.builders.wheel import WheelBuilder

from ibpulse.core.model import Fabric
from tests.tables import for_each
from tests.web.conftest import make_client
from tests.web.rings import Node, port

PAGES = ["/", "/api/docs"]


class Page(HTMLParser):
    """What a browser would fetch, follow and show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.fetched += [value for name in ("src", "data", "srcset") if (value := given.get(name))]
        if tag == "link":
            self.fetched.append(given.get("href") or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
        self.anchors += [given["id"] or ""] if "id" in given else []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


async def test_the_live_page_needs_nothing_but_this_server(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    page = Page(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert page.fetched == ["static/icon.svg", "static/live.css", "static/main.js"]
    for address in page.fetched:
        found = await client.get(f"/{address}")
        assert found.status_code == 200
        assert "url(" not in found.text
        assert "@import" not in found.text


@pytest.mark.parametrize("path", PAGES)
async def test_every_link_leads_somewhere(client: httpx.AsyncClient, path: str) -> None:
    links = Page((await client.get(path)).text).links
    assert links
    for link in links:
        # relative, because the page may be served below a path prefix
        assert not link.startswith("/")
        assert (await client.get(urljoin(path, link))).status_code == 200, link


async def test_a_hostile_name_is_text(node: Node) -> None:
    evil = port("<script>alert(1)</script>:1")
    async with make_client(node.parts(fabric=lambda: Fabric((evil,), notices=("<b>",)))) as client:
        answer = await client.get("/")
    assert "<script>" not in answer.text
    assert "<b>" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;:1" in answer.text


ROOT = Path(__file__).parents[2]
STATIC = files("ibpulse.core.http").joinpath("static")
NAMES = sorted(entry.name for entry in STATIC.iterdir())
SERVED = [name for name in NAMES if not name.endswith(".html")]


async def test_a_file_is_served_with_its_type_and_a_tag(client: httpx.AsyncClient) -> None:
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    faults = []
    for name in SERVED:
        answer = await client.get(f"/static/{name}")
        wanted = {
            "content-type": kinds[name.rpartition(".")[2]],
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
        }
        found = {header: answer.headers[header] for header in wanted}
        if (answer.content, found) != (STATIC.joinpath(name).read_bytes(), wanted):
            faults.append(f"{name}: {len(answer.content)} bytes, {found}")
    assert not faults, "\n".join(faults)


async def test_unchanged_files_are_not_sent_again(client: httpx.AsyncClient) -> None:
    tag = (await client.get("/static/main.js")).headers["etag"]
    again = await client.get("/static/main.js", headers={"If-None-Match": f'"other", {tag}'})
    changed = await client.get("/static/main.js", headers={"If-None-Match": '"other"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert changed.status_code == 200


@pytest.mark.parametrize("wanted", ["bytes=0-3", "bytes=99999999-", "lines=1", "bytes=1-2,4-5"])
async def test_parts_of_a_file_are_not_sent(client: httpx.AsyncClient, wanted: str) -> None:
    answer = await client.get("/static/main.js", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, STATIC.joinpath("main.js").read_bytes())


@for_each([name for name in NAMES if name.endswith(".js")])
def test_a_module_imports_only_its_neighbours_and_is_small(name: str) -> None:
    text = STATIC.joinpath(name).read_text(encoding="utf-8")
    imported = re.findall(r'from "(.*?)"', text)
    assert {place.removeprefix("./") for place in imported} <= set(NAMES)
    assert text.startswith("// ")
    assert text.count("\n") <= 300


def test_no_file_names_another_host() -> None:
    for name in NAMES:
        hosts = set(re.findall(r"https?://([a-z0-9.-]+)", STATIC.joinpath(name).read_text(encoding="utf-8")))
        assert hosts <= {"www.w3.org"}, name


def test_the_files_are_in_the_wheel(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert {f"ibpulse/core/http/static/{name}" for name in NAMES} <= packed
