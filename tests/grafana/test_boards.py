"""The boards as documents: the linter's rules, names and places.

Whether every query returns data is tested in tests/campaigns/prometheus/test_queries.py.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ibpulse.agent.metrics.page import TABLE
from ibpulse.core.metrics.text import process_registry
from tests.grafana.documents import BOARDS, FOLDER, asked_for, panels, selectors, targets, variables
from tests.grafana.linter import BOARD_RULES, PANEL_RULES, lint, load_exceptions
from tests.tables import for_each
from tools.grafana import recording_rules
from tools.grafana.boards import BOARDS as PROGRAMS
from tools.grafana.boards import LINT_FILE
from tools.grafana.queries import RATE, Scope
from tools.grafana.series_names import PROMETHEUS, labels_of

RULES = [*BOARD_RULES, *PANEL_RULES]
EXCEPTIONS = load_exceptions(FOLDER / LINT_FILE)
HISTOGRAM_PARTS = re.compile(r"_(bucket|sum|count)$")

SQUARED = "For users' own queries: the boards show the variation of the active samples, as defined in docs/traffic.md."
ROLLING = "The boards compute it from the moment counters, over the span of each point."
STATES = "The boards show ibpulse_port_up; the page of the node and /api/v1/events tell what happened and when."
JOBS = "To be joined with other metrics; docs/job-joins.md has the queries."
EFA_COMMANDS = "About commands to an EFA device, not its traffic; docs/counters.md says what each means."
UNUSED = {
    "ibpulse_hw_tx_rdma_retx_bytes_total": "The boards count retransmissions in packets, as of other adapters.",
    "ibpulse_hw_device_no_completion_cmds_total": EFA_COMMANDS,
    "ibpulse_hw_device_cmds_err_total": EFA_COMMANDS,
    "ibpulse_hw_device_keep_alive_rcvd_total": EFA_COMMANDS,
    "ibpulse_hw_device_reg_mr_err_total": EFA_COMMANDS,
    "ibpulse_hw_device_create_qp_err_total": EFA_COMMANDS,
    "ibpulse_hw_device_create_cq_err_total": EFA_COMMANDS,
    "ibpulse_hw_device_create_ah_err_total": EFA_COMMANDS,
    "ibpulse_node_observed_ratio": "Qualifies the values of a window; the boards show rates of counters.",
    "ibpulse_port_problem": STATES,
    "ibpulse_port_implausible_samples_total": "Says how often a sample was corrected, which the page shows too.",
    "ibpulse_port_transmit_utilization_squared_seconds_total": SQUARED,
    "ibpulse_port_receive_utilization_squared_seconds_total": SQUARED,
    "ibpulse_port_transmit_burstiness_cv": ROLLING,
    "ibpulse_port_receive_burstiness_cv": ROLLING,
    "ibpulse_internal_errors_total": "The page and the log say what fails and why.",
    "ibpulse_port_jobs": JOBS,
    "ibpulse_simulated": "Absent on every real node.",
    "ibpulse_web_config_last_reload_successful": "Only with a web configuration file; the log has the details.",
    "ibpulse_http_stream_viewers": "Only of interest on a node that is being watched.",
    "ibpulse_http_stream_dropped_events_total": "The viewer's own page shows it.",
    "ibpulse_http_request_duration_seconds": "Prometheus measures the scrape itself; other requests are rare.",
}


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


# the linter


@for_each(itertools.product(BOARDS, RULES))
def test_the_linter_has_nothing_to_say(name: str, rule: str) -> None:
    board = BOARDS[name]
    findings = [each for each in lint(board, rule) if (rule, board["title"], each.panel) not in EXCEPTIONS]
    assert not findings


def test_every_exception_is_needed_and_says_why() -> None:
    found = {
        (rule, board["title"], each.panel) for board in BOARDS.values() for rule in RULES for each in lint(board, rule)
    }
    assert set(EXCEPTIONS) == found
    assert all(reason.endswith(".") for reason in EXCEPTIONS.values())


# common to all panels


@for_each({f"{name}: {panel['title']}": panel for name, panel in every_panel()})
def test_a_panel_says_what_it_shows_and_what_is_missing_when_it_is_empty(panel: dict[str, Any]) -> None:
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
    ids = [panel["id"] for panel in board["panels"]] + [inner["id"] for inner in panels(board)]
    assert len(set(ids)) == len({panel["id"] for panel in board["panels"]} | {inner["id"] for inner in panels(board)})
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


def test_panels_of_a_line_have_one_height() -> None:
    for name, panel in every_panel():
        same = [
            each for board, each in every_panel() if board == name and each["gridPos"]["y"] == panel["gridPos"]["y"]
        ]
        assert {each["gridPos"]["h"] for each in same} == {panel["gridPos"]["h"]}, (name, panel["title"])


def test_the_first_screen_holds_an_answer() -> None:
    for name, board in BOARDS.items():
        first = [panel["title"] for panel in panels(board) if panel["gridPos"]["y"] < 18 and panel["type"] != "row"]
        assert 3 <= len(first) <= 14, (name, first)


def test_a_row_of_repeated_panels_follows_the_device_variable() -> None:
    repeated = [panel for _, panel in every_panel() if panel.get("repeat")]
    assert [panel["repeat"] for panel in repeated] == ["device", "device"]
    assert all("$device" in panel["title"] and "$device" in panel["targets"][0]["expr"] for panel in repeated)


# links and variables


@for_each([*BOARDS])
def test_a_board_links_to_all_others_and_keeps_time_and_variables(name: str) -> None:
    links = [link for link in BOARDS[name]["links"] if link.get("url", "").startswith("/d/ibpulse-")]
    assert {link["url"] for link in links} == {f"/d/{board['uid']}" for key, board in BOARDS.items() if key != name}
    assert all(link["keepTime"] and link["includeVars"] for link in links)


def test_every_link_leads_to_a_board_and_sets_variables_that_it_has() -> None:
    uids = {board["uid"]: board for board in BOARDS.values()}
    found = re.findall(r"/d/(ibpulse-\w+)\?([^\"]+)", json.dumps(BOARDS))
    assert len(found) > 5
    for uid, query in found:
        names = {variable["name"] for variable in uids[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= names
        assert query.startswith("${__url_time_range}&")


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
    assert {color["scheme"] for color in heatmaps if color["mode"] == "scheme"} == {"Viridis"}


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


def test_every_metric_of_a_board_is_exported_recorded_or_given_by_prometheus() -> None:
    recorded = {rule.record for group in recording_rules.GROUPS.values() for rule in group}
    exported = {metric.name for metric in TABLE}
    of_the_process = {sample.name for family in process_registry().collect() for sample in family.samples}
    assert {family(name) for name in used_in_boards()} <= exported | of_the_process | recorded | set(PROMETHEUS)


def test_every_exported_metric_is_used_or_listed_with_the_reason() -> None:
    used = {family(name) for name in used_in_boards() | used_in_rules()}
    unused = {metric.name for metric in TABLE} - used
    assert unused == set(UNUSED)
    assert all(reason.endswith(".") for reason in UNUSED.values())


def test_every_recording_is_used_or_listed_on_a_page() -> None:
    recorded = {rule.record for group in recording_rules.GROUPS.values() for rule in group}
    pages = "".join((FOLDER.parent / "docs" / name).read_text() for name in ("job-joins.md", "scale.md"))
    unused = recorded - used_in_boards() - used_in_rules()
    assert {record for record in unused if f"`{record}`" not in pages} == set()


# the program's own refusals


def test_a_metric_that_nobody_exports_stops_the_program() -> None:
    with pytest.raises(KeyError, match="ibpulse_port_flow is not exported and not recorded"):
        Scope().pick("ibpulse_port_flow")


def test_a_label_that_the_metric_does_not_have_stops_the_program() -> None:
    with pytest.raises(KeyError, match="ibpulse_port_up has no label window; it has device, port"):
        Scope().pick("ibpulse_port_up", window="1m")


def test_a_scope_puts_its_variables_into_every_selector() -> None:
    scope = Scope(job="$job_b", instance="$instance_b", device="$device", shift="$shift")
    matchers = 'cluster=~"$cluster",job=~"$job_b",instance=~"$instance_b",device=~"$device"'
    assert scope.rate("ibpulse_port_bursts_total") == (
        f"rate(ibpulse_port_bursts_total{{{matchers}}}[{RATE}] offset $shift)"
    )
    assert scope.pick("ibpulse_node_rails") == (
        'ibpulse_node_rails{cluster=~"$cluster",job=~"$job_b",instance=~"$instance_b"} offset $shift'
    )


def test_a_recording_over_instances_is_picked_by_its_job() -> None:
    picked = Scope().pick("job_signature:ibpulse_nodes:count")
    assert picked == 'job_signature:ibpulse_nodes:count{cluster=~"$cluster",job=~"$job"}'
    assert labels_of("job_signature:ibpulse_nodes:count") == ("signature",)


def test_a_histogram_is_asked_for_in_both_of_its_forms() -> None:
    expr = Scope().buckets("ibpulse_node_gap_duration_seconds")
    names = [selector.name for selector in selectors(expr)]
    assert names == ["ibpulse_node_gap_duration_seconds_bucket", "ibpulse_node_gap_duration_seconds"]
    assert " or on () " in expr


def test_every_board_has_a_program() -> None:
    assert [make().file for make in PROGRAMS] == [
        "fleet.json",
        "job.json",
        "node.json",
        "comparison.json",
        "bursts.json",
        "exporter.json",
    ]
    assert [board["uid"] for board in BOARDS.values()] == [f"ibpulse-{name.removesuffix('.json')}" for name in BOARDS]
