"""`/api/v1/events`: the events of a log, chosen by time, kind and port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from ibpulse.base.values import either
from ibpulse.core.events import KINDS
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
    assert (found["from_ms"], found["to_ms"], found["left_out"]) == (None, NOW_NS // 10**6, 0)
    assert found["kinds"] == dict.fromkeys(KINDS_USED, 20)


async def test_a_device_and_the_node_have_no_port_number(client: httpx.AsyncClient) -> None:
    events = (await get(client))["events"]
    assert [(event["device"], event["port"]) for event in events[2:5]] == [
        ("mlx5_0", None),
        ("mlx5_7", 1),
        ("", None),
    ]
    assert events[1]["before"] is None


async def test_a_span_begins_with_its_first_and_ends_before_its_last_time(client: httpx.AsyncClient) -> None:
    times = [event["time_ms"] for event in (await get(client))["events"]]
    # the events happen 1 ns after a whole millisecond
    found = await get(client, from_=times[10], to=times[20])
    assert numbers(found) == list(range(10, 20))
    assert (found["from_ms"], found["to_ms"]) == (times[10], times[20])
    assert numbers(await get(client, from_=times[10] + 1, to=times[20] + 1)) == list(range(11, 21))
    assert numbers(await get(client, to=times[20])) == list(range(20))
    assert numbers(await get(client, last="9s")) == list(range(55, 60))


@pytest.mark.parametrize("kinds", [["link-up"], ["link-up", "quarantined"], ["capture"]])
async def test_kinds_choose(client: httpx.AsyncClient, kinds: list[str]) -> None:
    found = await get(client, kind=kinds)
    expected = [number for number in range(60) if KINDS_USED[number % 3] in kinds]
    assert numbers(found) == expected
    assert found["kinds"] == Counter(KINDS_USED[number % 3] for number in expected)


@pytest.mark.parametrize(
    ("port", "subjects"),
    [("mlx5_0:1", ("mlx5_0:1", "mlx5_0")), ("mlx5_0", ("mlx5_0:1", "mlx5_0")), ("mlx5_7:1", ("mlx5_7:1",))],
)
async def test_a_port_or_a_device_chooses(client: httpx.AsyncClient, port: str, subjects: tuple[str, ...]) -> None:
    found = await get(client, port=port)
    assert numbers(found) == [number for number in range(60) if SUBJECTS[number % 5] in subjects]


@pytest.mark.parametrize("limit", [1, 7, 60, 10_000])
async def test_the_newest_are_kept_and_the_others_counted(client: httpx.AsyncClient, limit: int) -> None:
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
    ("query", "sentence"),
    [
        ("kind=link-dwn", "kind: unknown value 'link-dwn'; did you mean link-down?"),
        ("kind=x", f"kind: unknown value 'x'; choose {either(list(KINDS))}"),
        ("limit=0", "limit: '0' is too small; use at least 1"),
        ("limit=10001", "limit: '10001' is too large; use at most 10000"),
        ("type=capture", "type: no such name; did you mean kind?"),
        ("port=mlx5_0&port=mlx5_1", "query: a parameter is given more than once; only kind may be repeated"),
    ],
)
async def test_a_bad_parameter_is_named_with_the_way_out(client: httpx.AsyncClient, query: str, sentence: str) -> None:
    answer = await client.get(f"{EVENTS}?{query}")
    assert (answer.status_code, answer.json()["detail"]) == (422, sentence)


@pytest.mark.parametrize("name", ["mlx5_8", "mlx5_8:1", ""])
async def test_an_unknown_port_gets_the_names_of_the_known(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(EVENTS, params={"port": name})
    assert answer.status_code == 404
    assert answer.json()["detail"] == (f"No such port or device: {name!r}. Known ports: mlx5_0:1, mlx5_1:1, mlx5_9:1.")
