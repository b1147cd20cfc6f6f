"""`/api/v1/summary`: the statistics of one window, against plain loops over the same traffic."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest

from ibpulse.agent.aggregator.snapshot import AggregatorOptions
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.core.events import PortHistory
from tests.aggregator.rings import Ring, constant, port, square
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, Node, instant_ns, make_node

# what the ports send and receive in a second of traffic, in bytes, with its missing samples
MEANS = {"mlx5_0:1": (5.0e9, 1e9), "mlx5_1:1": (5.2e9, 2e9)}
NAMES = tuple(MEANS)


def good_samples(node: Node, name: str, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Rates (2, samples) in bytes per second and seconds of the ticks at which both directions have one."""
    ticks = [tick for tick in range(first, last + 1) if all((name, way, tick) in node.rates for way in range(2))]
    rates = np.array([[node.rates[name, way, tick] for tick in ticks] for way in range(2)])
    return rates, np.array([(instant_ns(tick) - instant_ns(tick - 1)) / 1e9 for tick in ticks])


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


async def test_a_port_has_the_mean_of_all_bytes_and_the_peaks_of_its_good_samples(
    client: httpx.AsyncClient, node: Node
) -> None:
    found = await ask(client, last="5s")
    for name, port_found in zip(NAMES, found["ports"], strict=True):
        rates, seconds = good_samples(node, name, EPOCH + 401, EPOCH + 900)
        assert port_found["port"] == name
        assert port_found["observed_seconds"] == pytest.approx(seconds.sum(), rel=1e-3)
        for way, direction in enumerate(("transmit", "receive")):
            active = rates[way] > 0.1e9
            mean = np.average(rates[way][active], weights=seconds[active])
            sigma = np.sqrt(np.average((rates[way][active] - mean) ** 2, weights=seconds[active]))
            one = port_found[direction]
            assert one["mean_bytes_per_second"] == pytest.approx(MEANS[name][way], rel=2e-3)
            assert one["peak_bytes_per_second"] == pytest.approx(rates[way].max(), rel=1e-6)
            assert one["duty_cycle_ratio"] == pytest.approx(seconds[active].sum() / seconds.sum(), rel=1e-3)
            assert one["burstiness_cv"] == pytest.approx(sigma / mean, abs=1e-3)


async def test_the_node_is_the_sum_of_its_rails(client: httpx.AsyncClient) -> None:
    node = (await ask(client, last="5s"))["node"]
    assert (node["rails"], node["active_rails"]) == (2, 2)
    assert node["bandwidth_peak_bytes_per_second"] == pytest.approx(25e9 + 26e9 + 3e9, rel=1e-6)
    assert node["receive_bytes_per_second"] == pytest.approx(3e9, rel=1e-6)
    assert node["duty_cycle_ratio"] == 1.0
    assert set(node["burstiness_cv"]) == {"10ms", "50ms", "100ms", "1s"}
    assert node["step_period_seconds"] == pytest.approx(1.0, rel=0.01)
    assert node["peak_to_mean_ratio"] == pytest.approx(54 / (3 + 51 * 0.2), rel=0.05)
    assert node["workload_signature"] in ("idle", "dense_like", "moe_like", "unknown")
    # two rails at 5.0 + 1 and 5.2 + 2 GB/s on average
    assert node["rail_fairness_ratio"] == pytest.approx((6 + 7.2) ** 2 / (2 * (6**2 + 7.2**2)), rel=1e-3)
    # it is active throughout: no gap ever ends
    assert node["bursts"] == {"count": 0, "mean_seconds": None, "mean_bytes": None}


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


async def test_bursts_and_gaps_have_their_mean_length_and_bytes(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1", rail=False))
    ring.write("mlx5_0:1", (square(40e9, 20, 30), constant(0.0)), 1, 1100)
    ring.write("mlx5_1:1", (square(40e9, 20, 30), constant(0.0)), 1, 1100)
    ports, history = ring.fabric.ports, PortHistory()
    found = summarize(ring.reader, ports, history, AggregatorOptions(), 10, None, 10_300_000_000)
    assert (found.node.rails, found.node.bursts.count, found.node.gaps.count) == (1, 19, 19)
    assert found.node.bursts.mean_seconds == pytest.approx(0.2)
    assert found.node.bursts.mean_bytes == pytest.approx(8e9)
    assert found.node.gaps.mean_seconds == pytest.approx(0.3)
    assert (found.node.gaps.mean_bytes, found.node.observed_seconds) == (None, pytest.approx(9.99))
    assert (found.ports[0].bursts, found.ports[0].rail_share_ratio) == (19, 1.0)
    assert (found.ports[1].bursts, found.ports[1].rail_share_ratio, found.ports[1].rail_idle) == (19, None, None)


def test_statistics_finer_than_the_resolution_are_null(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), port("mlx5_1:1"))
    # a counter that is refreshed every fourth tick
    ring.write("mlx5_0:1", (lambda tick: 0.0 if tick % 4 else 80e9, constant(0.0)), 1, 1100)
    ring.write("mlx5_1:1", (constant(20e9), constant(0.0)), 1, 1100)
    found = summarize(ring.reader, ring.fabric.ports, PortHistory(), AggregatorOptions(), 5, None, 10_300_000_000)
    assert found.ports[0].transmit.mean_bytes_per_second == pytest.approx(20e9)
    assert found.ports[0].transmit.peak_bytes_per_second is None
    assert found.ports[1].transmit.peak_bytes_per_second == pytest.approx(20e9)
    assert found.node.bandwidth_peak_bytes_per_second is None
    assert found.node.burstiness_cv["10ms"] is None
    assert found.node.burstiness_cv["50ms"] is not None


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
