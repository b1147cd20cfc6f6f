"""Queries of the boards that every engine understands, of the cluster that was chosen, and links that keep it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.grafana.documents import BOARDS, PROMETHEUS, parse, selectors, targets, variables, walk
from tools.grafana.queries import PLUGIN

# VictoriaMetrics refuses a query with one of these as a whole, so that the classic half would not answer either
ONLY_PROMETHEUS = {"histogram_sum", "histogram_count", "histogram_avg", "histogram_fraction", "histogram_stddev"}


def default(variable: dict[str, Any]) -> str:
    """The value that a variable of fixed choices has when the board opens."""
    return str(variable["current"]["value"])


def test_a_query_uses_no_function_that_other_engines_lack() -> None:
    for target in targets():
        called = {node.func.name for node, _ in walk(parse(target.expr)) if hasattr(node, "func")}
        assert not called & ONLY_PROMETHEUS, target


def test_a_query_reads_the_chosen_clusters() -> None:
    for target in targets():
        for selector in selectors(target.expr):
            own = [(each.name, each.value) for each in selector.matchers.matchers]
            assert ("cluster", "$cluster") in own, target


def test_no_series_of_a_table_keeps_its_name() -> None:
    """Grafana shows the name as a column, and joins no rows that differ in it."""
    for target in targets():
        if target.panel["type"] == "table":
            # a comparison, a join and arithmetic with a number keep what they get; aggregations and functions do not
            assert re.match(
                r"(topk\(\d+, )?(round\(|\d+ \* |\()*(max|min|sum|count|avg|group|time|timestamp)\b", target.expr
            ), target


def test_no_choice_of_a_variable_makes_an_offset_of_zero() -> None:
    """Prometheus 2 refuses `offset 0s`."""
    for board in BOARDS.values():
        for variable in variables(board, "custom"):
            if any(f"offset ${variable['name']}" in json.dumps(panel) for panel in board["panels"]):
                values = [str(option["value"]) for option in variable["options"]]
                assert default(variable) == values[0]
                assert all(re.fullmatch(r"[1-9]\d*[smhd]", value) for value in values)


def test_two_selections_differ_when_the_comparison_opens() -> None:
    (shift,) = [each for each in variables(BOARDS["comparison.json"], "custom") if each["name"] == "shift"]
    span = BOARDS["comparison.json"]["time"]["from"].removeprefix("now-")
    assert default(shift) == span, "B is the span before that of A"


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_has_a_cluster_and_calls_the_scrape_job_by_its_name(name: str) -> None:
    labels = {each["name"]: each["label"] for each in BOARDS[name]["templating"]["list"]}
    assert labels["cluster"] == "Cluster"
    assert labels["job"] == "Scrape job"
    text = json.dumps(BOARDS[name])
    assert '"Job"' not in text.replace('"title": "Job"', "")


@pytest.mark.parametrize("name", BOARDS)
def test_a_cluster_without_a_label_is_matched_too(name: str) -> None:
    (cluster,) = [each for each in BOARDS[name]["templating"]["list"] if each["name"] == "cluster"]
    # a single choice without options is empty, which matches series without the label
    assert cluster["allValue"] == ".*" if cluster.get("multi") else not cluster.get("includeAll")


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_opens_with_all_values_of_a_variable_that_allows_them(name: str) -> None:
    """Without a current value, Grafana takes the first option: one node of the fleet."""
    for variable in variables(BOARDS[name], "query"):
        current = variable.get("current", {}).get("value")
        assert current == (["$__all"] if variable["includeAll"] else None), variable["name"]


def test_every_link_to_a_node_or_a_job_keeps_cluster_and_gateway() -> None:
    found = re.findall(r"/d/(ibpulse-\w+)\?([^\"]+)", json.dumps(BOARDS))
    assert len(found) > 5
    for uid, query in found:
        names = re.findall(r"var-(\w+)=", query)
        assert {"datasource", "cluster", "job", "gateway", "scheme"} <= set(names)
        assert ("job_id" if uid == "ibpulse-job" else "instance") in names


def test_a_table_with_links_has_the_fields_that_they_need() -> None:
    for target in targets():
        for rule in target.panel["fieldConfig"]["overrides"]:
            for prop in rule["properties"]:
                if prop["id"] == "links" and target.panel["type"] == "table":
                    (steps,) = [step["options"] for step in target.panel["transformations"] if step["id"] == "organize"]
                    needed = set(re.findall(r"__data\.fields\.(\w+)", json.dumps(prop["value"])))
                    assert needed <= set(steps["indexByName"])


def test_raw_samples_are_asked_for_below_a_gateway_or_at_the_node() -> None:
    asked = targets(PLUGIN)
    assert asked
    assert {each.board for each in asked} == {"bursts.json"}
    for target in asked:
        assert target.body["url"].startswith("${scheme}://${gateway}${instance}/api/v1/")
    live = [link.get("url") for link in BOARDS["node.json"]["links"]]
    assert "${scheme}://${gateway}${instance}/" in live


def test_the_burst_explorer_has_panels_that_need_neither() -> None:
    own = {target.panel["title"] for target in targets(PROMETHEUS) if target.board == "bursts.json"}
    assert len(own) >= 4
