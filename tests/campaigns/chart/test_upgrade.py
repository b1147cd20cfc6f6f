"""A values file of 0.1 installs: what it sets still holds, and one warning names the replacement of each old value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.campaigns.chart.rendering import ROOT, Document, merged, needs_helm, notes, one, refusal, render
from tools.chart.rules_template import REPLACED, REPLACED_ALERTS, RETIRED, camel
from tools.grafana.alerts import ALERTS
from tools.grafana.rule_numbers import ADDRESSES

pytestmark = needs_helm

OLD: Document = yaml.safe_load((Path(__file__).parent / "values-0.1.yaml").read_text())
"""Every value of the chart of 0.1 with its default."""

GONE = {*map(camel, (*RETIRED, *REPLACED)), *(address.name for address in ADDRESSES)}


def deprecated(text: str) -> list[str]:
    """The thresholds that are warned of, each as often as it is."""
    return re.findall(r"(?m)^WARNING: prometheusRule.thresholds.(\w+) is deprecated\.", text)


def test_the_old_file_sets_every_threshold_that_is_gone() -> None:
    kept = set(yaml.safe_load((ROOT / "helm/ibpulse/values.yaml").read_text())["prometheusRule"]["thresholds"])
    assert set(OLD["prometheusRule"]["thresholds"]) >= GONE
    assert set(OLD["prometheusRule"]["thresholds"]) <= kept | GONE
    assert not kept & GONE


def test_the_old_file_gives_one_warning_for_each_of_them() -> None:
    assert sorted(deprecated(notes(OLD))) == sorted(GONE)


def test_the_old_file_gives_the_rules_of_this_version() -> None:
    rules = one(render(merged(OLD, {"prometheusRule": {"enabled": True}})), "PrometheusRule")["spec"]
    # what it says of severities holds
    severities = {alert.name: OLD["prometheusRule"]["alerts"].get(alert.name, {}) for alert in ALERTS}
    assert rules == one(render({"prometheusRule": {"enabled": True, "alerts": severities}}), "PrometheusRule")["spec"]


def test_an_alert_that_is_gone_is_warned_of_and_its_replacement_is_named() -> None:
    for old, new in REPLACED_ALERTS.items():
        text = notes({"prometheusRule": {"alerts": {old: {"enabled": False, "severity": "info"}}}})
        assert f"WARNING: prometheusRule.alerts.{old} is deprecated." in text
        assert f"prometheusRule.alerts.{new}" in text


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("jobs", ".*other.*", "Set prometheusRule.jobs instead."),
        (
            "resetWindow",
            "1h",
            "Set prometheusRule.alerts.IBPulseCountersReset.enabled=false, and put rules of your own",
        ),
        ("moeWindow", "1h", "`python -m tools.grafana rules DIR --set moe_window=VALUE`"),
    ],
)
def test_one_old_value_holds_and_is_warned_of_alone(name: str, value: str, instead: str) -> None:
    values: Document = {"prometheusRule": {"enabled": True, "thresholds": {name: value}}}
    assert value in str(one(render(values), "PrometheusRule")["spec"])
    text = notes(values)
    assert deprecated(text) == [name]
    assert instead in text


def test_an_old_value_of_zero_holds_too() -> None:
    values: Document = {"prometheusRule": {"enabled": True, "thresholds": {"stallSteps": 0}}}
    assert "median[6h]) > 0" in str(one(render(values), "PrometheusRule")["spec"])


def test_a_value_that_no_rule_uses_any_more_is_accepted_and_warned_of() -> None:
    text = notes({"prometheusRule": {"thresholds": {"flapWindow": "1h"}}})
    assert deprecated(text) == ["flapWindow"]
    assert "It has no effect. IBPulseLinkWentDown replaces IBPulsePortFlapping; set linkDrops instead." in text


def test_a_wrong_old_value_is_refused() -> None:
    said = refusal({"prometheusRule": {"thresholds": {"flapWindow": "5"}}})
    assert "value must be 'a Prometheus duration with one unit, like 15m'" in said
