"""The rules as parts of the Helm chart: a template, its values, and their schema. It must not decide any rule.

Every alert has a switch, and every number of the table of thresholds is a value. With the chart's own values the
template renders to the same rules as the files that Prometheus loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tools.grafana.__main__ import alert_document, recording_document, write_yaml
from tools.grafana.alerts import ALERTS, Alert
from tools.grafana.thresholds import TABLE, Threshold, fill, places

HEAD = "{{/* Written by `make chart`: change the program in tools/grafana, not this file. */}}\n"
ADDRESSES = ("runbooks", "grafana")
_PLACES = {threshold.name: f"<{threshold.name}>" for threshold in TABLE}
_ONE_LINE = 10_000
_PROMETHEUS_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_DURATION = r"^[0-9]+(ms|s|m|h|d)$"
# what may stand in a quoted matcher and in an unquoted address without ending either
_MATCHER_TEXT = {"type": "string", "pattern": r"^[^\s'\"\\]+$"}
_ADDRESS = r"^[A-Za-z0-9./][^\s'\"\\{}]*$"
_MORE_LABELS = "{{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}"
_MORE_ANNOTATIONS = "{{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}"


def rules_template() -> str:
    """The text of a template `ibpulse.rules`: the groups of rules, alerts that are switched off left out."""
    recordings = "".join(_block([group]) for group in recording_document(_PLACES)["groups"])
    alerts = "".join(_alert_group(group) for group in alert_document(_PLACES)["groups"])
    begin = '{{- define "ibpulse.rules" -}}\n{{- $rule := .Values.prometheusRule }}\n'
    return HEAD + begin + recordings + alerts + "{{- end }}\n"


def rules_values() -> str:
    """The values of `rules_template` as YAML, each under the comment that documents it."""
    lines = ["# A switch and a severity for each alert.", "alerts:"]
    for alert in ALERTS:
        lines.append(f"  # -- {alert.summary} Its numbers: {', '.join(_numbers(alert))}.")
        lines.append(f"  {alert.name}: {{enabled: true, severity: {alert.severity}}}")
    lines += ["# The numbers of the rules.", "thresholds:"]
    for threshold in TABLE:
        lines += [f"  # -- {threshold.reason}", f"  {camel(threshold.name)}: {threshold.value}"]
    return "\n".join(lines) + "\n"


def rules_schemas() -> dict[str, dict[str, Any]]:
    """JSON schemas of the two maps that `rules_values` writes, by their names there."""
    switch = {
        "enabled": {"type": "boolean"},
        "severity": {"type": "string", "enum": ["critical", "warning", "info"]},
    }
    return {
        "alerts": _closed({alert.name: _closed(switch) for alert in ALERTS}),
        "thresholds": _closed({camel(threshold.name): _schema(threshold) for threshold in TABLE}),
    }


def camel(name: str) -> str:
    """The name as values of charts are named: `moeFor` for `moe_for`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _alert_group(group: Mapping[str, Any]) -> str:
    """A group of alerts, each between its switch; the group is left out when all are off."""
    switches = " ".join(_switch(rule["alert"]) for rule in group["rules"])
    rules = "".join(_alert(rule) for rule in group["rules"])
    return f"{{{{- if or {switches} }}}}\n- name: {group['name']}\n  rules:\n{rules}{{{{- end }}}}\n"


def _alert(rule: Mapping[str, Any]) -> str:
    name = rule["alert"]
    body = _block([rule]).rstrip("\n")
    body = re.sub(r"(?<=\n    severity: )\w+", f"{{{{ $rule.alerts.{name}.severity }}}}\n    {_MORE_LABELS}", body)
    text = f"{{{{- if {_switch(name)} }}}}\n{body}\n    {_MORE_ANNOTATIONS}\n{{{{- end }}}}\n"
    return "".join(f"  {line}\n" for line in text.splitlines())


def _switch(name: str) -> str:
    return f"$rule.alerts.{name}.enabled"


def _block(document: Any) -> str:
    """The document as template text: what Prometheus fills in is kept from Helm, and places become values."""
    text = _PROMETHEUS_TEMPLATE.sub(lambda match: f"{{{{`{match[0]}`}}}}", write_yaml(document, _ONE_LINE))
    return fill(text, {name: _value(name) for name in _PLACES})


def _value(name: str) -> str:
    value = f"$rule.thresholds.{camel(name)}"
    return f'{{{{ trimSuffix "/" {value} }}}}' if name in ADDRESSES else f"{{{{ {value} }}}}"


def _numbers(alert: Alert) -> Iterable[str]:
    return sorted(camel(name) for name in {alert.hold, *places(alert.expr), *places(alert.description)})


def _schema(threshold: Threshold) -> dict[str, Any]:
    like = f"like {threshold.value}"
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", threshold.value):
        return _form(f"a number, {like}", {"type": "number", "minimum": 0})
    if re.fullmatch(_DURATION, threshold.value):
        return _form(f"a duration of Prometheus in one unit, {like}", {"type": "string", "pattern": _DURATION})
    if threshold.name in ADDRESSES:
        return _form("an address without blanks and quotation marks", {"type": "string", "pattern": _ADDRESS})
    return _form(f"a regular expression without blanks, quotation marks and backslashes, {like}", _MATCHER_TEXT)


def _form(sentence: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The schema of what is wanted; whatever else is refused with the sentence."""
    return {"if": wanted, "else": {"const": sentence}}


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }
