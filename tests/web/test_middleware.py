from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from ibpulse.agent.web.app import create_app
from ibpulse.core.http.application import OuterMiddleware
from ibpulse.core.metrics.web import WebCounts
from tests.web.rings import Node


async def test_what_is_not_http_passes_untouched() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    await OuterMiddleware(app, WebCounts(), 10)({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]


async def test_a_failure_in_the_middle_of_an_answer_is_logged_and_breaks_it_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        raise RuntimeError("then broken")

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": "/broken", "query_string": b""}
    middleware = OuterMiddleware(app, WebCounts(), 10)
    for _ in range(3):
        await middleware(scope, None, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"] * 3
    # no client can fill the log with the same failure
    assert caplog.text.count("request /broken failed") == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_the_end_breaks_off_is_told_so_unless_its_answer_has_begun(begun: bool) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    request = asyncio.create_task(OuterMiddleware(app, WebCounts(), 10)(scope, None, send))
    await asyncio.sleep(0)
    request.cancel()
    await request
    assert [message["status"] for message in sent if "status" in message] == [200 if begun else 503]


async def test_the_body_of_an_answer_to_head_is_dropped() -> None:
    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    scope = {"type": "http", "method": "HEAD", "path": "/", "query_string": b""}
    await OuterMiddleware(Response(b"the body"), WebCounts(), 10)(scope, None, send)
    assert (b"content-length", b"8") in sent[0]["headers"]
    assert [message["body"] for message in sent[1:]] == [b""]


async def test_what_the_framework_refuses_is_a_problem_too(node: Node) -> None:
    def route(count: int) -> int:
        return count

    app = create_app(node.parts())
    app.add_api_route("/counted", route)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as client:
        answer = await client.get("/counted?count=x")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["detail"].startswith("count: 'x' is not a whole number")
