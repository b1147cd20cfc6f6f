"""The rules as parts of the Helm chart: a template, its values, and their schema.

Every alert has a switch and a severity, and every threshold that operators tune is a value. With the default values,
the template renders to the same rules as the files that Prometheus loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tools.grafana import recording_rules
from tools.grafana.alerts import ALERTS, Alert
from tools.grafana.rule_files import TABLE, Document, alert_groups, recording_groups, thresholds_of
from tools.grafana.rule_numbers import ADDRESSES, Threshold, fill, places

HEAD = "{{/* Written by `make chart`: change the program in tools/, not this file. */}}\n"
# fmt: off
RETIRED = (
    "moe_window", "saturated_window", "rail_missing_memory", "flap_window", "reset_window", "step_score",
    "step_recent", "step_memory", "step_other_job", "stall_memory", "stall_steps", "read_errors_window",
    "missed_window", "heartbeat_age", "throttled_for", "recorder_window", "at_once", "pcie_ratio",
)
# fmt: on
"""Thresholds that were values of the chart in 0.1. 0.2 still applies them, with a warning; 0.3 drops them."""

_TUNABLE = tuple(number for number in TABLE if number.tunable)
_FIXED = {number.name: number.value for number in TABLE if not number.tunable}
_ADDRESSES = {address.name: address for address in ADDRESSES}
_DURATION = r"^[0-9]+(ms|s|m|h|d)$"
# characters that cannot end a quoted matcher or an unquoted address
_MATCHER_TEXT = {"type": "string", "pattern": r"^[^\s'\"\\]+$"}
_ADDRESS = r"^[A-Za-z0-9./][^\s'\"\\{}]*$"
# follows the entries of an alert's map
_MORE = {
    "labels": "{{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}",
    "annotations": "{{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}",
}


def rules_template() -> str:
    """The templates `ibpulse.rules`, the groups of rules, and `ibpulse.retiredThresholds`, advice on removed values."""
    begin = ['{{- define "ibpulse.rules" -}}', "{{- $rule := .Values.prometheusRule }}"]
    recordings = [line for group in recording_groups(_fill_for_helm) for line in _recording_group(group)]
    alerts = [line for group in alert_groups(_fill_for_helm) for line in _alert_group(group)]
    retired = ['{{- define "ibpulse.retiredThresholds" -}}', *_retired(), "{{- end }}"]
    return HEAD + "\n".join([*begin, *recordings, *alerts, "{{- end }}", "", *retired]) + "\n"


def rules_values() -> str:
    """The values of `rules_template` as YAML, each under the comment that documents it."""
    lines = []
    for address in ADDRESSES:
        lines += [f"# -- {address.reason}", f"{address.name}: {address.value}"]
    lines += ["# A switch and a severity for each alert.", "alerts:"]
    for alert in ALERTS:
        names = ", ".join(_values_of(alert))
        lines.append(f"  # -- {alert.summary}" + (f" Thresholds: {names}." if names else ""))
        lines.append(f"  {alert.name}: {{enabled: true, severity: {alert.severity}}}")
    lines += ["# Thresholds of the rules.", "thresholds:"]
    for number in _TUNABLE:
        lines += [f"  # -- {number.reason}", f"  {camel(number.name)}: {number.value}"]
    return "\n".join(lines) + "\n"


def rules_schemas() -> dict[str, dict[str, Any]]:
    """JSON schemas of the values that `rules_values` writes, by the names of their definitions."""
    switch = {
        "enabled": {"type": "boolean"},
        "severity": {"type": "string", "enum": ["critical", "warning", "info"]},
    }
    jobs = f"a regular expression without blanks, quotation marks and backslashes, like {_ADDRESSES['jobs'].value}"
    addresses = {
        "jobs": _form(jobs, _MATCHER_TEXT),
        "address": _form("an address without blanks and quotation marks", {"type": "string", "pattern": _ADDRESS}),
    }
    retired = {name: _form_of(number) for number in TABLE if (name := number.name) in RETIRED}
    retired |= {name: addresses.get(name, addresses["address"]) for name in _ADDRESSES}
    sentences = _replacements()
    return {
        **addresses,
        "alerts": _closed({alert.name: _closed(switch) for alert in ALERTS}),
        "thresholds": _closed(
            {camel(number.name): _form_of(number) for number in _TUNABLE},
            {
                camel(name): form | {"description": sentences[name], "deprecated": True}
                for name, form in retired.items()
            },
        ),
    }


def camel(name: str) -> str:
    """The name as chart values are named: `moeFor` for `moe_for`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _fill_for_helm(text: str) -> str:
    """The text of a rule as template code: values for its placeholders; Prometheus templates are kept."""
    return fill(text, _value, lambda template: f"{{{{`{{{{ {template} }}}}`}}}}")


def _value(name: str) -> str:
    """Template code for a threshold or an address; a value under its name in 0.1 takes precedence."""
    if name in _ADDRESSES:
        value = f'dig "{name}" $rule.{name} $rule.thresholds'
        return f"{{{{ {value} }}}}" if name == "jobs" else f'{{{{ {value} | trimSuffix "/" }}}}'
    if name in RETIRED:
        return f'{{{{ dig "{camel(name)}" "{_FIXED[name]}" $rule.thresholds }}}}'
    return _FIXED.get(name) or f"{{{{ $rule.thresholds.{camel(name)} }}}}"


def _recording_group(group: Document) -> Iterator[str]:
    yield f"- name: {group['name']}"
    yield "  rules:"
    for rule in group["rules"]:
        yield from _item(rule)


def _alert_group(group: Document) -> Iterator[str]:
    """A group of alerts, each inside its switch; the group is omitted if all are off."""
    yield f"{{{{- if or {' '.join(_switch(rule['alert']) for rule in group['rules'])} }}}}"
    yield f"- name: {group['name']}"
    yield "  rules:"
    for rule in group["rules"]:
        severity = f"{{{{ $rule.alerts.{rule['alert']}.severity }}}}"
        yield f"  {{{{- if {_switch(rule['alert'])} }}}}"
        yield from _item(rule | {"labels": {"severity": severity}})
        yield "  {{- end }}"
    yield "{{- end }}"


def _item(rule: Document) -> Iterator[str]:
    """A rule as an item of a list."""
    for number, line in enumerate(_entries(rule)):
        yield f"    {line}" if number else f"  - {line}"


def _entries(document: Document) -> Iterator[str]:
    """A map as YAML. Texts are literal blocks, which need no quoting or folding, whatever Helm fills in."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield f"{key}:"
            yield from (f"  {line}" for line in _entries(value))
            yield f"  {_MORE[key]}"
        elif re.fullmatch(r"[\w:]+", value):
            yield f"{key}: {value}"
        else:
            yield f"{key}: |-"
            yield from (f"  {line}" for line in value.splitlines())


def _switch(name: str) -> str:
    return f"$rule.alerts.{name}.enabled"


def _values_of(alert: Alert) -> list[str]:
    """The values of the chart that change an alert."""
    numbers = [camel(number.name) for number in thresholds_of(alert) if number.tunable]
    return sorted([*numbers, *(f"prometheusRule.{name}" for name in places(alert.expr) & set(_ADDRESSES))])


def _retired() -> Iterator[str]:
    """A line for each removed value of 0.1: its name, and what to do instead."""
    return (f"{camel(name)}: {sentence}" for name, sentence in _replacements().items())


def _replacements() -> dict[str, str]:
    recorded = {name for group in recording_rules.GROUPS.values() for rule in group for name in places(rule.expr)}
    sentences = {name: f"Set prometheusRule.{name} instead." for name in _ADDRESSES}
    for name in RETIRED:
        users = " and ".join(f"alerts.{alert.name}.enabled=false" for alert in _users(name))
        sentences[name] = (
            "Set prometheusRule.enabled=false, and load the rules that a checkout writes with your number by "
            f"`python -m tools.grafana rules DIR --set {name}=VALUE`."
            if name in recorded
            else f"Set prometheusRule.{users}, and put rules of your own under prometheusRule.extraGroups."
        )
    return sentences


def _users(name: str) -> Iterable[Alert]:
    return (alert for alert in ALERTS if name in {number.name for number in thresholds_of(alert)})


def _form_of(number: Threshold) -> dict[str, Any]:
    like = f"like {number.value}"
    if re.fullmatch(_DURATION, number.value):
        return _form(f"a Prometheus duration with one unit, {like}", {"type": "string", "pattern": _DURATION})
    return _form(f"a number, {like}", {"type": "number", "minimum": 0})


def _form(sentence: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """A schema with an error message that states the wanted form."""
    return {"if": wanted, "else": {"const": sentence}}


def _closed(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
