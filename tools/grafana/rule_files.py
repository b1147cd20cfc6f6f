"""The rules as documents, for the files that Prometheus loads and for the Helm chart.

All placeholders are filled in before a document is built: with values for Prometheus, with template code for
Helm. Writing the YAML afterwards only handles plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from ibpulse.errors import ConfigError
from tools.grafana import alerts, recording_rules
from tools.grafana.alerts import Alert
from tools.grafana.recording_rules import Recording
from tools.grafana.rule_numbers import ADDRESSES, Address, Threshold, fill, kind
from tools.grafana.series_names import checked

HEAD = "# Written by `python -m tools.grafana`: change the program, not this file.\n"
RECORDING_FILE = "ibpulse-recording.yaml"
ALERT_FILE = "ibpulse-alerts.yaml"

Document = dict[str, Any]
Fill = Callable[[str], str]
"""Fills in the placeholders of one text."""


def thresholds_of(alert: Alert) -> tuple[Threshold, ...]:
    """Every threshold of an alert."""
    return (alert.hold, *alert.numbers)


# a threshold shared by several rules is listed where it is first used
TABLE: tuple[Threshold, ...] = tuple(
    dict.fromkeys(
        (*(number for alert in alerts.ALERTS for number in thresholds_of(alert)), *recording_rules.THRESHOLDS)
    )
)
"""Every threshold of the rules."""


def resolve(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every threshold and address by name; `overrides` replaces default values.

    Raises:
        ConfigError: a name is unknown, or a value is of another kind than its default.
    """
    rows: tuple[Address | Threshold, ...] = (*ADDRESSES, *TABLE)
    values = {row.name: row.value for row in rows}
    faults = []
    for name, value in (overrides or {}).items():
        if name not in values:
            faults.append(f"--set {name}={value}: {name} is unknown; choose one of {', '.join(values)}")
        elif kind(value) != kind(values[name]):
            faults.append(
                f'--set {name}={value}: "{value}" is not a {kind(values[name])}; write it like {values[name]}'
            )
    if faults:
        raise ConfigError(faults)
    return values | dict(overrides or {})


def fill_for_prometheus(values: Mapping[str, str]) -> Fill:
    """Fill in the values by name and keep the Prometheus templates."""

    def value(name: str) -> str:
        return values[name].rstrip("/") if name in ("runbooks", "grafana") else values[name]

    return lambda text: fill(text, value, lambda template: f"{{{{ {template} }}}}")


def recording_groups(fill_text: Fill) -> list[Document]:
    """The groups of recording rules."""
    return [
        _group(name, [_record(rule, fill_text) for rule in rules]) for name, rules in recording_rules.GROUPS.items()
    ]


def alert_groups(fill_text: Fill) -> list[Document]:
    """The groups of alerts."""
    return [_group(name, [_alert(rule, fill_text) for rule in rules]) for name, rules in alerts.GROUPS.items()]


def rule_files(values: Mapping[str, str]) -> dict[str, str]:
    """The text of each rule file by its name."""
    fill_text = fill_for_prometheus(values)
    return {
        RECORDING_FILE: HEAD + _write_yaml({"groups": recording_groups(fill_text)}),
        ALERT_FILE: HEAD + _write_yaml({"groups": alert_groups(fill_text)}),
    }


def _group(name: str, rules: Iterable[Document]) -> Document:
    return {"name": name, "rules": list(rules)}


def _record(rule: Recording, fill_text: Fill) -> Document:
    return {"record": rule.record, "expr": fill_text(checked(rule.expr))}


def _alert(rule: Alert, fill_text: Fill) -> Document:
    node = "?var-job=<$labels.job>&var-instance=<$labels.instance>"
    return {
        "alert": rule.name,
        "expr": fill_text(checked(rule.expr)),
        "for": fill_text(f"<{rule.hold.name}>"),
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": fill_text(rule.summary),
            "description": fill_text(rule.description),
            "runbook_url": fill_text(f"<runbooks>/{rule.name}.md"),
            "dashboard_url": fill_text(f"<grafana>/d/{rule.board}{node}"),
        },
    }


def _write_yaml(document: Document) -> str:
    """A document as YAML, with multi-line texts as blocks."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
