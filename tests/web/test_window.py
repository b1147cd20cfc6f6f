"""Windows of a ring with known traffic, against the same traffic computed by hand."""

from __future__ import annotations

import csv
import io
import json
import statistics
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.web.parts import WebLimits
from ibpulse.agent.web.stream import Feed
from ibpulse.agent.web.window import WindowQuery, is_wide, plan_window
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import Fabric, PortState
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import GUARD_TICKS
from ibpulse.core.window_values import Bins, WindowPlan, bins_between, newest_bins
from tests.web.conftest import make_client
from tests.web.rings import CAPACITY, EPOCH, INTERVAL_NS, RATE, Node, fabric, full_node, make_node, port, state_of

WINDOW = "/api/v1/window"
FOLDS = {"max": max, "min": min, "mean": statistics.fmean}


spans_ns = st.integers(1, 10**15)
bases = st.integers(1, 10**6)
most = st.none() | st.integers(2, 10**7)


@given(spans_ns, bases, most)
def test_the_newest_bins_are_complete_and_cover_the_span(span_ns: int, base: int, max_points: int | None) -> None:
    now_ns = EPOCH * INTERVAL_NS
    bins = newest_bins(span_ns, now_ns, INTERVAL_NS, base, max_points)
    width_ns = bins.width * INTERVAL_NS
    assert 0 <= bins.points * width_ns - span_ns < width_ns
    assert bins.end <= now_ns // INTERVAL_NS - GUARD_TICKS - 4 + 1 < bins.end + bins.width
    assert_aligned(bins, base, max_points)


@given(spans_ns, st.integers(0, 10**15), bases, most)
def test_the_bins_between_two_times_are_all_that_touch_them_and_are_complete(
    span_ns: int, age_ns: int, base: int, max_points: int | None
) -> None:
    now_ns = EPOCH * INTERVAL_NS
    to_ns = now_ns - age_ns
    bins = bins_between(to_ns - span_ns, to_ns, now_ns, INTERVAL_NS, base, max_points)
    assert bins.first * INTERVAL_NS <= to_ns - span_ns < (bins.first + bins.width) * INTERVAL_NS
    if bins.points:
        complete = now_ns // INTERVAL_NS - GUARD_TICKS - 4 + 1
        assert bins.end <= complete
        assert bins.end * INTERVAL_NS >= to_ns or bins.end + bins.width > complete
    assert_aligned(bins, base, max_points)


def assert_aligned(bins: Bins, base: int, max_points: int | None) -> None:
    assert (bins.first % bins.width, bins.width % base) == (0, 0)
    assert bins.points <= max_points if max_points else bins.width == base


def at_ms(tick: int) -> int:
    return tick * 10


