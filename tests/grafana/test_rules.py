"""The rules as programs and as files: Prometheus accepts them, and they, the table and the runbooks agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ibpulse.errors import ConfigError
from ibpulse.metrics import metric_table
from tools.grafana import alerts, recording_rules
from tools.grafana.__main__ import main
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
from tools.grafana.rule_numbers import ADDRESSES, fill, places
from tools.grafana.series_names import checked, level_of

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards" / "rules"
PROMTOOL = shutil.which("promtool")

FILL = fill_for_prometheus(resolve())

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def expressions() -> dict[str, str]:
    """Every expression by the name of its rule, with its numbers filled in."""
    recorded = {rule.record: rule.expr for group in recording_rules.GROUPS.values() for rule in group}
    return {name: FILL(text) for name, text in (recorded | {a.name: a.expr for a in alerts.ALERTS}).items()}


def test_the_committed_files_are_what_the_program_writes() -> None:
    for name, text in rule_files(resolve()).items():
        assert (RULES / name).read_text() == text, f"run `make docs`: {name} differs"


@pytest.mark.outside
@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", *map(str, RULES.glob("*.yaml"))], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SUCCESS") == 2


@pytest.mark.outside
@needs_promtool
@pytest.mark.parametrize("file", sorted((ROOT / "dashboards" / "tests").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_rule_fires_and_stays_silent_as_its_cases_say(file: Path) -> None:
    done = subprocess.run(["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = yaml.safe_load((ROOT / "dashboards" / "tests" / "alerts.yaml").read_text())["tests"]
    fires: dict[str, set[bool]] = {}
    for case in cases:
        for check in case["alert_rule_test"]:
            fires.setdefault(check["alertname"], set()).add(bool(check["exp_alerts"]))
    assert fires == {alert.name: {True, False} for alert in alerts.ALERTS}


def test_every_alert_has_severity_texts_runbook_and_a_dashboard_that_exist() -> None:
    for group in alert_groups(FILL):
        for rule in group["rules"]:
            notes = rule["annotations"]
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert notes["summary"].endswith(".")
            assert "$" not in notes["summary"]
            assert "{{ $" in notes["description"]
            assert (ROOT / notes["runbook_url"]).read_text().startswith(f"# {rule['alert']}\n")
            assert re.match(r"/d/ibpulse-(node|exporter)\?var-job=", notes["dashboard_url"])


def test_no_runbook_is_left_of_an_alert_that_is_gone() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("IBPulse*.md")}
    assert pages == {alert.name for alert in alerts.ALERTS}


def test_every_number_of_the_table_is_used_and_has_a_reason() -> None:
    rules = [*alerts.ALERTS, *(rule for group in recording_rules.GROUPS.values() for rule in group)]
    used = {name for rule in rules for name in places(rule.expr)}
    used |= {name for alert in alerts.ALERTS for name in (*places(alert.description), alert.hold.name)}
    used |= {"runbooks", "grafana"}
    assert used == {row.name for row in (*TABLE, *ADDRESSES)}
    assert all(row.reason.endswith(".") for row in (*TABLE, *ADDRESSES))


def test_a_row_has_all_thresholds_of_its_alert_and_no_others() -> None:
    addresses = {address.name for address in ADDRESSES}
    for alert in alerts.ALERTS:
        used = {alert.hold.name, *places(alert.expr), *places(alert.description)} - addresses
        assert {number.name for number in thresholds_of(alert)} == used, alert.name


def test_no_two_thresholds_have_one_name() -> None:
    names = [number.name for number in TABLE]
    assert sorted(set(names)) == sorted(names)


def test_thresholds_and_templates_of_prometheus_are_written_alike() -> None:
    text = fill("<a_b> < <$value | humanize> > 1 <$labels.device>", str.upper, lambda template: f"[{template}]")
    assert text == "A_B < [$value | humanize] > 1 [$labels.device]"


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


def test_every_metric_in_the_rules_is_one_that_the_exporter_exports() -> None:
    exported = set()
    for metric in metric_table.TABLE:
        tails = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        exported |= {metric.name + tail for tail in tails}
    recorded = {rule.record for group in recording_rules.GROUPS.values() for rule in group}
    for name, expression in expressions().items():
        used = set(re.findall(r"\b(?:[a-z_]+:)?ibpulse_[a-z_]+(?::[a-z0-9]+)?", expression))
        assert used <= exported | recorded, name


@pytest.mark.parametrize(
    ("record", "labels"),
    [
        ("job_signature:ibpulse_nodes:count", ["job", "signature"]),
        ("job_id:ibpulse_nodes:count", ["job_id"]),
        ("instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m", ["instance", "device", "port", "job_id"]),
    ],
)
def test_the_level_of_a_recording_names_its_labels(record: str, labels: list[str]) -> None:
    assert level_of(record) == labels


def test_recording_rules_are_named_level_metric_operation() -> None:
    for group in recording_groups(FILL):
        for rule in group["rules"]:
            assert re.fullmatch(r"[a-z_]+:ibpulse_[a-z_]+:[a-z0-9]+", rule["record"])


def test_another_number_reaches_every_place_that_uses_it(tmp_path: Path) -> None:
    assert main(["rules", str(tmp_path), "--set", "rail_idle_for=30s", "--set", "moe_share=0.5"]) == 0
    written = (tmp_path / ALERT_FILE).read_text()
    idle = next(
        rule
        for group in yaml.safe_load(written)["groups"]
        for rule in group["rules"]
        if rule["alert"] == "IBPulseRailIdle"
    )
    assert idle["for"] == "30s"
    assert "carried no traffic for 30s" in idle["annotations"]["description"]
    assert "ratio > 0.5" in written
    assert (tmp_path / RECORDING_FILE).exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rail_idle=5m", "--set rail_idle=5m: rail_idle is unknown; choose one of jobs, "),
        ("rail_idle_for=soon", '--set rail_idle_for=soon: "soon" is not a duration; write it like 5m'),
        ("moe_share=5m", '--set moe_share=5m: "5m" is not a number; write it like 0.8'),
        ("moe_share", '--set: "moe_share" has no value; write NAME=VALUE, for example moe_for=1m'),
    ],
)
def test_a_wrong_number_is_refused_with_the_way_out(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", str(tmp_path), "--set", text]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_wrong_numbers_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"moe_share": "much", "moe_shares": "1"})
    assert len(caught.value.faults) == 2
