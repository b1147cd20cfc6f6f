"""Every refusal is a problem document that names the bound and the way out."""

from __future__ import annotations

import httpx
import pytest

from ibpulse.agent.web.parts import WebLimits
from ibpulse.base.errors import RequestError
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, Node

WINDOW = "/api/v1/window"
NOW = str(EPOCH * 10)


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
        ("last=0s", "last: '0s' is zero; give more than 0"),
        ("last=-5s", "last: '-5s' is not a duration"),
        ("last=", "last: '' is not a duration"),
        ("last=NaN", "last: 'NaN' is not a duration"),
        ("last=%F0%9F%92%A9", "is not a duration"),
        ("last=99999999999999999999s", "is not a duration"),
        ("last=9999999999s", "last: 9999999999s is too large"),
        ("last=" + "9" * 40, "last: '9999999999999999999999999999999999999999' is too long; use at most 32 characters"),
        ("last=5s&from=" + NOW, "last: cannot be combined with from and to"),
        ("to=" + NOW, "to: requires from; for the most recent data, use last=5s"),
        ("from=soon", "from: 'soon' is not a time; write milliseconds since the epoch"),
        (
            "from=2261-01-01T00:00:00Z",
            "from: 2261-01-01T00:00:00Z is in the future; check both clocks",
        ),
        ("from=9999-01-01T00:00:00Z", "from: 9999-01-01T00:00:00Z is outside of 1678 to 2262"),
        (f"from={NOW}&to=1763683199999", f"from: {NOW} is later than to=1763683199999; swap them"),
        (f"from={NOW}&to=nan", "to: 'nan' is not a time"),
        ("resolution=15ms", "resolution: 15ms is not a multiple of the sampling interval, 10ms"),
        ("resolution=1ms", "resolution: 1ms is not a multiple of the sampling interval, 10ms"),
        ("resolution=x", "resolution: 'x' is not a duration"),
        ("max_points=1", "max_points: '1' is too small; use at least 2"),
        ("max_points=-3", "max_points: '-3' is too small; use at least 2"),
        ("max_points=1e99", "max_points: '1e99' is not a whole number"),
        ("max_points=NaN", "max_points: 'NaN' is not a whole number"),
        ("max_points=" + "9" * 5000, "max_points: "),
        ("statistic=median", "statistic: unknown value 'median'; did you mean mean?"),
        ("direction=up", "direction: unknown value 'up'; choose transmit, receive or both"),
        ("unit=bits", "unit: unknown value 'bits'; choose bytes_per_second or ratio"),
        ("format=xml", "format: unknown value 'xml'; choose json, csv, npy or grafana"),
        ("formt=csv", "formt: no such name; did you mean format?"),
        ("last=5s&last=6s", "query: a parameter is given more than once; only port may be repeated"),
        ("from_=5", "from_: no such name; did you mean from?"),
        ("start=5", "start: no such name; did you mean from?"),
        ("start_ms=5", "start_ms: no such name; did you mean from?"),
        ("until=5", "until: no such name; did you mean to?"),
        ("step=5s", "step: no such name; did you mean resolution?"),
    ],
)
async def test_a_bad_parameter_is_named_with_the_way_out(client: httpx.AsyncClient, query: str, sentence: str) -> None:
    document = problem(await client.get(f"{WINDOW}?{query}"), 422)
    assert sentence in document["detail"]
    assert document["type"] == "/api/docs#bad-parameter"
    assert document["errors"][0]["parameter"] == sentence.partition(":")[0] or ":" not in sentence


async def test_an_unknown_port_gets_the_names_of_the_known(client: httpx.AsyncClient) -> None:
    document = problem(await client.get(WINDOW, params={"port": "mlx5_7:1"}), 404)
    assert document["detail"] == "No such port: 'mlx5_7:1'. Known ports: mlx5_0:1, mlx5_1:1."
    assert document["known_ports"] == ["mlx5_0:1", "mlx5_1:1"]


