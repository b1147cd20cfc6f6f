"""`/api/v1/summary`: which seconds, what of bursts and gaps, and refusals."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.web.conftest import make_client
from tests.web.rings import EPOCH, make_node


async def ask(client: httpx.AsyncClient, **params: str) -> dict:
    answer = await client.get("/api/v1/summary", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusal(client: httpx.AsyncClient, **params: str) -> str:
    answer = await client.get("/api/v1/summary", params=params)
    assert answer.status_code == 422
    return answer.json()["detail"]


async def test_the_window_is_the_newest_whole_seconds(client: httpx.AsyncClient) -> None:
    found = await ask(client, last="5s")
    assert (found["start_ms"], found["end_ms"]) == ((EPOCH + 400) * 10, (EPOCH + 900) * 10)
    assert found["window_seconds"] == 5


@pytest.mark.parametrize(("begin", "end"), [(300, 500), (301, 499), (399, 400), (300, 401), (0, 900)])
async def test_two_times_choose_the_seconds_of_the_bins_of_a_window(
    client: httpx.AsyncClient, begin: int, end: int
) -> None:
    span = {"from": str((EPOCH + begin) * 10), "to": str((EPOCH + end) * 10)}
    found = await ask(client, **span)
    bins = (await client.get("/api/v1/window", params={**span, "resolution": "1s"})).json()
    first, last = begin // 100, -(-end // 100)
    assert (found["start_ms"], found["end_ms"]) == ((EPOCH + first * 100) * 10, (EPOCH + last * 100) * 10)
    assert (found["start_ms"], found["end_ms"]) == (bins["start_ms"], bins["end_ms"])
    assert found["window_seconds"] == last - first


async def test_a_span_across_a_clock_step_has_its_seconds(tmp_path: Path) -> None:
    """The seconds of the ring are 0.5 s off those of the wall clock after the step."""
    node = make_node(tmp_path)
    node.run(EPOCH, 400)
    node.ring.begin_segment(EPOCH + 400, -50)
    node.run(EPOCH + 400, 600)
    node.now_tick = EPOCH + 1049
    async with make_client(node.parts()) as client:
        found = await ask(client, **{"from": str((EPOCH + 650) * 10), "to": str((EPOCH + 850) * 10)})
        wider = await ask(client, **{"from": str((EPOCH + 700) * 10), "to": str((EPOCH + 800) * 10)})
    for one, seconds in ((found, 2), (wider, 2)):
        assert (one["start_ms"], one["end_ms"]) == ((EPOCH + 650) * 10, (EPOCH + 850) * 10)
        assert one["window_seconds"] == seconds


async def test_a_ring_without_samples_knows_nothing(tmp_path: Path) -> None:
    async with make_client(make_node(tmp_path).parts()) as client:
        found = await ask(client, last="5s")
    assert found["node"]["bandwidth_peak_bytes_per_second"] is None
    assert found["ports"][0]["transmit"] == dict.fromkeys(
        ("mean_bytes_per_second", "peak_bytes_per_second", "duty_cycle_ratio", "burstiness_cv")
    )


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"last": "5s", "port": "mlx5_0"}, "port: no such name; use last, from, to or job"),
        ({"last": "1500ms"}, "last: 1s500ms is not a whole number of seconds; write it like 10s or 5m"),
        ({"last": "5m"}, "last: 5m exceeds the history, 40s; shorten the span or raise sampler.history"),
        (
            {"from": "1763683100000", "to": "1763683200000"},
            "from: the span of 1m40s exceeds the history, 40s; shorten the span or raise sampler.history",
        ),
        (
            {"from": "1763683203000", "to": "1763683203000"},
            "from: the span is empty; use an earlier from or a later to",
        ),
        ({"from": "1763683209500"}, "from: no second of the span is complete yet; try again in a second"),
    ],
)
async def test_invalid_parameters_are_refused(client: httpx.AsyncClient, params: dict[str, str], sentence: str) -> None:
    assert await refusal(client, **params) == sentence
