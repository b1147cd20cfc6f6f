"""The rules as programs and as files: Prometheus accepts them, and they, the table and the runbooks agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from ibpulse.gateway.push import SEVERITY, STALLED, PushedAlert
from tests.grafana.documents import parse, walk
from tools.grafana import alerts, recording_rules
from tools.grafana.__main__ import main
from tools.grafana.alerts import KEEP, KEEP_CAUSE
from tools.grafana.inhibitions import INHIBITIONS
from tools.grafana.rule_files import (
    ALERT_FILE,
    RECORDING_FILE,
    TABLE,
    alert_groups,
    fill_for_prometheus,
    recording_groups,
    resolve,
    rule_files,
    thresholds_of,
)
from tools.grafana.rule_numbers import ADDRESSES, EVALUATION, QUERIES, fill, places
from tools.grafana.series_names import checked

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards" / "rules"

FILL = fill_for_prometheus(resolve())


def expressions() -> dict[str, str]:
    """Every expression by the name of its rule, with its numbers filled in."""
    recorded = {rule.record: rule.expr for group in recording_rules.GROUPS.values() for rule in group}
    return {name: FILL(text) for name, text in (recorded | {a.name: a.expr for a in alerts.ALERTS}).items()}


def written(**overrides: str) -> dict[str, Any]:
    """The documents of the rule files by name."""
    return {name: yaml.safe_load(text) for name, text in rule_files(resolve(overrides)).items()}


def rules_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.mark.needs("promtool")
@pytest.mark.real("process")
@pytest.mark.parametrize("file", sorted((ROOT / "dashboards" / "tests").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recording_is_what_its_cases_say(file: Path) -> None:
    done = subprocess.run(["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_texts_runbook_and_dashboard() -> None:
    for group in alert_groups(FILL):
        for rule in group["rules"]:
            notes = rule["annotations"]
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            # the gateway pushes it, and Alertmanager merges alerts with the same labels
            names = {"severity"} if rule["alert"] == STALLED else {"severity", "component"}
            assert rule["labels"].keys() == names
            assert rule["labels"].get("component", "job") in {"job", "fabric", "instrument"}
            assert notes["summary"].endswith(".")
            assert "$" not in notes["summary"]
            assert "First step: " in notes["description"]
            assert "{{ $" in notes["description"]
            assert notes["runbook_url"] == f"/runbooks/{rule['alert']}.md"
            assert re.match(r"/d/ibpulse-(fleet|node|job)\?var-cluster=", notes["dashboard_url"])


def test_the_rule_about_stalls_has_the_labels_of_the_alert_that_the_gateway_pushes() -> None:
    (rule,) = [rule for group in alert_groups(FILL) for rule in group["rules"] if rule["alert"] == STALLED]
    assert rule["labels"] == {"severity": SEVERITY}
    assert rule["expr"].startswith("min by (cluster, job_id) (")
    document = PushedAlert("7", {}, 0).document({"cluster": "a"}, 0)
    assert document["labels"] == {"alertname": STALLED, **rule["labels"], "cluster": "a", "job_id": "7"}


def test_every_threshold_is_used_and_has_a_reason() -> None:
    rules = [*alerts.ALERTS, *(rule for group in recording_rules.GROUPS.values() for rule in group)]
    used = {name for rule in rules for name in places(rule.expr)} - {"unless"}
    used |= {name for alert in alerts.ALERTS for name in (*places(alert.description), alert.hold.name)}
    used |= {name for alert in alerts.ALERTS for name in places(alert.when)}
    used |= {"runbooks", "grafana", "maintenance", KEEP.name, KEEP_CAUSE.name}
    assert used == {row.name for row in (*TABLE, *ADDRESSES, *QUERIES)}
    assert all(row.reason.endswith(".") for row in (*TABLE, *ADDRESSES, *QUERIES, *EVALUATION))
    addresses = {address.name for address in ADDRESSES}
    for alert in alerts.ALERTS:
        used = {alert.hold.name, *places(alert.expr), *places(alert.when), *places(alert.description)}
        used -= {*addresses, "unless"}
        kept = KEEP_CAUSE if any(alert.name in row.causes for row in INHIBITIONS) else KEEP
        used |= {kept.name} if alert.keep else set()
        assert {number.name for number in thresholds_of(alert)} == used, alert.name


def test_thresholds_and_templates_of_prometheus_are_written_alike() -> None:
    text = fill("<a_b> < <$value | humanize> > 1 <$labels.device>", str.upper, lambda template: f"[{template}]")
    assert text == "A_B < [$value | humanize] > 1 [$labels.device]"
    asked = fill('<range query (printf "up")><.Value><else><a_b><end>', str.upper, lambda template: f"[{template}]")
    assert asked == '[range query (printf "up")][.Value][else]A_B[end]'


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("rate(ibpulse_port_transmit_byte_total[5m])", "ibpulse_port_transmit_byte_total is not exported"),
        ("instance:ibpulse_missed:ratio > 1", "instance:ibpulse_missed:ratio is not exported and not recorded"),
        ('ibpulse_port_info{rails="true"}', "ibpulse_port_info has no label rails; it has "),
    ],
)
def test_an_expression_with_a_name_that_nobody_exports_is_refused(expr: str, said: str) -> None:
    with pytest.raises(KeyError, match=said):
        checked(expr)


def test_recording_rules_are_named_level_metric_operation() -> None:
    for group in recording_groups(FILL):
        for rule in group["rules"]:
            assert re.fullmatch(r"[a-z_]+:ibpulse_[a-z_]+:[a-z0-9]+", rule["record"])


def test_another_number_reaches_every_place_that_uses_it(tmp_path: Path) -> None:
    assert main(["rules", str(tmp_path), "--set", "rail_idle_for=30s", "--set", "moe_share=0.5"]) == 0
    written = (tmp_path / ALERT_FILE).read_text()
    idle = next(rule for rule in rules_of(yaml.safe_load(written)) if rule["alert"] == "IBPulseRailIdle")
    assert idle["for"] == "30s"
    assert "carried no traffic for 30s" in idle["annotations"]["description"]
    assert "> 0.5" in written
    assert (tmp_path / RECORDING_FILE).exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rail_idle=5m", "--set rail_idle=5m: rail_idle is unknown; choose one of jobs, "),
        ("rail_idle_for=soon", '--set rail_idle_for=soon: "soon" is not a duration; write it like 1m'),
        ("moe_share=5m", '--set moe_share=5m: "5m" is not a number; write it like 0.8'),
        ("moe_share=5m moe_shares=1", "moe_shares is unknown"),
        ("moe_share", '--set: "moe_share" has no value; write NAME=VALUE, for example moe_for=1m'),
    ],
)
def test_a_wrong_number_is_refused_with_the_way_out(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", str(tmp_path), *(word for part in text.split() for word in ("--set", part))]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# how the rules are evaluated


def test_maintenance_silences_alerts_about_nodes() -> None:
    clause = " unless on (cluster, node) (kube_node_spec_unschedulable == 1)"
    without, with_it = written(), written(maintenance="kube_node_spec_unschedulable == 1")
    of_nodes = {alert.name for alert in alerts.ALERTS if alert.of_node}
    for before, after in zip(rules_of(without[ALERT_FILE]), rules_of(with_it[ALERT_FILE]), strict=True):
        assert after["expr"] == before["expr"] + clause * (before["alert"] in of_nodes)
    counted = [rule for rule in rules_of(with_it[RECORDING_FILE]) if clause in rule["expr"]]
    assert {rule["record"] for rule in counted} == {
        "job:ibpulse_silent_exporters:ratio",
        "cluster:ibpulse_missing_nodes:count",
        "cluster:ibpulse_missing_nodes:ratio",
    }


def test_shards_divide_the_large_groups_and_lose_no_rule() -> None:
    for name, sharded in ((RECORDING_FILE, 2), (ALERT_FILE, 1)):
        whole, parts = written()[name], written(shards="4")[name]
        assert sorted(map(str, rules_of(parts))) == sorted(map(str, rules_of(whole)))
        names = [group["name"] for group in parts["groups"]]
        assert len(set(names)) == len(names) == len(whole["groups"]) + 3 * sharded
    assert {"ibpulse-rails-1", "ibpulse-rails-4"} <= {group["name"] for group in parts["groups"]}
    assert all(group["rules"] for group in written(shards="16")[ALERT_FILE]["groups"])


def test_groups_have_the_interval_and_the_limit_that_are_set() -> None:
    groups = written(limit="5000", interval="2m", alert_interval="1m")
    assert all(group["limit"] == 5000 for name in (RECORDING_FILE, ALERT_FILE) for group in groups[name]["groups"])
    assert {group["interval"] for group in groups[ALERT_FILE]["groups"]} == {"1m"}
    assert {group["interval"] for group in groups[RECORDING_FILE]["groups"]} == {"2m", "1m", "5m"}
    # its `ruler_max_rules_per_rule_group`
    files = written()
    assert all(len(group["rules"]) <= 20 for name in (RECORDING_FILE, ALERT_FILE) for group in files[name]["groups"])


def test_no_rule_counts_evaluations_whose_interval_operators_set() -> None:
    expressions = [rule["expr"] for name in (RECORDING_FILE, ALERT_FILE) for rule in rules_of(written()[name])]
    counts = [found for expr in expressions for found in re.findall(r"count_over_time\([^()]*\)", expr)]
    assert [found for found in counts if not re.search(r"\[\w+:\w+\]", found)] == []
    assert counts


def test_alerts_keep_firing_and_those_that_silence_others_longer() -> None:
    kept = {rule["alert"] for rule in rules_of(written()[ALERT_FILE]) if "keep_firing_for" in rule}
    assert kept == {alert.name for alert in alerts.ALERTS if alert.keep}
    none = written(keep_for="0s", keep_cause_for="0s")
    assert not any("keep_firing_for" in rule for rule in rules_of(none[ALERT_FILE]))
    causes = {name for row in INHIBITIONS for name in row.causes}
    times = {rule["alert"]: rule.get("keep_firing_for") for rule in rules_of(written()[ALERT_FILE])}
    assert {name for name, time in times.items() if time == "8m"} == {
        alert.name for alert in alerts.ALERTS if alert.keep and alert.name in causes
    }
    assert {time for name, time in times.items() if name not in causes} == {"5m"}


def test_links_are_absolute_with_the_addresses() -> None:
    rules = rules_of(written(runbooks="https://git.example.com/docs/", grafana="https://g.example.com/")[ALERT_FILE])
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"https://git.example.com/docs/{rule['alert']}.md"
        assert rule["annotations"]["dashboard_url"].startswith("https://g.example.com/d/ibpulse-")


def test_only_what_kills_or_blocks_a_job_pages_someone() -> None:
    critical = {alert.name for alert in alerts.ALERTS if "critical" in (alert.severity, alert.otherwise)}
    assert critical == {"IBPulseLinkDown", "IBPulseRailMissing"}


def test_no_rule_keeps_a_label_that_changes_with_the_pod() -> None:
    for name, expression in expressions().items():
        for node, parents in walk(parse(expression)):
            if isinstance(node, promql.VectorSelector) and not (node.name or "").count(":"):
                absent = any(isinstance(parent, promql.Call) and parent.func.name == "absent" for parent in parents)
                assert absent or any(isinstance(parent, promql.AggregateExpr) for parent in parents), f"{name}: {node}"
