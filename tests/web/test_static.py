from __future__ import annotations

import hashlib
import re
import zipfile
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.tables import for_each

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


async def test_what_the_browser_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    tag = (await client.get("/static/main.js")).headers["etag"]
    again = await client.get("/static/main.js", headers={"If-None-Match": f'"other", {tag}'})
    changed = await client.get("/static/main.js", headers={"If-None-Match": '"other"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert changed.status_code == 200


@pytest.mark.parametrize("wanted", ["bytes=0-3", "bytes=99999999-", "lines=1", "bytes=1-2,4-5"])
async def test_parts_of_a_file_are_not_sent(client: httpx.AsyncClient, wanted: str) -> None:
    answer = await client.get("/static/main.js", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, STATIC.joinpath("main.js").read_bytes())


async def test_the_tag_is_of_the_content_and_not_of_its_time(client: httpx.AsyncClient) -> None:
    answer = await client.get("/static/main.js")
    assert answer.headers["etag"] == f'"{hashlib.sha256(answer.content).hexdigest()[:20]}"'


async def test_head_gives_the_headers_alone(client: httpx.AsyncClient) -> None:
    whole, answer = await client.get("/static/main.js"), await client.head("/static/main.js")
    assert (answer.status_code, answer.content, answer.headers) == (200, b"", whole.headers)


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/.",
        "/static/%2e%2e",
        "/static//etc/passwd",
        "/static/live.html",
        "/static/..%2fpage.css",
        "/static/../page.css",
        "/static/.%00.js",
        "/static/x/y.js",
    ],
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


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