async def get(client: httpx.AsyncClient, **query: object) -> dict:
    if "from_" in query:
        query["from"] = query.pop("from_")
    answer = await client.get(WINDOW, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_close(values: list, expected: list) -> None:
    assert [value is None for value in values] == [value is None for value in expected]
    good = [pair for pair in zip(values, expected, strict=True) if None not in pair]
    np.testing.assert_allclose([pair[0] for pair in good], [pair[1] for pair in good], rtol=1e-6)


async def test_samples_and_missing_ones_match_the_traffic(client: httpx.AsyncClient, node: Node) -> None:
    # the mean of one sample is its rate; the maximum is less after a hole, if the sample is short
    found = await get(client, from_=at_ms(EPOCH), to=at_ms(EPOCH + 1000), statistic="mean")
    assert (found["start_ms"], found["points"], found["resolution_ms"]) == (at_ms(EPOCH), 1000, 10)
    assert [(one["port"], one["direction"]) for one in found["series"]] == [
        ("mlx5_0:1", "transmit"),
        ("mlx5_0:1", "receive"),
        ("mlx5_1:1", "transmit"),
        ("mlx5_1:1", "receive"),
    ]
    for one in found["series"]:
        direction = ("transmit", "receive").index(one["direction"])
        assert_close(one["values"], node.expected(one["port"], direction, EPOCH, 1000, 1, max))
    # four series: the first tick and what touches the missed ones; two series each: what touches an unread one
    assert found["holes"] == 4 * (1 + 3 + 2) + 2 * 2 + 2 * 2


@pytest.mark.parametrize("statistic", ["max", "mean", "min"])
@pytest.mark.parametrize("width", [7, 100])
async def test_bins_hold_their_good_samples(client: httpx.AsyncClient, node: Node, statistic: str, width: int) -> None:
    found = await get(
        client, from_=at_ms(EPOCH + 5), to=at_ms(EPOCH + 700), resolution=f"{width * 10}ms", statistic=statistic
    )
    first = (EPOCH + 5) // width * width
    points = -(-(EPOCH + 700) // width) - first // width
    assert (found["start_ms"], found["points"]) == (at_ms(first), points)
    for one in found["series"]:
        direction = ("transmit", "receive").index(one["direction"])
        assert_close(one["values"], node.expected(one["port"], direction, first, points, width, FOLDS[statistic]))


async def test_the_newest_span_ends_with_the_newest_complete_tick(client: httpx.AsyncClient, node: Node) -> None:
    found = await get(client, last="50ms", port="mlx5_1:1", direction="receive")
    assert (found["start_ms"], found["end_ms"]) == (at_ms(EPOCH + 995), at_ms(EPOCH + 1000))
    assert_close(found["series"][0]["values"], [2e9] * 5)
    assert found["coverage"] == "No values are missing."


async def test_a_span_ends_now_and_samples_older_than_the_ring_are_missing(client: httpx.AsyncClient) -> None:
    assert (await get(client, from_=at_ms(EPOCH + 990), to=at_ms(EPOCH + 5000)))["end_ms"] == at_ms(EPOCH + 1000)
    found = await get(client, from_=at_ms(EPOCH - 100), to=at_ms(EPOCH), port="mlx5_0:1", direction="transmit")
    assert found["series"][0]["values"] == [None] * 100
    assert found["coverage"] == (f"100 of 100 values are missing. The history begins at {at_ms(EPOCH)} ms.")


async def test_the_name_of_a_device_asks_for_all_its_ports(tmp_path: Path) -> None:
    node = make_node(tmp_path, ["mlx5_0:1", "mlx5_0:2", "mlx5_1:1"])
    async with make_client(node.parts()) as client:
        found = await get(client, last="1s", port=["mlx5_0", "mlx5_0:2"], direction="transmit")
    assert [one["port"] for one in found["series"]] == ["mlx5_0:1", "mlx5_0:2"]


async def test_a_node_without_ports_answers_with_no_series_and_one_without_samples_with_missing_ones(
    tmp_path: Path,
) -> None:
    for name in ("none", "empty"):
        (tmp_path / name).mkdir()
    async with make_client(make_node(tmp_path / "none", []).parts()) as client:
        found = await get(client)
        table = await client.get(WINDOW, params={"format": "csv"})
    assert (found["series"], found["coverage"]) == ([], "No ports are sampled.")
    assert table.text == "time_ms\n"
    node = make_node(tmp_path / "empty")
    node.ring.words[at.H_SEGMENTS] = 0
    async with make_client(node.parts()) as client:
        found = await get(client, last="100ms")
    assert (found["points"], found["holes"]) == (10, 40)


async def test_utilisation_without_a_known_rate_is_missing(node: Node) -> None:
    down = port("mlx5_0:1", rate=None)
    async with make_client(node.parts(fabric=lambda: Fabric((down,)))) as client:
        found = await get(client, last="100ms", unit="ratio")
        assert found["holes"] == 20
        assert (await get(client, last="100ms"))["holes"] == 0


@pytest.mark.parametrize(("width", "statistic"), [(1, "max"), (7, "mean")])
async def test_where_a_clock_was_set_back_the_newest_counts(tmp_path: Path, width: int, statistic: str) -> None:
    node = make_node(tmp_path)
    node.run(EPOCH, 200)
    node.ring.begin_segment(EPOCH + 200, 73)
    node.run(EPOCH + 200, 40)
    node.now_tick = EPOCH + 166
    async with make_client(node.parts()) as client:
        found = await get(
            client, from_=at_ms(EPOCH), to=at_ms(EPOCH + 160), resolution=f"{width}0ms", statistic=statistic
        )
    first = EPOCH // width * width
    for one in found["series"]:
        direction = ("transmit", "receive").index(one["direction"])
        expected = node.expected(one["port"], direction, first, found["points"], width, FOLDS[statistic])
        assert_close(one["values"], expected)


async def test_a_sample_of_a_slow_port_covers_its_ticks(tmp_path: Path) -> None:
    node = make_node(tmp_path, ["mlx5_0:1"])
    node.run(EPOCH, 100, missed=[EPOCH + tick for tick in range(100) if tick % 5])
    node.ring.words[at.slot_at(0) + at.S_STRIDE] = 5
    node.now_tick = EPOCH + 99
    async with make_client(node.parts()) as client:
        found = await get(client, from_=at_ms(EPOCH), direction="receive")
        assert found["end_ms"] == at_ms(EPOCH + 80)
        node.now_tick = EPOCH + 119
        found = await get(client, from_=at_ms(EPOCH), to=at_ms(EPOCH + 100), direction="receive")
        inner = await get(client, from_=at_ms(EPOCH + 33), to=at_ms(EPOCH + 37), direction="receive")
        ports = (await client.get("/api/v1/ports")).json()
    assert_close(found["series"][0]["values"], [None] + [1e9] * 95 + [None] * 4)
    assert_close(inner["series"][0]["values"], [1e9] * 4)
    assert ports["ports"][0]["source"]["resolution_seconds"] == 0.05


async def table_of(client: httpx.AsyncClient, **query: object) -> tuple[dict, httpx.Response]:
    span = {"from": at_ms(EPOCH + 300), "to": at_ms(EPOCH + 310)}
    document = await client.get(WINDOW, params=span)
    return document.json(), await client.get(WINDOW, params={**span, **query})


async def test_csv_has_the_values_of_json(client: httpx.AsyncClient) -> None:
    document, answer = await table_of(client, format="csv")
    head, *rows = csv.reader(io.StringIO(answer.text))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert head == ["time_ms", *(f"{one['port']} {one['direction']} bytes_per_second" for one in document["series"])]
    assert [int(row[0]) for row in rows] == [at_ms(EPOCH + tick) for tick in range(300, 310)]
    for column, one in enumerate(document["series"], start=1):
        assert [float(row[column]) if row[column] else None for row in rows] == one["values"]


async def test_npy_has_the_values_of_json(client: httpx.AsyncClient) -> None:
    document, answer = await table_of(client, format="npy")
    values = np.load(io.BytesIO(answer.content))
    about = json.loads(answer.headers["x-ibpulse-window"])
    assert (values.dtype.str, values.shape) == ("<f4", (4, 10))
    assert about.pop("series") == [f"{one['port']} {one['direction']}" for one in document["series"]]
    assert about == {key: value for key, value in document.items() if key != "series"}
    for row, one in zip(values, document["series"], strict=True):
        expected = [np.nan if value is None else value for value in one["values"]]
        np.testing.assert_array_equal(row, np.array(expected, dtype=np.float32))


async def test_names_are_not_formulas_in_csv(tmp_path: Path) -> None:
    node = make_node(tmp_path, ("=cmd|' /C calc'!A0:1", "mlx5_0:1"))
    node.run(EPOCH, 100)
    node.now_tick = EPOCH + 99
    async with make_client(node.parts()) as client:
        form = {"last": "500ms", "format": "csv"}
        head, *rows = csv.reader(io.StringIO((await client.get("/api/v1/window", params=form)).text))
    assert head[1].startswith("'=cmd|' /C calc'!A0:1 transmit")
    assert head[3].startswith("mlx5_0:1 transmit")
    # numbers stay numbers
    assert rows
    assert all(float(cell) >= 0 for row in rows for cell in row if cell)
    node.ring.close()


def test_values_read_count_like_values_returned(node: Node) -> None:
    def plan_of(**query: str) -> WindowPlan:
        return plan_window(WindowQuery.model_validate(query), node.parts())

    parts = node.parts(limits=WebLimits(wide_values=2 * 2 * CAPACITY - 1))
    assert is_wide(plan_of(last="1d", max_points="10"), parts)
    assert not is_wide(plan_of(last="1d", max_points="10"), node.parts())
    assert not is_wide(plan_of(last="60s"), node.parts())


async def test_utilisation_uses_the_line_rate_in_force_at_each_sample(node: Node) -> None:
    up = PortState("ACTIVE", "LinkUp", True, RATE, True)
    slower, log = replace(up, rate_bytes_per_second=RATE / 4), EventLog()
    log.history.begin("mlx5_0:1", up)
    change = (EPOCH + 250) * INTERVAL_NS, "rate-change", "mlx5_0:1", ""
    log.add(Event(*change, before=up, after=slower, tick=EPOCH + 250))
    ports = fabric(node.slots).ports
    known = (KnownPort(ports[0], slower), *(KnownPort(port, state_of(port)) for port in ports[1:]))
    async with make_client(node.parts(events=log, known_ports=lambda: known)) as client:

        async def first(**query: object) -> np.ndarray:
            found = await get(client, from_=at_ms(EPOCH + 100), to=at_ms(EPOCH + 500), **query)
            return np.array(found["series"][0]["values"], dtype=np.float64)

        rates, ratios = await first(), await first(unit="ratio")
        single, bins = [await first(unit="ratio", direction="receive", resolution=each) for each in ("10ms", "1s")]
    # the first value is that of tick 100
    line = np.where(np.arange(100, 500) < 250, RATE, RATE / 4)
    assert ratios == pytest.approx(rates / line, rel=1e-6, nan_ok=True)
    # a bin with two line rates has the highest utilisation, not that of the highest rate
    assert bins == pytest.approx(np.nanmax(single.reshape(4, 100), axis=1))
    assert bins[1] == pytest.approx(4 * bins[0], rel=0.2)


def late_node(tmp_path: Path) -> tuple[Node, EventLog]:
    """The first port has a line rate of 30 GB/s, and its counter of sent bytes was 4 ms late at tick 105."""
    node, log = full_node(tmp_path), EventLog()
    log.history.begin("mlx5_0:1", PortState("ACTIVE", "LinkUp", True, 30e9, True))
    where = at.records_at(0, node.ring.capacity) + (EPOCH + 105) % node.ring.capacity * at.RECORD_WORDS
    node.ring.words[where + at.R_TRANSMIT] -= 25 * 4_000_000 // 4
    return node, log


async def test_a_late_counter_is_merged_and_marked(tmp_path: Path) -> None:
    node, log = late_node(tmp_path)
    async with make_client(node.parts(events=log)) as client:
        span = {"from_": at_ms(EPOCH + 100), "to": at_ms(EPOCH + 120)}
        highest, mean = [await get(client, statistic=name, **span) for name in ("max", "mean")]
        wide = await get(client, from_=at_ms(EPOCH + 100), to=at_ms(EPOCH + 120), resolution="40ms")
        other = await get(client, from_=at_ms(EPOCH + 100), to=at_ms(EPOCH + 120), direction="receive")
    assert_close(highest["series"][0]["values"], [25e9] * 20)
    assert highest["series"] == mean["series"]
    assert highest["implausible"] == {"merged": 1, "unexplained": 0, "places": [[0, 5, 2]]}
    assert wide["implausible"]["places"] == [[0, 1, 1]]
    assert other["implausible"] == {"merged": 0, "unexplained": 0, "places": []}


async def test_the_stream_marks_merged_samples(tmp_path: Path) -> None:
    node, log = late_node(tmp_path)
    feed = Feed(node.parts(events=log))

    def told(first: int, end: int) -> list[list[int]] | None:
        (message,) = feed.batches(EPOCH + first, EPOCH + end)
        places: list[list[int]] | None = json.loads(message.partition(b"data: ")[2]).get("merged")
        return places

    assert told(100, 120) == [[0, 5, 2]]
    assert (told(100, 106), told(106, 120)) == ([[0, 5, 1]], [[0, 0, 1]])
    assert told(110, 120) is None


async def test_unexplained_samples_are_shown_and_counted(tmp_path: Path) -> None:
    node, log = full_node(tmp_path), EventLog()
    log.history.begin("mlx5_0:1", PortState("ACTIVE", "LinkUp", True, 10e9, True))
    async with make_client(node.parts(events=log)) as client:
        found = await get(client, from_=at_ms(EPOCH + 104), to=at_ms(EPOCH + 120))
        other = await get(client, from_=at_ms(EPOCH + 104), to=at_ms(EPOCH + 120), direction="receive")
    assert_close(found["series"][0]["values"], [25e9] * 16)
    assert found["implausible"] == {"merged": 0, "unexplained": 16, "places": []}
    assert other["implausible"]["unexplained"] == 0


def query(asked: dict, kind: str) -> dict:
    return {**{name.rstrip("_"): value for name, value in asked.items()}, "format": kind}


async def test_the_uncertainty_of_a_rate_follows_from_the_times_of_its_reads(tmp_path: Path) -> None:
    node = full_node(tmp_path)
    where = at.records_at(0, node.ring.capacity) + (EPOCH + 105) % node.ring.capacity * at.RECORD_WORDS
    # the transmit read takes 0.6 ms, the same midpoint
    for word, change in ((at.R_BEFORE, -299_600), (at.R_BETWEEN, 299_600), (at.R_AFTER, 300_000)):
        node.ring.words[where + word] += change
    asked = {"from_": at_ms(EPOCH + 103), "to": at_ms(EPOCH + 108), "port": "mlx5_0:1", "uncertainty": "true"}
    async with make_client(node.parts()) as client:
        found, plain = await get(client, **asked), await get(client, **{**asked, "uncertainty": "false"})
        mean, wide = await get(client, **asked, statistic="mean"), await get(client, **asked, resolution="100ms")
        text, npy = [await client.get("/api/v1/window", params=query(asked, kind)) for kind in ("csv", "npy")]
        frame = await get(client, **asked, format="grafana")
    doubts = found["series"][0]["uncertainty"]
    assert doubts == pytest.approx([0.001, 0.001, 0.031, 0.031, 0.001], abs=0.0021)
    assert all(doubt * 1000 == pytest.approx(round(doubt * 1000)) for doubt in doubts)
    rates = mean["series"][0]["values"]
    assert_close(rates, [25e9] * 5)
    # the highest is what is certain, where that is less than 99 %
    assert_close(
        found["series"][0]["values"], [r / (1 + d) if d > 0.0101 else r for r, d in zip(rates, doubts, strict=True)]
    )
    assert "uncertainty" not in plain["series"][0]
    assert wide["series"][0]["uncertainty"][0] == pytest.approx(max(doubts))
    lines = text.text.splitlines()
    names = ["mlx5_0:1 transmit", "mlx5_0:1 receive"]
    assert lines[0].split(",")[3:] == [f"{name} uncertainty" for name in names]
    assert float(lines[3].split(",")[3]) == pytest.approx(doubts[2])
    about = json.loads(npy.headers["X-Ibpulse-Window"])
    assert about["series"] == [*names, *(f"{name} uncertainty" for name in names)]
    table = np.load(io.BytesIO(npy.content))
    assert table.shape == (4, 5)
    assert table[2].tolist() == pytest.approx(doubts)
    assert [field["name"] for field in frame["schema"]["fields"]][3:] == [f"{name} uncertainty" for name in names]
