"""What a refresh of each board reads stays within the budget of docs/dashboards.md, at 500 and at 4,000 nodes."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from tests.grafana.board_cost import NODES_OF_JOB_BOARD, board_cost
from tests.grafana.documents import BOARDS, panels

PAGE = (ROOT / "docs" / "dashboards.md").read_text()
FEW, MANY = 500, 4000
FLEET_WIDE = ("fleet.json", "comparison.json")
# series for each node of the fleet and refresh; the other boards do not grow with the fleet
MAX_PER_NODE = {"fleet.json": 20, "comparison.json": 33}
MAX_SERIES = {"node.json": 500, "bursts.json": 100, "job.json": 80 * NODES_OF_JOB_BOARD}
MAX_DRAWN = 20


def title(name: str) -> str:
    return str(BOARDS[name]["title"]).removeprefix("ibpulse / ")


@pytest.mark.parametrize("name", FLEET_WIDE)
@pytest.mark.parametrize("nodes", [FEW, MANY])
def test_a_board_of_the_whole_fleet_reads_few_series_for_each_node(name: str, nodes: int) -> None:
    assert board_cost(BOARDS[name], nodes).series <= MAX_PER_NODE[name] * nodes


@pytest.mark.parametrize("name", MAX_SERIES)
def test_a_board_of_a_node_or_a_job_costs_about_the_same_in_every_fleet(name: str) -> None:
    few, many = (board_cost(BOARDS[name], nodes).series for nodes in (FEW, MANY))
    # the list of jobs in a variable grows with the fleet
    assert many <= 1.15 * few
    assert board_cost(BOARDS[name], MANY).series <= MAX_SERIES[name]


def test_every_board_has_a_budget() -> None:
    assert {*MAX_PER_NODE, *MAX_SERIES} == set(BOARDS)


def test_the_page_has_the_numbers_and_the_budgets() -> None:
    table = re.findall(r"^\| (\w[\w ]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.,]+ [kM]) \| ([\w ,]+) \|$", PAGE, re.MULTILINE)
    expected = []
    for name in BOARDS:
        few, many = board_cost(BOARDS[name], FEW), board_cost(BOARDS[name], MANY)
        budget = f"{MAX_PER_NODE[name]} per node" if name in MAX_PER_NODE else f"{MAX_SERIES[name]:,}"
        samples = f"{many.samples / 1e6:.1f} M" if many.samples >= 1e6 else f"{many.samples / 1e3:.1f} k"
        expected.append((title(name), f"{few.series:,.0f}", f"{many.series:,.0f}", samples, budget))
    assert sorted(table) == sorted(expected)


@pytest.mark.parametrize("name", FLEET_WIDE)
def test_what_a_fleet_wide_board_draws_does_not_grow_with_the_fleet(name: str) -> None:
    """A graph has one series in all, or one for each of a few names, or the 20 highest; never one for each node."""
    for panel in panels(BOARDS[name]):
        if panel["type"] in ("timeseries", "state-timeline", "heatmap"):
            for target in panel["targets"]:
                named = "{{instance}}" in target["legendFormat"]
                assert not named or f"topk({MAX_DRAWN}, " in target["expr"], panel["title"]


def test_no_graph_takes_the_highest_anew_at_every_moment() -> None:
    """Over a range, `topk` alone brings the highest of each moment, which are many more series in all."""
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                if "topk(" in target.get("expr", "") and not target.get("instant"):
                    assert "@ end()" in target["expr"], (name, panel["title"])
