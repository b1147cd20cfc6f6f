from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest

from ibpulse.core.model import Fabric
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


async def test_the_reference_needs_nothing_but_itself(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/docs")
    page = Page(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert page.fetched == []
    assert "script" not in page.tags
    assert "url(" not in answer.text
    assert "@import" not in answer.text


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


async def test_the_live_page_may_run_its_own_files_alone(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert not re.search(r"<[^>]* (style|on[a-z]+)=", answer.text)
    assert re.findall(r"<script[^>]*>[^<]+", answer.text) == []
    assert "<style" not in answer.text


async def test_the_content_policy_of_the_reference_allows_its_own_style_alone(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/docs")
    policy = answer.headers["content-security-policy"]
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert not re.search(r"<[^>]* style=", answer.text)


@pytest.mark.parametrize("path", PAGES)
async def test_every_link_leads_somewhere(client: httpx.AsyncClient, path: str) -> None:
    links = Page((await client.get(path)).text).links
    assert links
    for link in links:
        # relative, because the page may be served below a path prefix
        assert not link.startswith("/")
        assert (await client.get(urljoin(path, link))).status_code == 200, link


async def test_the_live_page_shows_the_ports_without_its_script(client: httpx.AsyncClient) -> None:
    text = " ".join(Page((await client.get("/")).text).words)
    assert "Traffic of every InfiniBand and RoCE port of this node, every 10 ms." in text
    assert "Version 1.2.3" in text
    assert 'hardware" hidden>SIMULATED' in (await client.get("/")).text
    assert "mlx5_0:1 ACTIVE 400 Gb/s rail counters" in text
    assert re.search(r"mlx5_9:1 DOWN\s+no file counts its bytes", text)
    assert "One device has no counters: mlx5_9." in text
    assert "Ready: every port was sampled." in text


async def test_a_hostile_name_is_text(node: Node) -> None:
    evil = port("<script>alert(1)</script>:1")
    async with make_client(node.parts(fabric=lambda: Fabric((evil,), notices=("<b>",)))) as client:
        answer = await client.get("/")
    assert "<script>" not in answer.text
    assert "<b>" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;:1" in answer.text


async def test_a_node_without_ports_says_so(node: Node) -> None:
    async with make_client(node.parts(fabric=Fabric)) as client:
        assert "No ports found." in (await client.get("/")).text


async def test_the_reference_names_every_path_parameter_and_kind_of_problem(client: httpx.AsyncClient) -> None:
    schema = (await client.get("/api/openapi.json")).json()
    page = Page((await client.get("/api/docs")).text)
    words = set(page.words)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in words
            assert {item["name"] for item in operation.get("parameters", [])} <= words
    refused = await client.get("/api/v1/window?last=x")
    assert refused.json()["type"].removeprefix("/api/docs#") in page.anchors
    assert {"max | mean | min", "string, repeatable"} <= words


@pytest.mark.parametrize("path", [*PAGES, "/metrics", "/api/v1/ports", "/api/v1/window", "/-/ready", "/nothing"])
async def test_every_answer_carries_the_security_headers(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "server" not in headers


async def test_ports_are_described(client: httpx.AsyncClient) -> None:
    found = (await client.get("/api/v1/ports")).json()
    assert found["interval_seconds"] == 0.01
    assert found["simulated"] is False
    assert found["notices"] == ["One device has no counters: mlx5_9."]
    first, _, dark = found["ports"]
    assert first.pop("identity")["rate"] == "400 Gb/sec (4X NDR)"
    assert first == {
        "name": "mlx5_0:1",
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "since": None,
        "active": True,
        "rate_bytes_per_second": 50e9,
        "rail": True,
        "role": "compute",
        "source": {"name": "counters", "resolution_seconds": 0.01, "note": ""},
        "problem": "",
    }
    assert (dark["source"], dark["problem"], dark["rate_bytes_per_second"]) == (None, "no file counts its bytes", None)
