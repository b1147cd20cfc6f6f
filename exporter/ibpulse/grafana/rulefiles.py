"""Rules as the documents that Prometheus loads. It must not decide any rule.

The alerts' numbers are filled in here, so that the same rules can be written with other ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ibpulse.grafana import alerts, recordings
from ibpulse.grafana.alerts import Alert
from ibpulse.grafana.recordings import Recording
from ibpulse.grafana.thresholds import fill

HEAD = "# Written by `python -m ibpulse.grafana`: change the program, not this file.\n"
RECORDING_FILE = "ibpulse-recording.yaml"
ALERT_FILE = "ibpulse-alerts.yaml"


def recording_document(values: Mapping[str, str]) -> dict[str, Any]:
    """The file of recording rules as plain values."""
    groups = recordings.GROUPS.items()
    return {"groups": [{"name": name, "rules": [_record(rule, values) for rule in rules]} for name, rules in groups]}


def alert_document(values: Mapping[str, str]) -> dict[str, Any]:
    """The file of alerts as plain values."""
    groups = alerts.GROUPS.items()
    return {"groups": [{"name": name, "rules": [_alert(rule, values) for rule in rules]} for name, rules in groups]}


def rule_files(values: Mapping[str, str]) -> dict[str, str]:
    """The text of each rule file by its name."""
    return {
        RECORDING_FILE: HEAD + write_yaml(recording_document(values)),
        ALERT_FILE: HEAD + write_yaml(alert_document(values)),
    }


def write_yaml(document: Any, width: int = 110) -> str:
    """A document as YAML with expressions of several lines as blocks."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)


def _record(rule: Recording, values: Mapping[str, str]) -> dict[str, Any]:
    return {"record": rule.record, "expr": fill(rule.expr, values)}


def _alert(rule: Alert, values: Mapping[str, str]) -> dict[str, Any]:
    node = "?var-job={{ $labels.job }}&var-instance={{ $labels.instance }}"
    return {
        "alert": rule.name,
        "expr": fill(rule.expr, values),
        "for": values[rule.hold],
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": fill(rule.description, values),
            "runbook_url": f"{values['runbooks'].rstrip('/')}/{rule.name}.md",
            "dashboard_url": f"{values['grafana'].rstrip('/')}/d/{rule.board}{node}",
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
