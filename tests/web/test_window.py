"""Windows of a ring with known traffic, against the same traffic computed by hand."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.web.parts import WebLimits
from ibpulse.agent.web.window import WindowQuery, is_wide, plan_window
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader
from ibpulse.core.window_values import Bins, WindowPlan, bins_between, newest_bins, read_window
from tests.web.conftest import make_client
from tests.web.rings import CAPACITY, EPOCH, INTERVAL_NS, RATE, Node, fabric, make_node, port

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


def test_a_plan_needs_no_request(node: Node) -> None:
    reader, bins = RingReader(node.ring), Bins(EPOCH, 100, 1)
    plan = WindowPlan(
        ("mlx5_0:1",), (node.slots["mlx5_0:1"],), (None,), (1,), INTERVAL_NS, bins, "max", "bytes_per_second"
    )
    found = read_window(plan, reader, node.now_ns())
    assert found.names() == [("mlx5_0:1", "receive")]
    values = [None if np.isnan(value) else float(value) for value in found.values[0]]
    assert_close(values, node.expected("mlx5_0:1", 1, EPOCH, 100, 1, max))


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


async def test_every_sample_and_every_hole_is_where_the_traffic_says(client: httpx.AsyncClient, node: Node) -> None:
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
@pytest.mark.parametrize("width", [2, 3, 7, 100])
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


async def test_the_newest_span_holds_complete_bins_alone(client: httpx.AsyncClient, node: Node) -> None:
    node.now_tick = EPOCH + 950
    found = await get(client, last="1s", resolution="200ms")
    assert (found["start_ms"], found["end_ms"]) == (at_ms(EPOCH + 840), at_ms(EPOCH + 940))


async def test_five_seconds_are_the_default(client: httpx.AsyncClient) -> None:
    assert (await get(client))["points"] == 500


async def test_a_span_that_ends_in_the_future_ends_now(client: httpx.AsyncClient) -> None:
    found = await get(client, from_=at_ms(EPOCH + 990), to=at_ms(EPOCH + 5000))
    assert found["end_ms"] == at_ms(EPOCH + 1000)


async def test_a_bin_that_is_not_complete_is_not_shown(client: httpx.AsyncClient) -> None:
    found = await get(client, from_=at_ms(EPOCH + 950), resolution="1s")
    assert (found["points"], found["coverage"]) == (1, "No values are missing.") or found["points"] == 0
    later = await get(client, from_=at_ms(EPOCH + 950), resolution="3s")
    assert (later["points"], later["coverage"]) == (0, "No bin of this span is complete yet.")


async def test_what_is_older_than_the_ring_is_holes_with_a_statement(client: httpx.AsyncClient) -> None:
    found = await get(client, from_=at_ms(EPOCH - 100), to=at_ms(EPOCH), port="mlx5_0:1", direction="transmit")
    assert found["series"][0]["values"] == [None] * 100
    assert found["coverage"] == (f"100 of 100 values are missing. The history begins at {at_ms(EPOCH)} ms.")


async def test_a_span_of_years_fits_into_the_points_asked_for(client: httpx.AsyncClient) -> None:
    found = await get(client, from_="2000-01-01T00:00:00Z", max_points=50, statistic="mean")
    assert found["points"] <= 50
    assert found["holes"] == found["points"] * 4


@pytest.mark.parametrize("points", [2, 3, 7, 50, 333, 999, 1000, 5000])
async def test_no_more_points_come_than_asked_for(client: httpx.AsyncClient, points: int) -> None:
    for span in ({"last": "9970ms"}, {"from_": at_ms(EPOCH + 3), "to": at_ms(EPOCH + 1000)}):
        found = await get(client, max_points=points, **span)
        assert 0 < found["points"] <= points
        assert found["start_ms"] % found["resolution_ms"] == 0


@pytest.mark.parametrize("begin", range(100, 160, 7))
async def test_a_span_that_is_not_aligned_keeps_to_the_points_too(client: httpx.AsyncClient, begin: int) -> None:
    for points in (2, 3, 5):
        found = await get(client, from_=at_ms(EPOCH + begin), to=at_ms(EPOCH + begin + 100), max_points=points)
        assert found["points"] <= points
        assert found["start_ms"] <= at_ms(EPOCH + begin)
        assert found["end_ms"] >= at_ms(EPOCH + begin + 100)


async def test_points_widen_a_resolution_to_a_multiple_of_it(client: httpx.AsyncClient) -> None:
    assert (await get(client, last="9s", max_points=50, resolution="70ms"))["resolution_ms"] == 210


async def test_two_requests_that_begin_at_different_times_line_up(client: httpx.AsyncClient) -> None:
    early = await get(client, from_=at_ms(EPOCH + 101), to=at_ms(EPOCH + 501), max_points=60)
    late = await get(client, from_=at_ms(EPOCH + 130), to=at_ms(EPOCH + 530), max_points=60)
    assert early["resolution_ms"] == late["resolution_ms"] == 70
    shift = (late["start_ms"] - early["start_ms"]) // 70
    assert early["series"][0]["values"][shift:] == late["series"][0]["values"][: early["points"] - shift]


async def test_the_name_of_a_device_asks_for_all_its_ports(tmp_path: Path) -> None:
    node = make_node(tmp_path, ["mlx5_0:1", "mlx5_0:2", "mlx5_1:1"])
    async with make_client(node.parts()) as client:
        found = await get(client, last="1s", port=["mlx5_0", "mlx5_0:2"], direction="transmit")
    assert [one["port"] for one in found["series"]] == ["mlx5_0:1", "mlx5_0:2"]


async def test_a_port_that_was_forgotten_is_unknown(node: Node) -> None:
    async with make_client(node.parts(fabric=lambda: fabric(["mlx5_0:1"]))) as client:
        assert [one["port"] for one in (await get(client, direction="transmit"))["series"]] == ["mlx5_0:1"]
        assert (await client.get(WINDOW, params={"port": "mlx5_1:1"})).status_code == 404


async def test_a_node_without_ports_answers_with_no_series(tmp_path: Path) -> None:
    async with make_client(make_node(tmp_path, []).parts()) as client:
        found = await get(client)
        table = await client.get(WINDOW, params={"format": "csv"})
    assert (found["series"], found["coverage"]) == ([], "No ports are sampled.")
    assert table.text == "time_ms\n"


async def test_utilisation_is_a_share_of_the_data_rate(client: httpx.AsyncClient) -> None:
    found = await get(client, last="100ms", unit="ratio", direction="receive")
    assert_close(found["series"][1]["values"], [2e9 / RATE] * 10)


async def test_utilisation_without_a_known_rate_is_a_hole(node: Node) -> None:
    node_fabric = fabric([])
    down = port("mlx5_0:1", rate=None)
    async with make_client(node.parts(fabric=lambda: type(node_fabric)((down,)))) as client:
        found = await get(client, last="100ms", unit="ratio")
        assert found["holes"] == 20
        assert (await get(client, last="100ms"))["holes"] == 0


async def test_a_clock_set_forward_leaves_a_hole(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    node.run(EPOCH, 100)
    node.ring.begin_segment(EPOCH + 100, -50)
    node.run(EPOCH + 100, 100)
    node.now_tick = EPOCH + 249
    async with make_client(node.parts()) as client:
        found = await get(client, from_=at_ms(EPOCH), to=at_ms(EPOCH + 250))
    assert_close(found["series"][0]["values"], node.expected("mlx5_0:1", 0, EPOCH, 250, 1, max))
    assert found["series"][0]["values"][100:150] == [None] * 50
    assert found["series"][0]["values"][150] is not None


@pytest.mark.parametrize(("width", "statistic"), [(1, "max"), (7, "max"), (7, "mean"), (7, "min")])
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


async def test_a_ring_that_was_lapped_gives_its_newest_ticks(tmp_path: Path) -> None:
    node = make_node(tmp_path, capacity=256)
    node.run(EPOCH, 700)
    node.now_tick = EPOCH + 699
    async with make_client(node.parts()) as client:
        found = await get(client, from_=at_ms(EPOCH), to=at_ms(EPOCH + 700), port="mlx5_0:1", direction="receive")
    values = found["series"][0]["values"]
    assert values[-240:] == pytest.approx([1e9] * 240)
    assert values[:444] == [None] * 444
    assert found["history"]["oldest_ms"] > at_ms(EPOCH + 440)


async def test_a_counter_that_fell_is_a_hole(tmp_path: Path) -> None:
    node = make_node(tmp_path, ["mlx5_0:1"])
    node.run(EPOCH, 50)
    node.counters["mlx5_0:1", 1] = 5
    node.run(EPOCH + 50, 50)
    node.now_tick = EPOCH + 99
    async with make_client(node.parts()) as client:
        found = await get(client, from_=at_ms(EPOCH + 1), direction="receive")
    values = found["series"][0]["values"]
    assert [index for index, value in enumerate(values) if value is None] == [49]


async def test_a_port_sampled_every_fifth_tick_stands_at_all_ticks_it_covers(tmp_path: Path) -> None:
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


async def test_a_port_whose_stride_changed_stands_where_it_was_sampled_before_and_after(tmp_path: Path) -> None:
    """Every fifth tick from 40 to 60, every tick else; a change is a hole of a stride at most."""
    node = make_node(tmp_path, ["mlx5_0:1"])
    node.run(EPOCH, 100, missed=[EPOCH + tick for tick in range(40, 60) if tick % 5])
    first = at.records_at(0, node.ring.capacity) + at.R_TICK
    for tick in range(EPOCH, EPOCH + 100):
        index = first + tick % node.ring.capacity * at.RECORD_WORDS
        if node.ring.words[index] == tick:
            stride = 5 if EPOCH + 40 <= tick < EPOCH + 60 else 1
            node.ring.words[index] = tick | stride << at.STRIDE_SHIFT
    node.now_tick = EPOCH + 99
    async with make_client(node.parts()) as client:
        found = await get(client, from_=at_ms(EPOCH), direction="receive")
    values = found["series"][0]["values"]
    assert [index for index, value in enumerate(values) if value is None] == [0, 40, 56, 57, 58, 59, 60]
    assert_close([value for value in values if value is not None], [1e9] * 93)


async def test_an_empty_ring_is_all_holes(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    node.ring.words[at.H_SEGMENTS] = 0
    async with make_client(node.parts()) as client:
        found = await get(client, last="100ms")
    assert (found["points"], found["holes"]) == (10, 40)


async def table_of(client: httpx.AsyncClient, **query: object) -> tuple[dict, httpx.Response]:
    span = {"from": at_ms(EPOCH + 300), "to": at_ms(EPOCH + 310)}
    document = await client.get(WINDOW, params=span)
    return document.json(), await client.get(WINDOW, params={**span, **query})


async def test_csv_holds_what_json_holds(client: httpx.AsyncClient) -> None:
    document, answer = await table_of(client, format="csv")
    head, *rows = csv.reader(io.StringIO(answer.text))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert head == ["time_ms", *(f"{one['port']} {one['direction']} bytes_per_second" for one in document["series"])]
    assert [int(row[0]) for row in rows] == [at_ms(EPOCH + tick) for tick in range(300, 310)]
    for column, one in enumerate(document["series"], start=1):
        assert [float(row[column]) if row[column] else None for row in rows] == one["values"]


@pytest.mark.parametrize(
    ("query", "word", "column"),
    [
        ({}, "bytes_per_second", "mlx5_0:1 transmit bytes_per_second"),
        ({"unit": "bytes_per_second"}, "bytes_per_second", "mlx5_0:1 transmit bytes_per_second"),
        ({"unit": "ratio"}, "ratio", "mlx5_0:1 transmit ratio"),
    ],
)
async def test_every_format_names_the_unit(
    client: httpx.AsyncClient, query: dict[str, str], word: str, column: str
) -> None:
    span = {"from": at_ms(EPOCH + 300), "to": at_ms(EPOCH + 310), **query}
    answers = {
        form: await client.get(WINDOW, params={**span, "format": form}) for form in ("json", "npy", "grafana", "csv")
    }
    assert answers["json"].json()["unit"] == word
    assert json.loads(answers["npy"].headers["x-ibpulse-window"])["unit"] == word
    assert answers["grafana"].json()["schema"]["meta"]["custom"]["unit"] == word
    assert answers["csv"].text.splitlines()[0].split(",")[1] == column


async def test_npy_holds_what_json_holds(client: httpx.AsyncClient) -> None:
    document, answer = await table_of(client, format="npy")
    values = np.load(io.BytesIO(answer.content))
    about = json.loads(answer.headers["x-ibpulse-window"])
    assert (values.dtype.str, values.shape) == ("<f4", (4, 10))
    assert about.pop("series") == [f"{one['port']} {one['direction']}" for one in document["series"]]
    assert about == {key: value for key, value in document.items() if key != "series"}
    for row, one in zip(values, document["series"], strict=True):
        expected = [np.nan if value is None else value for value in one["values"]]
        np.testing.assert_array_equal(row, np.array(expected, dtype=np.float32))


async def test_grafana_gets_a_data_frame_of_heatmap_rows(client: httpx.AsyncClient) -> None:
    document, answer = await table_of(client, format="grafana")
    frame = answer.json()
    assert frame["schema"]["meta"]["type"] == "heatmap-rows"
    assert frame["schema"]["fields"][0] == {"name": "time", "type": "time"}
    assert frame["schema"]["fields"][1] == {"name": "mlx5_0:1 transmit", "type": "number", "config": {"unit": "Bps"}}
    times, *columns = frame["data"]["values"]
    assert times == [at_ms(EPOCH + tick) for tick in range(300, 310)]
    assert columns == [one["values"] for one in document["series"]]


async def test_grafana_shows_utilisation_in_percent(client: httpx.AsyncClient) -> None:
    _, answer = await table_of(client, format="grafana", unit="ratio")
    assert answer.json()["schema"]["fields"][1]["config"] == {"unit": "percentunit"}


async def test_a_name_of_a_port_is_no_formula_in_csv(tmp_path: Path) -> None:
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


def test_what_is_read_counts_as_much_as_what_is_returned(node: Node) -> None:
    def plan_of(**query: str) -> WindowPlan:
        return plan_window(WindowQuery.model_validate(query), node.parts())

    parts = node.parts(limits=WebLimits(wide_values=2 * 2 * CAPACITY - 1))
    assert is_wide(plan_of(last="1d", max_points="10"), parts)
    assert not is_wide(plan_of(last="1d", max_points="10"), node.parts())
    assert not is_wide(plan_of(last="60s"), node.parts())
