"""The boards as documents: names, places, links, colours and metrics.

Whether every query returns data is tested in tests/campaigns/prometheus/test_queries.py.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import promql_parser as promql
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ibpulse.agent.metrics.page import TABLE
from ibpulse.core.metrics.text import process_registry
from tests.grafana.documents import BOARDS, FOLDER, asked_for, panels, parse, selectors, targets, variables, walk
from tests.tables import for_each
from tools.grafana import recording_rules
from tools.grafana.queries import PLUGIN, RATE, Scope
from tools.grafana.series_names import PROMETHEUS, labels_of

# at a width of 1440 pixels: 24 columns in 1408 pixels, of which a panel's frame and buttons take 69
COLUMN, FRAME, CHARACTER = 1408 / 24, 69, 7.6
# VictoriaMetrics refuses a query with one of these as a whole, so that the classic half would not answer either
ONLY_PROMETHEUS = {"histogram_sum", "histogram_count", "histogram_avg", "histogram_fraction", "histogram_stddev"}
HISTOGRAM_PARTS = re.compile(r"_(bucket|sum|count)$")


def every_panel() -> list[tuple[str, dict[str, Any]]]:
    return [(name, panel) for name, board in BOARDS.items() for panel in panels(board)]


# files


@for_each([*BOARDS])
def test_a_board_survives_the_round_trip_through_the_schema(name: str) -> None:
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(BOARDS[name])), cls=JSONEncoder))
    for link in again["links"]:
        del link["placement"]  # the SDK adds it to every link
    assert again == BOARDS[name]


# common to all panels


@for_each({f"{name}: {panel['title']}": panel for name, panel in every_panel()})
def test_a_panel_explains_itself_and_its_empty_state(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert len(panel["description"]) > 40
    assert panel["description"].endswith(".")
    assert len(defaults["noValue"]) > 5
    assert defaults["unit"]
    assert panel["targets"]


def test_titles_of_panels_are_unique_in_a_board() -> None:
    for board in BOARDS.values():
        titles = [panel["title"] for panel in panels(board)]
        assert len(titles) == len(set(titles))


@for_each([*BOARDS])
def test_ids_are_unique_and_no_panel_lies_on_another(name: str) -> None:
    board = BOARDS[name]
    headings = [panel["id"] for panel in board["panels"] if panel["type"] == "row"]
    ids = [*headings, *(panel["id"] for panel in panels(board))]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids
    # the panels of a collapsed row have positions of their own below its heading
    rows = [row["panels"] for row in board["panels"] if row["type"] == "row" and row["collapsed"]]
    for group in (board["panels"], *rows):
        _assert_apart([panel["gridPos"] for panel in group])


def _assert_apart(places: list[dict[str, int]]) -> None:
    cells: set[tuple[int, int]] = set()
    for place in places:
        assert place["x"] + place["w"] <= 24
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & own
        cells |= own


# links and variables


@for_each([*BOARDS])
def test_links_between_boards_keep_time_and_variables(name: str) -> None:
    links = [link for link in BOARDS[name]["links"] if link.get("url", "").startswith("/d/ibpulse-")]
    assert {link["url"] for link in links} == {f"/d/{board['uid']}" for key, board in BOARDS.items() if key != name}
    assert all(link["keepTime"] and link["includeVars"] for link in links)


def test_links_set_existing_variables_and_keep_cluster_and_gateway() -> None:
    uids = {board["uid"]: board for board in BOARDS.values()}
    found = re.findall(r"/d/(ibpulse-\w+)\?([^\"]+)", json.dumps(BOARDS))
    assert len(found) > 5
    for uid, query in found:
        names = {variable["name"] for variable in uids[uid]["templating"]["list"]}
        given = set(re.findall(r"var-(\w+)=", query))
        assert given <= names
        assert query.startswith("${__url_time_range}&")
        assert {"datasource", "cluster", "job", "gateway", "scheme"} <= given
        assert ("job_id" if uid == "ibpulse-job" else "instance") in given


@for_each([*BOARDS])
def test_every_variable_of_a_query_is_one_of_the_board(name: str) -> None:
    known = {variable["name"] for variable in BOARDS[name]["templating"]["list"]}
    used = set()
    for panel in panels(BOARDS[name]):
        used |= set(re.findall(r"\$\{?([a-z]\w*)", json.dumps([panel["targets"], panel["title"], panel["datasource"]])))
    assert used <= known
    # the last two are for links, here or on the boards that they lead to
    assert known - used <= {"datasource", "job", "scheme", "gateway"}, "a variable without an effect"


def test_colours_are_those_that_colour_blind_people_tell_apart() -> None:
    text = json.dumps(BOARDS)
    # blue, orange, bluish green, vermilion, sky blue, reddish purple, yellow, grey
    safe = {"0072B2", "E69F00", "009E73", "D55E00", "56B4E9", "CC79A7", "F0E442", "999999"}
    # darker ones of the same hues, for text and for cells
    safe |= {"1F83C4", "A87300", "CE5A00", "B34700", "7C7C7C"}
    assert set(re.findall(r'#([0-9A-Fa-f]{6})"', text)) <= safe
    assert not re.search(r'"(semi-dark-|dark-|light-)?(red|green)"', text)
    heatmaps = [panel["options"]["color"] for _, panel in every_panel() if panel["type"] == "heatmap"]
    assert {color["scheme"] for color in heatmaps if color["mode"] == "scheme"} == {"RdYlBu"}


# what eyes would notice


def test_a_title_fits_into_its_panel_on_a_small_screen() -> None:
    cut = [
        f"{name}: {panel['title']}"
        for name, board in BOARDS.items()
        for panel in panels(board)
        if len(panel["title"]) * CHARACTER > panel["gridPos"]["w"] * COLUMN - FRAME
    ]
    assert not cut, "\n".join(cut)


@for_each({f"{name}: {panel['title']}": panel for name, panel in every_panel() if panel["type"] == "table"})
def test_the_columns_of_a_table_fit(panel: dict[str, Any]) -> None:
    room = panel["gridPos"]["w"] * COLUMN - 24
    widths = {
        rule["matcher"]["options"]: prop["value"]
        for rule in panel["fieldConfig"]["overrides"]
        for prop in rule["properties"]
        if prop["id"] == "custom.width"
    }
    renamed = [step["options"]["renameByName"] for step in panel.get("transformations", ()) if step["id"] == "organize"]
    headings = set(renamed[0].values()) if renamed else {column["text"] for column in panel["targets"][0]["columns"]}
    # a column without a width takes at least 150 pixels
    assert sum(widths.get(heading, 150) for heading in headings) <= room


@for_each([*BOARDS])
def test_a_board_marks_alerts_captures_and_events(name: str) -> None:
    marks = {each["name"]: each for each in BOARDS[name]["annotations"]["list"]}
    assert list(marks) == ["Alerts", "Captures", "Events"]
    assert marks["Captures"]["useValueForTime"]
    assert marks["Captures"]["expr"].startswith("1000 * ")


# queries


def test_queries_read_rates_of_the_chosen_clusters_with_common_functions() -> None:
    for target in targets():
        for node, parents in walk(parse(target.expr)):
            if isinstance(node, promql.Call):
                assert node.func.name not in ONLY_PROMETHEUS, target
            if isinstance(node, promql.VectorSelector):
                assert ("cluster", "$cluster") in [(each.name, each.value) for each in node.matchers.matchers], target
                if (node.name or "").endswith("_total"):
                    call = parents[-2] if isinstance(parents[-1], promql.MatrixSelector) else None
                    assert isinstance(call, promql.Call), (target, node.name)
                    assert call.func.name in ("rate", "irate", "increase"), (target, node.name)


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
                assert variable["current"]["value"] == values[0]
                assert all(re.fullmatch(r"[1-9]\d*[smhd]", value) for value in values)


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_has_cluster_and_scrape_job_and_opens_with_all_values(name: str) -> None:
    labels = {each["name"]: each["label"] for each in BOARDS[name]["templating"]["list"]}
    assert labels["cluster"] == "Cluster"
    assert labels["job"] == "Scrape job"
    text = json.dumps(BOARDS[name])
    assert '"Job"' not in text.replace('"title": "Job"', "")
    (cluster,) = [each for each in BOARDS[name]["templating"]["list"] if each["name"] == "cluster"]
    # a single choice without options is empty, which matches series without the label
    assert cluster["allValue"] == ".*" if cluster.get("multi") else not cluster.get("includeAll")
    # without a current value, Grafana takes the first option: one node of the fleet
    for variable in variables(BOARDS[name], "query"):
        current = variable.get("current", {}).get("value")
        assert current == (["$__all"] if variable["includeAll"] else None), variable["name"]


def test_a_table_with_links_has_the_fields_that_they_need() -> None:
    for target in targets():
        for rule in target.panel["fieldConfig"]["overrides"]:
            for prop in rule["properties"]:
                if prop["id"] == "links" and target.panel["type"] == "table":
                    (steps,) = [step["options"] for step in target.panel["transformations"] if step["id"] == "organize"]
                    needed = set(re.findall(r"__data\.fields\.(\w+)", json.dumps(prop["value"])))
                    assert needed <= set(steps["indexByName"])


def test_raw_samples_come_from_gateway_or_node() -> None:
    asked = targets(PLUGIN)
    assert asked
    assert {each.board for each in asked} == {"bursts.json"}
    for target in asked:
        assert target.body["url"].startswith("${scheme}://${gateway}${instance}/api/v1/")
    live = [link.get("url") for link in BOARDS["node.json"]["links"]]
    assert "${scheme}://${gateway}${instance}/" in live


# metrics


def used_in_boards() -> set[str]:
    exprs = [target.expr for target in targets()]
    exprs += [
        re.sub(r"^\w+\((.*), \w+\)$", r"\1", variable["query"])
        for board in BOARDS.values()
        for variable in variables(board, "query")
    ]
    exprs += [annotation["expr"] for board in BOARDS.values() for annotation in board["annotations"].get("list", ())]
    return {selector.name for expr in exprs for selector in selectors(expr)}


def used_in_rules() -> set[str]:
    rules = [
        rule
        for path in (FOLDER / "rules").glob("*.yaml")
        for group in yaml.safe_load(path.read_text()).get("groups", ())
        for rule in group["rules"]
    ]
    return {name for rule in rules for selector in selectors(rule["expr"]) for name in asked_for(selector)}


def family(name: str) -> str:
    stem = HISTOGRAM_PARTS.sub("", name)
    return stem if stem in {metric.name for metric in TABLE} else name


def test_every_metric_exists_and_every_recording_is_used() -> None:
    recorded = {rule.record for group in recording_rules.GROUPS.values() for rule in group}
    exported = {metric.name for metric in TABLE}
    of_the_process = {sample.name for family in process_registry().collect() for sample in family.samples}
    assert {family(name) for name in used_in_boards()} <= exported | of_the_process | recorded | set(PROMETHEUS)
    # but the sum for people who ask how long links of the fleet were down
    assert recorded - used_in_boards() - used_in_rules() <= {"job:ibpulse_link_down_seconds:increase1d"}


# the program's own refusals


def test_what_is_not_exported_is_refused() -> None:
    with pytest.raises(KeyError, match="ibpulse_port_flow is not exported and not recorded"):
        Scope().pick("ibpulse_port_flow")
    with pytest.raises(KeyError, match="ibpulse_port_up has no label window; it has device, port"):
        Scope().pick("ibpulse_port_up", window="1m")


def test_a_scope_writes_its_variables_into_every_selector() -> None:
    scope = Scope(job="$job_b", instance="$instance_b", device="$device", shift="$shift")
    matchers = 'cluster=~"$cluster",job=~"$job_b",instance=~"$instance_b",device=~"$device"'
    assert scope.rate("ibpulse_port_bursts_total") == (
        f"rate(ibpulse_port_bursts_total{{{matchers}}}[{RATE}] offset $shift)"
    )
    assert scope.pick("ibpulse_node_rails") == (
        'ibpulse_node_rails{cluster=~"$cluster",job=~"$job_b",instance=~"$instance_b"} offset $shift'
    )
    picked = Scope().pick("job_signature:ibpulse_nodes:count")
    assert picked == 'job_signature:ibpulse_nodes:count{cluster=~"$cluster",job=~"$job"}'
    assert labels_of("job_signature:ibpulse_nodes:count") == ("signature",)
    expr = Scope().buckets("ibpulse_node_gap_duration_seconds")
    names = [selector.name for selector in selectors(expr)]
    assert names == ["ibpulse_node_gap_duration_seconds_bucket", "ibpulse_node_gap_duration_seconds"]
    assert " or on () " in expr