async def test_a_port_that_is_not_sampled_says_why(client: httpx.AsyncClient) -> None:
    document = problem(await client.get(WINDOW, params={"port": "mlx5_9:1"}), 404)
    assert document["detail"] == "Port mlx5_9:1 is not sampled: no file counts its bytes."


async def test_too_many_values_are_refused_with_the_bound(client: httpx.AsyncClient) -> None:
    document = problem(await client.get(WINDOW, params={"last": "90000d"}), 422)
    assert document["bound"] == {"name": "max_values", "limit": 200_000, "asked": 3_110_400_000_000}
    assert document["detail"] == (
        "The window has 3110400000000 values (777600000000 points of 4 series); the maximum is 200000. "
        "Use max_points, a coarser resolution, a shorter span or fewer ports."
    )


async def test_many_ports_are_refused(client: httpx.AsyncClient) -> None:
    document = problem(await client.get(WINDOW, params={"port": ["mlx5_0"] * 300}), 422)
    assert document["detail"] == "port: 300 ports requested; the maximum is 256"


async def test_a_long_query_is_refused_before_it_is_read(client: httpx.AsyncClient) -> None:
    document = problem(await client.get(WINDOW, params={"port": ["mlx5_0:1"] * 3000}), 414)
    assert document["bound"]["limit"] == 16_384
    assert "the maximum is 16384" in document["detail"]


async def test_the_largest_window_is_answered_and_one_more_value_is_not(node: Node) -> None:
    async with make_client(node.parts(limits=WebLimits(max_values=400))) as client:
        assert (await client.get(WINDOW, params={"last": "1s"})).status_code == 200
        problem(await client.get(WINDOW, params={"last": "1010ms"}), 422)
        # an uncertainty is a value, too
        assert (await client.get(WINDOW, params={"last": "500ms", "uncertainty": "true"})).status_code == 200
        document = problem(await client.get(WINDOW, params={"last": "510ms", "uncertainty": "true"}), 422)
        assert document["bound"]["asked"] == 408


async def test_as_many_ports_as_allowed_are_answered_and_one_more_is_not(node: Node) -> None:
    async with make_client(node.parts(limits=WebLimits(max_ports=2))) as client:
        assert (await client.get(WINDOW, params={"port": ["mlx5_0:1", "mlx5_1:1"]})).status_code == 200
        problem(await client.get(WINDOW, params={"port": ["mlx5_0:1", "mlx5_1:1", "mlx5_0"]}), 422)


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/", "/api/v1/ports/", "/api/v1/windows", "/%F0%9F%92%A9", "/x//"])
async def test_an_unknown_path_is_a_problem(client: httpx.AsyncClient, path: str) -> None:
    document = problem(await client.get(path), 404)
    assert document["detail"].endswith(". See / for the list of endpoints.")


@pytest.mark.parametrize("path", ["/metrics", WINDOW, "/", "/api/openapi.json"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_an_unknown_method_is_a_problem(client: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await client.request(method, path)
    assert problem(answer, 405)["detail"] == f"{method} is not allowed here; use GET or HEAD."
    assert answer.headers["allow"] == "GET, HEAD"


async def test_a_refusal_from_another_room_is_a_problem(node: Node) -> None:
    def refuse() -> dict[str, int]:
        raise RequestError(409, "Captures are full", "There is no room; remove one.")

    async with make_client(node.parts(known_ports=refuse)) as client:
        document = problem(await client.get(WINDOW), 409)
    assert (document["type"], document["title"]) == ("about:blank", "Captures are full")


async def test_a_failure_of_the_server_is_a_problem_without_its_inside(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("secret")

    async with make_client(node.parts(snapshot=fail)) as client:
        answer = await client.get("/metrics")
    assert problem(answer, 500)["detail"] == "Internal error; see the server's log."
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "request /metrics failed" in caplog.text
    assert "secret" in caplog.text
