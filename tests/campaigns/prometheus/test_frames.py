"""Grafana's own library reads a window of the API: 6,000 points of 16 series, missing data as null.

The boards' units, colours and transformations are tried on it too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.grafana.documents import BOARDS, panels
from tests.grafana.library import run_grafana
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, INTERVAL_NS, Node, make_node

PORTS = tuple(f"mlx5_{number}:1" for number in range(8))
POINTS = 6000
MISSED = (EPOCH + 1000, EPOCH + 1001, EPOCH + 4321)
# a missed tick removes the rate that ends at it and the one that begins there
HOLES = sorted({tick - EPOCH - 1 + after for tick in MISSED for after in (0, 1)})
FIRST_MS = (EPOCH + 1) * INTERVAL_NS // 1_000_000

pytestmark = pytest.mark.needs("node")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A minute of eight ports with three missed ticks."""
    node = make_node(tmp_path_factory.mktemp("frames"), PORTS, POINTS + 100)
    node.run(EPOCH, POINTS + 1, missed=MISSED)
    node.now_tick = EPOCH + POINTS
    return node


async def ask(ring: Node, **params: Any) -> Any:
    """The API's answer for the whole minute."""
    given = {"from": FIRST_MS, "to": FIRST_MS + POINTS * 10, "format": "grafana", **params}
    async with make_client(ring.parts()) as client:
        answer: httpx.Response = await client.get("/api/v1/window", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
async def found(library: Path, ring: Node) -> Any:
    """Grafana's findings about the rates of the minute: the mean of one sample is its rate."""
    return run_grafana(library, frames=[await ask(ring, statistic="mean")])["frames"][0]


async def test_grafana_reads_a_minute_of_sixteen_series_on_a_regular_grid(found: Any) -> None:
    assert (found["length"], found["kind"]) == (POINTS, "heatmap-rows")
    assert (found["first"], found["steps"]) == (FIRST_MS, [10])
    assert [row["name"] for row in found["rows"]] == [
        f"{port} {direction}" for port in PORTS for direction in ("transmit", "receive")
    ]
    assert {(row["type"], row["unit"], row["length"]) for row in found["rows"]} == {("number", "Bps", POINTS)}


async def test_grafana_reads_holes_as_null_and_all_else_as_it_was_measured(found: Any, ring: Node) -> None:
    for number, row in enumerate(found["rows"]):
        port, direction = PORTS[number // 2], number % 2
        measured = [rate for (name, way, _), rate in ring.rates.items() if (name, way) == (port, direction)]
        assert row["nulls"] == HOLES
        assert row["others"] == 0
        assert row["sum"] == pytest.approx(sum(measured))


def test_grafana_knows_every_unit_and_every_colour_mode_of_the_boards(library: Path) -> None:
    every = [panel["fieldConfig"] for board in BOARDS.values() for panel in panels(board)]
    units = {each["defaults"]["unit"] for each in every}
    units |= set(re.findall(r'"id": "unit", "value": "(\w+)"', json.dumps(every)))
    modes = set(re.findall(r'"mode": "((?:continuous|palette|fixed|shades|thresholds)[\w-]*)"', json.dumps(every)))
    assert len(units) > 5
    assert len(modes) > 2
    answer = run_grafana(library, frames=[], units=sorted(units), colors=sorted(modes))
    assert (answer["unknownUnits"], answer["unknownColors"]) == ([], [])


def panel_of(board: str, title: str) -> dict[str, Any]:
    return next(panel for panel in panels(BOARDS[board]) if panel["title"] == title)


def moment(name: str, value: float) -> dict[str, Any]:
    """The answer to an instant query as a frame."""
    number = {"name": "Value", "type": "number", "config": {"displayNameFromDS": name}}
    fields = [{"name": "Time", "type": "time"}, number]
    return {"schema": {"refId": name, "fields": fields}, "data": {"values": [[1000], [value]]}}


def test_a_comparison_is_the_ratio_of_both_sides_and_nothing_without_one(library: Path) -> None:
    steps = panel_of("comparison.json", "Duty cycle")["transformations"]
    both, one = (
        run_grafana(library, frames=frames, transformations=steps)["frames"][0]["rows"]
        for frames in ([moment("A", 0.5), moment("B", 0.6)], [moment("B", 0.6)])
    )
    assert {row["name"]: row["sum"] for row in both} == {"A": 0.5, "B": 0.6, "B ÷ A": pytest.approx(1.2)}
    assert [row["name"] for row in one] == ["B"]


def test_grafana_writes_and_colours_states_and_empty_cells_as_the_boards_mean_it(library: Path) -> None:
    links = panel_of("node.json", "Is each link up?")["fieldConfig"]["defaults"]
    rails = panel_of("node.json", "Which rail is idle or slow?")["fieldConfig"]["defaults"]
    cells = panel_of("fleet.json", "Which nodes have a fault?")["fieldConfig"]
    (empty,) = {each["value"] for rule in cells["overrides"] for each in rule["properties"] if each["id"] == "noValue"}
    shown = run_grafana(
        library,
        frames=[],
        shown=[
            {"config": links, "values": [0, 1]},
            {"config": rails, "values": [0, 1, 2]},
            {"config": {**cells["defaults"], "noValue": empty}, "values": [None]},
        ],
    )["shown"]
    assert [(each["text"], each["color"]) for each in shown[0]] == [("down", "#D55E00"), ("ACTIVE", "#0072B2")]
    assert [each["text"] for each in shown[1]] == ["like its siblings", "slow", "idle"]
    assert len({each["color"] for each in shown[1]}) == 3
    assert [each["text"] for each in shown[2]] == ["–"]
