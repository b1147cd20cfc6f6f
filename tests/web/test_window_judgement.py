"""Windows, and batches of the stream, with samples above the line rate, and with uncertain ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.web.stream import Feed
from ibpulse.core.events import EventLog
from ibpulse.core.model import PortState
from ibpulse.core.ring import layout as at
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, Node, full_node
from tests.web.test_window import assert_close, at_ms, get


def late_node(tmp_path: Path) -> tuple[Node, EventLog]:
    """The first port has a line rate of 30 GB/s, and its counter of sent bytes was 4 ms late at tick 105."""
    node, log = full_node(tmp_path), EventLog()
    log.history.begin("mlx5_0:1", PortState("ACTIVE", "LinkUp", True, 30e9, True))
    where = at.records_at(0, node.ring.capacity) + (EPOCH + 105) % node.ring.capacity * at.RECORD_WORDS
    node.ring.words[where + at.R_TRANSMIT] -= 25 * 4_000_000 // 4
    return node, log


async def test_a_late_counter_is_merged_in_every_statistic_and_its_place_is_told(tmp_path: Path) -> None:
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


async def test_the_stream_tells_the_places_of_merged_samples_too(tmp_path: Path) -> None:
    node, log = late_node(tmp_path)
    feed = Feed(node.parts(events=log))

    def told(first: int, end: int) -> list[list[int]] | None:
        (message,) = feed.batches(EPOCH + first, EPOCH + end)
        places: list[list[int]] | None = json.loads(message.partition(b"data: ")[2]).get("merged")
        return places

    assert told(100, 120) == [[0, 5, 2]]
    assert (told(100, 106), told(106, 120)) == ([[0, 5, 1]], [[0, 0, 1]])
    assert told(110, 120) is None


async def test_what_no_line_can_carry_is_shown_as_it_is_and_counted(tmp_path: Path) -> None:
    node, log = full_node(tmp_path), EventLog()
    log.history.begin("mlx5_0:1", PortState("ACTIVE", "LinkUp", True, 10e9, True))
    async with make_client(node.parts(events=log)) as client:
        found = await get(client, from_=at_ms(EPOCH + 104), to=at_ms(EPOCH + 120))
        other = await get(client, from_=at_ms(EPOCH + 104), to=at_ms(EPOCH + 120), direction="receive")
    assert_close(found["series"][0]["values"], [25e9] * 16)
    assert found["implausible"] == {"merged": 0, "unexplained": 16, "places": []}
    assert other["implausible"]["unexplained"] == 0


async def test_each_sample_above_the_line_rate_is_counted_also_if_they_are_merged_together(tmp_path: Path) -> None:
    """The counter lacks 150 MB at tick 105 and 75 MB at the next: then 32.5 GB/s twice, on a line of 30."""
    node, log = full_node(tmp_path), EventLog()
    log.history.begin("mlx5_0:1", PortState("ACTIVE", "LinkUp", True, 30e9, True))
    for tick, lacks in ((105, 150_000_000), (106, 75_000_000)):
        where = at.records_at(0, node.ring.capacity) + (EPOCH + tick) % node.ring.capacity * at.RECORD_WORDS
        node.ring.words[where + at.R_TRANSMIT] -= lacks // 4
    async with make_client(node.parts(events=log)) as client:
        found = await get(client, from_=at_ms(EPOCH + 100), to=at_ms(EPOCH + 120))
    assert_close(found["series"][0]["values"], [25e9] * 20)
    assert found["implausible"] == {"merged": 2, "unexplained": 0, "places": [[0, 5, 3]]}


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
