"""The PrometheusRule is the rules of dashboards/rules, with a switch for each alert and a value for each number."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.campaigns.chart.rendering import (
    ROOT,
    Document,
    needs_helm,
    one,
    render,
)
from tests.tables import for_each
from tools.chart.rules_template import camel
from tools.grafana.alerts import ALERTS
from tools.grafana.rule_files import (
    ALERT_FILE,
    RECORDING_FILE,
    TABLE,
    alert_groups,
    divided,
    fill_for_prometheus,
    recording_groups,
    resolve,
    rule_files,
)
from tools.grafana.rule_numbers import ADDRESSES, kind

pytestmark = needs_helm

OTHER = {"number": "0.123", "duration": "77s", "pattern": "https://x.example.com/y"}


def spec(**rule: Any) -> Document:
    """The rendered groups."""
    found: Document = one(render({"prometheusRule": {"enabled": True, **rule}}), "PrometheusRule")["spec"]
    return found


def alerts_of(document: Document) -> dict[str, Document]:
    """Alerts by name."""
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"] if "alert" in rule}


def test_with_the_charts_own_values_the_rules_are_those_of_the_files() -> None:
    folder = ROOT / "dashboards" / "rules"
    files = [yaml.safe_load((folder / name).read_text()) for name in (RECORDING_FILE, ALERT_FILE)]
    groups = {group["name"]: group for document in files for group in document["groups"]}
    assert {group["name"]: group for group in spec()["groups"]} == groups


def other_numbers() -> dict[str, str]:
    """Another value for every threshold that the chart knows."""
    return {number.name: OTHER[kind(number.value)] for number in TABLE if number.tunable}


def other_addresses() -> dict[str, str]:
    return {address.name: OTHER["pattern"] for address in ADDRESSES}


def as_values(others: dict[str, str]) -> Document:
    return {camel(name): float(value) if value == OTHER["number"] else value for name, value in others.items()}


def test_another_value_for_every_number_gives_the_rules_that_the_program_writes_with_them() -> None:
    numbers, addresses = other_numbers(), other_addresses()
    fill = fill_for_prometheus(resolve(numbers | addresses))
    document = spec(thresholds=as_values(numbers), **addresses)
    assert document["groups"] == divided([*recording_groups(fill), *alert_groups(fill)], shards=1)


def test_the_chart_has_the_thresholds_that_operators_tune_and_no_others() -> None:
    values = yaml.safe_load((ROOT / "helm/ibpulse/values.yaml").read_text())["prometheusRule"]
    assert list(values["thresholds"]) == [camel(number.name) for number in TABLE if number.tunable]
    assert len(values["thresholds"]) == 20
    assert set(values["alerts"]) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize(
    ("name", "jobs", "expected"),
    [
        ("rails", None, ".*(ibpulse|rails).*"),
        ("ibpulse-b", None, ".*ibpulse.*"),
        ("rails", "fabric/.*", "fabric/.*"),
    ],
)
def test_rules_match_the_name_that_monitors_give(name: str, jobs: str | None, expected: str) -> None:
    rule = {"enabled": True} | ({"jobs": jobs} if jobs else {})
    documents = render({"nameOverride": name, "prometheusRule": rule, "podMonitor": {"enabled": True}})
    text = yaml.safe_dump(one(documents, "PrometheusRule"))
    assert set(re.findall(r'up\{job=~"([^"]*)"', text)) == {expected}
    label = one(documents, "PodMonitor")["spec"]["jobLabel"]
    taken = one(documents, "DaemonSet")["spec"]["template"]["metadata"]["labels"][label]
    assert jobs or re.fullmatch(expected, taken)


@for_each([alert.name for alert in ALERTS])
def test_each_alert_can_be_left_out_alone(name: str) -> None:
    left = alerts_of(spec(alerts={name: {"enabled": False}}))
    assert set(left) == {alert.name for alert in ALERTS} - {name}


def test_labels_annotations_and_severity_can_be_ones_own() -> None:
    document = spec(
        alerts={"IBPulseRailIdle": {"severity": "info"}},
        additionalRuleLabels={"team": "fabric"},
        additionalRuleAnnotations={"team_url": "https://example.com"},
        extraGroups=[{"name": "own", "rules": [{"record": "a:b:c", "expr": "1"}]}],
    )
    alerts = alerts_of(document)
    assert alerts["IBPulseRailIdle"]["labels"] == {"severity": "info", "component": "fabric", "team": "fabric"}
    assert all(alert["labels"]["team"] == "fabric" for alert in alerts.values())
    assert all(alert["annotations"]["team_url"] == "https://example.com" for alert in alerts.values())
    assert document["groups"][-1]["name"] == "own"


@pytest.mark.parametrize(
    ("own", "overrides"),
    [
        ({"shards": 3}, {"shards": "3"}),
        ({"shards": 16, "limit": 5000}, {"shards": "16", "limit": "5000"}),
        ({"maintenance": 'x{a="b"} == 1'}, {"maintenance": 'x{a="b"} == 1'}),
        ({"expectedNodes": "slurm_node", "interval": "2m"}, {"expected_nodes": "slurm_node", "interval": "2m"}),
        ({"alertInterval": "30s"}, {"alert_interval": "30s"}),
    ],
    ids=str,
)
def test_values_of_groups_and_queries_give_the_rules_that_the_program_writes_with_them(
    own: dict[str, Any], overrides: dict[str, str]
) -> None:
    files = rule_files(resolve(overrides))
    groups = [group for name in (RECORDING_FILE, ALERT_FILE) for group in yaml.safe_load(files[name])["groups"]]
    assert spec(**own)["groups"] == groups


def test_a_shard_whose_alerts_are_all_off_is_left_out() -> None:
    kept = "IBPulseRailIdle"
    document = spec(shards=4, alerts={alert.name: {"enabled": alert.name == kept} for alert in ALERTS})
    alerts = [group for group in document["groups"] if "alert" in group["rules"][0]]
    assert [[rule["alert"] for rule in group["rules"]] for group in alerts] == [[kept]]
