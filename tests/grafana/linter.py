"""The 17 rules of grafana/dashboard-linter v0.2.0, as functions from a board to findings, and its exceptions file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from tests.grafana.documents import panels as panels_of
from tests.grafana.documents import parse, walk

Json = dict[str, Any]
RATE_INTERVAL = timedelta(days=130, hours=12, minutes=46, seconds=4)
WITH_QUERIES = {"singlestat", "graph", "table", "stat", "state-timeline", "timeseries"}
WITH_TEXT = {"stat", "singlestat", "graph", "table", "timeseries", "gauge"}
# those of Grafana's units that the boards use
UNITS = {
    *(
        "none",
        "percentunit",
        "Bps",
        "bytes",
        "decbytes",
        "s",
        "reqps",
        "bool_yes_no",
        "dateTimeAsIso",
        "dateTimeFromNow",
    ),
}
LABEL_FUNCTIONS = {"label_names", "label_values", "metrics", "query_result"}


@dataclass(frozen=True)
class Finding:
    """One place at which a board breaks a rule; no panel means the board itself."""

    rule: str
    text: str
    panel: str = ""


def _templates(board: Json, kind: str = "") -> list[Json]:
    return [each for each in board["templating"]["list"] if kind in ("", each["type"])]


def _asks_prometheus(board: Json) -> bool:
    """Whether the first data source is Prometheus; the rules about queries hold for no other board."""
    sources = _templates(board, "datasource")
    return bool(sources) and sources[0]["query"] == "prometheus"


def template_datasource(board: Json) -> Iterator[str]:
    sources = _templates(board, "datasource")
    if not sources:
        yield "no data source variable"
    for source in sources:
        names = {source["query"].lower() + "_datasource"} | ({"datasource"} if len(sources) == 1 else set())
        if source["name"] not in names:
            yield f"the data source variable {source['name']} should be named {' or '.join(sorted(names))}"
        elif source["label"] not in {"Data source", f"{source['query'].title()} data source"}:
            yield f"the data source variable is labelled {source['label']}"


def _template(board: Json, name: str) -> Iterator[str]:
    if not _asks_prometheus(board):
        return
    found = [each for each in _templates(board) if each["name"] == name]
    if not found:
        yield f"no variable {name}"
        return
    wanted = {"type": "query", "label": name.title(), "multi": True, "allValue": ".+"}
    for key, value in wanted.items():
        if found[0].get(key) != value:
            yield f"variable {name}: {key} is {found[0].get(key)!r}, not {value!r}"
    if found[0]["datasource"]["uid"] not in ("$datasource", "${datasource}"):
        yield f"variable {name} asks {found[0]['datasource']['uid']}"


def template_job(board: Json) -> Iterator[str]:
    yield from _template(board, "job")


def template_instance(board: Json) -> Iterator[str]:
    yield from _template(board, "instance")


def template_label_promql(board: Json) -> Iterator[str]:
    for each in _templates(board, "query") if _asks_prometheus(board) else ():
        found = re.fullmatch(r"([a-z_]+)\((.+?)(?:, \w+)?\)", each["query"])
        if not found or found[1] not in LABEL_FUNCTIONS:
            yield f"variable {each['name']}: {each['query']}"
            continue
        try:
            parse(found[2])
        except ValueError as error:
            yield f"variable {each['name']}: {error}"


def template_reload(board: Json) -> Iterator[str]:
    for each in _templates(board, "query"):
        if each["refresh"] != 2:
            yield f"variable {each['name']} is not refreshed when the time range changes"


def panel_datasource(panel: Json, board: Json) -> Iterator[str]:
    names = {form % each["name"] for each in _templates(board, "datasource") for form in ("$%s", "${%s}")}
    if panel["type"] in {"singlestat", "graph", "table", "timeseries"} and panel["datasource"]["uid"] not in names:
        yield f"data source {panel['datasource']['uid']}"


def panel_text(panel: Json, _: Json) -> Iterator[str]:
    if panel["type"] in WITH_TEXT and not (panel.get("title") and panel.get("description")):
        yield "no title or no description"


def panel_units(panel: Json, _: Json) -> Iterator[str]:
    if panel["type"] in WITH_TEXT and panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield f"unit {panel['fieldConfig']['defaults'].get('unit')!r}"


def panel_no_targets(panel: Json, _: Json) -> Iterator[str]:
    if panel["type"] in WITH_TEXT and not panel.get("targets"):
        yield "no query"


def target_logql(panel: Json, _: Json) -> Iterator[str]:
    for target in panel["targets"]:
        if target["datasource"]["type"] == "loki":
            yield "a Loki query, whose language these tests do not parse"


def target_promql(panel: Json, board: Json) -> Iterator[str]:
    if not _asks_prometheus(board) or panel["type"] not in WITH_QUERIES:
        return
    for target in panel["targets"]:
        try:
            parse(target["expr"])
        except (ValueError, KeyError) as error:
            yield f"{target['refId']}: {error}"


def _trees(panel: Json, board: Json) -> Iterator[tuple[str, Any]]:
    for target in panel["targets"] if _asks_prometheus(board) else ():
        try:
            yield target["refId"], parse(target["expr"])
        except (ValueError, KeyError):
            continue  # another rule's finding


def target_rate_interval(panel: Json, board: Json) -> Iterator[str]:
    if panel["type"] not in WITH_QUERIES:
        return
    for ref_id, tree in _trees(panel, board):
        for node, parents in walk(tree):
            if not isinstance(node, promql.MatrixSelector) or node.range == RATE_INTERVAL or not parents:
                continue
            if not isinstance(parents[-1], promql.Call) or parents[-1].func.name in ("rate", "irate"):
                yield f"{ref_id}: {node.prettify()} should use $__rate_interval"


def _matcher(name: str) -> Callable[[Json, Json], Iterator[str]]:
    def check(panel: Json, board: Json) -> Iterator[str]:
        for ref_id, tree in _trees(panel, board):
            for node, _ in walk(tree):
                if isinstance(node, promql.VectorSelector) and not any(
                    (each.name, each.op, each.value) == (name, promql.MatchOp.Re, f"${name}")
                    for each in node.matchers.matchers
                ):
                    yield f'{ref_id}: {node.name} has no {name}=~"${name}"'

    return check


def target_counter_agg(panel: Json, board: Json) -> Iterator[str]:
    for ref_id, tree in _trees(panel, board):
        for node, parents in walk(tree):
            if not isinstance(node, promql.VectorSelector) or not (node.name or "").endswith("_total"):
                continue
            call = parents[-2] if len(parents) > 1 and isinstance(parents[-1], promql.MatrixSelector) else None
            if not isinstance(call, promql.Call) or call.func.name not in ("rate", "irate", "increase"):
                yield f"{ref_id}: the counter {node.name} is used without a rate"


def uneditable(board: Json) -> Iterator[str]:
    if board.get("editable", True):
        yield "the board can be edited"


BOARD_RULES: dict[str, Callable[[Json], Iterator[str]]] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": template_job,
    "template-instance-rule": template_instance,
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_reload,
    "uneditable-dashboard": uneditable,
}
PANEL_RULES: dict[str, Callable[[Json, Json], Iterator[str]]] = {
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_text,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-logql-rule": target_logql,
    "target-logql-auto-rule": target_logql,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": _matcher("job"),
    "target-instance-rule": _matcher("instance"),
    "target-counter-agg-rule": target_counter_agg,
}


def lint(board: Json, rule: str) -> list[Finding]:
    """The findings of one rule."""
    if rule in BOARD_RULES:
        return [Finding(rule, text) for text in BOARD_RULES[rule](board)]
    check = PANEL_RULES[rule]
    return [Finding(rule, text, panel["title"]) for panel in panels_of(board) for text in check(panel, board)]


def load_exceptions(path: Path) -> dict[tuple[str, str, str], str]:
    """The reason of each exception by rule, title of the board, title of the panel."""
    exclusions = yaml.safe_load(path.read_text())["exclusions"]
    return {
        (rule, entry["dashboard"], entry.get("panel", "")): entry["reason"]
        for rule, listed in exclusions.items()
        for entry in listed["entries"]
    }
