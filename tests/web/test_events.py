"""`/api/v1/events`: the events of a log, chosen by time, kind and port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from ibpulse.core.http import admission
from tests.web.conftest import make_client
from tests.web.event_logs import KINDS_USED, NOW_NS, SUBJECTS, make_log
from tests.web.rings import Node

EVENTS = "/api/v1/events"


@pytest.fixture
async def client(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    async with make_client(node.parts(events=make_log(60))) as made:
        yield made


async def get(client: httpx.AsyncClient, **query: object) -> dict:
    answer = await client.get(EVENTS, params={name.rstrip("_"): value for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(found: dict) -> list[int]:
    return [event["details"]["number"] for event in found["events"]]


async def test_all_events_are_answered_by_time(client: httpx.AsyncClient) -> None:
    found = await get(client)
    assert numbers(found) == list(range(60))
    ports = [(event["device"], event["port"]) for event in found["events"][2:5]]
    assert ports == [("mlx5_0", None), ("mlx5_7", 1), ("", None)]
    assert (found["from_ms"], found["to_ms"], found["left_out"]) == (None, NOW_NS // 10**6, 0)
    assert found["kinds"] == dict.fromkeys(KINDS_USED, 20)


async def test_a_span_begins_with_its_first_and_ends_before_its_last_time(client: httpx.AsyncClient) -> None:
    times = [event["time_ms"] for event in (await get(client))["events"]]
    # the events happen 1 ns after a whole millisecond
    found = await get(client, from_=times[10], to=times[20])
    assert numbers(found) == list(range(10, 20))
    assert (found["from_ms"], found["to_ms"]) == (times[10], times[20])
    assert numbers(await get(client, from_=times[10] + 1, to=times[20] + 1)) == list(range(11, 21))
    assert numbers(await get(client, to=times[20])) == list(range(20))
    assert numbers(await get(client, last="9s")) == list(range(55, 60))


async def test_kinds_and_ports_choose(client: httpx.AsyncClient) -> None:
    kinds = ["link-up", "quarantined"]
    found = await get(client, kind=kinds)
    expected = [number for number in range(60) if KINDS_USED[number % 3] in kinds]
    assert numbers(found) == expected
    assert found["kinds"] == Counter(KINDS_USED[number % 3] for number in expected)
    # a device concerns its ports
    for port in ("mlx5_0:1", "mlx5_0"):
        found = await get(client, port=port)
        assert numbers(found) == [number for number in range(60) if SUBJECTS[number % 5] in ("mlx5_0:1", "mlx5_0")]


async def test_the_newest_are_kept_and_the_others_counted(client: httpx.AsyncClient) -> None:
    for limit in (7, 10_000):
        found = await get(client, limit=limit)
        assert numbers(found) == list(range(60))[-limit:]
        assert found["left_out"] == max(0, 60 - limit)
        assert sum(found["kinds"].values()) == len(found["events"])


async def test_a_long_answer_comes_from_a_thread(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(3000)
    async with make_client(node.parts(events=log)) as client:
        short = await get(client)
        assert (len(short["events"]), short["left_out"]) == (1000, 2000)
        found = await get(client, limit=10_000)
        assert numbers(found) == list(range(3000))
        monkeypatch.setattr(admission.ParallelRequests, "run", None)
        assert numbers(await get(client)) == list(range(2000, 3000))
        assert (await client.get(EVENTS, params={"limit": 1001})).status_code == 500


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("limit=0", 422, "limit: '0' is too small; use at least 1"),
        ("limit=10001", 422, "limit: '10001' is too large; use at most 10000"),
        ("type=capture", 422, "type: no such name; did you mean kind?"),
        ("port=mlx5_0&port=mlx5_1", 422, "query: a parameter is given more than once; only kind may be repeated"),
        ("port=mlx5_8", 404, "No such port or device: 'mlx5_8'. Known ports: mlx5_0:1, mlx5_1:1, mlx5_9:1."),
    ],
)
async def test_a_bad_parameter_is_named_with_the_way_out(
    client: httpx.AsyncClient, query: str, status: int, sentence: str
) -> None:
    answer = await client.get(f"{EVENTS}?{query}")
    assert (answer.status_code, answer.json()["detail"]) == (status, sentence)
