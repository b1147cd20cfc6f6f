"""Every refusal is a problem document that names the bound and the way out."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from ibpulse.agent.web.app import create_app
from ibpulse.agent.web.parts import WebLimits
from ibpulse.base.errors import RequestError
from ibpulse.core.http.application import OuterMiddleware
from ibpulse.core.metrics.web import WebCounts
from tests.web.conftest import make_client
from tests.web.rings import Node

WINDOW = "/api/v1/window"


def problem(answer: httpx.Response, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["type"]
    assert document["title"]
    return document


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("last=5", "last: 5 has no unit; write it like 10ms, 5s or 1h30m"),
        ("from=soon", "from: 'soon' is not a time; write milliseconds since the epoch"),
        ("resolution=15ms", "resolution: 15ms is not a multiple of the sampling interval, 10ms"),
        ("max_points=1", "max_points: '1' is too small; use at least 2"),
        ("max_points=" + "9" * 5000, "max_points: "),
        ("last=5s&last=6s", "query: a parameter is given more than once; only port may be repeated"),
        ("from_=5", "from_: no such name; did you mean from?"),
        ("start_ms=5", "start_ms: no such name; did you mean from?"),
    ],
)
async def test_a_bad_parameter_is_named_with_the_way_out(client: httpx.AsyncClient, query: str, sentence: str) -> None:
    document = problem(await client.get(f"{WINDOW}?{query}"), 422)
    assert sentence in document["detail"]
    assert document["type"] == "/api/docs#bad-parameter"
    assert document["errors"][0]["parameter"] == sentence.partition(":")[0] or ":" not in sentence


async def test_the_largest_window_is_answered_and_one_more_value_or_port_is_not(node: Node) -> None:
    async with make_client(node.parts(limits=WebLimits(max_values=400, max_ports=2))) as client:
        assert (await client.get(WINDOW, params={"last": "1s"})).status_code == 200
        problem(await client.get(WINDOW, params={"last": "1010ms"}), 422)
        # an uncertainty is a value, too
        assert (await client.get(WINDOW, params={"last": "500ms", "uncertainty": "true"})).status_code == 200
        document = problem(await client.get(WINDOW, params={"last": "510ms", "uncertainty": "true"}), 422)
        assert document["bound"]["asked"] == 408
        ports = ["mlx5_0:1", "mlx5_1:1"]
        assert (await client.get(WINDOW, params={"last": "1s", "port": ports})).status_code == 200
        problem(await client.get(WINDOW, params={"last": "1s", "port": [*ports, "mlx5_0"]}), 422)
        document = problem(await client.get(WINDOW, params={"port": "mlx5_9:1"}), 404)
        assert document["detail"] == "Port mlx5_9:1 is not sampled: no file counts its bytes."


async def test_an_error_of_another_package_is_a_problem(node: Node) -> None:
    def refuse() -> dict[str, int]:
        raise RequestError(409, "Captures are full", "There is no room; remove one.")

    async with make_client(node.parts(known_ports=refuse)) as client:
        document = problem(await client.get(WINDOW), 409)
    assert (document["type"], document["title"]) == ("about:blank", "Captures are full")


async def test_a_failure_of_the_server_reveals_nothing(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("secret")

    async with make_client(node.parts(snapshot=fail)) as client:
        answer = await client.get("/metrics")
    assert problem(answer, 500)["detail"] == "Internal error; see the server's log."
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "request /metrics failed" in caplog.text
    assert "secret" in caplog.text


async def test_other_protocols_pass_untouched() -> None:
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
async def test_requests_cut_off_by_the_end_get_a_503(begun: bool) -> None:
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


async def test_refusals_of_the_framework_are_problems(node: Node) -> None:
    def route(count: int) -> int:
        return count

    app = create_app(node.parts())
    app.add_api_route("/counted", route)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as client:
        answer = await client.get("/counted?count=x")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["detail"].startswith("count: 'x' is not a whole number")
