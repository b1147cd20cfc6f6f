"""The rules as parts of the Helm chart: a template, its values, and their schema.

Every alert has a switch and a severity, and every threshold that operators tune is a value. With the default values,
the template renders to the same rules as the files that Prometheus loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tools.grafana.alerts import ALERTS, Alert
from tools.grafana.rule_files import SHARDED, TABLE, Document, alert_groups, recording_groups, thresholds_of
from tools.grafana.rule_numbers import ADDRESSES, EVALUATION, QUERIES, Threshold, fill, places, unless

HEAD = "{{/* Written by `make chart`: change the program in tools/, not this file. */}}\n"
_TUNABLE = tuple(number for number in TABLE if number.tunable)
_FIXED = {number.name: number.value for number in TABLE if not number.tunable}
_ADDRESSES = {address.name: address for address in ADDRESSES}
_OWN = {row.name for row in (*QUERIES, *EVALUATION)}
"""Names of values that are not thresholds."""
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
    """The template `ibpulse.rules`: the groups of rules."""
    begin = [
        '{{- define "ibpulse.rules" -}}',
        "{{- $rule := .Values.prometheusRule }}",
        "{{- $shards := int $rule.shards }}",
        "{{- $jobs := $rule.jobs }}",
        f'{{{{- if eq $jobs "{_ADDRESSES["jobs"].value}" }}}}',
        # monitors take the label from the name
        '{{- $name := include "ibpulse.name" . }}',
        '{{- if not (contains "ibpulse" $name) }}{{ $jobs = printf ".*(ibpulse|%s).*" $name }}{{ end }}',
        "{{- end }}",
    ]
    recordings = [line for group in recording_groups(_fill_for_helm) for line in _recording_group(group)]
    alerts = [line for group in alert_groups(_fill_for_helm) for line in _alert_group(group)]
    return HEAD + "\n".join([*begin, *recordings, *alerts, "{{- end }}"]) + "\n"


def rules_values() -> str:
    """The values of `rules_template` as YAML, each under the comment that documents it."""
    lines = []
    for row in (*ADDRESSES, *QUERIES, *EVALUATION):
        # a comment line may not contain what YAML would take for a document's end, and plain text needs quotes
        value = f"'{row.value}'" if row in QUERIES else row.value
        lines += [f"# -- {row.reason}", f"{camel(row.name)}: {value}"]
    lines += ["# A switch and a severity for each alert."]
    lines += [
        "# `otherwise` is its severity without a job on the node, or without evidence that it costs something.",
        "alerts:",
    ]
    for alert in ALERTS:
        names = ", ".join(_values_of(alert))
        lines.append(f"  # -- {alert.summary}" + (f" Thresholds: {names}." if names else ""))
        other = f", otherwise: {alert.otherwise}" * bool(alert.otherwise)
        lines.append(f"  {alert.name}: {{enabled: true, severity: {alert.severity}{other}}}")
    lines += ["# Thresholds of the rules.", "thresholds:"]
    for number in _TUNABLE:
        lines += [f"  # -- {number.reason}", f"  {camel(number.name)}: {number.value}"]
    return "\n".join(lines) + "\n"


def rules_schemas() -> dict[str, dict[str, Any]]:
    """JSON schemas of the values that `rules_values` writes, by the names of their definitions."""
    severity = {"type": "string", "enum": ["critical", "warning", "info"]}
    switch = {"enabled": {"type": "boolean"}, "severity": severity}
    jobs = f"a regular expression without blanks, quotation marks and backslashes, like {_ADDRESSES['jobs'].value}"
    addresses = {
        "jobs": _form(jobs, _MATCHER_TEXT),
        "address": _form("an address without blanks and quotation marks", {"type": "string", "pattern": _ADDRESS}),
    }
    return {
        **addresses,
        "query": _form("PromQL in one line", {"type": "string", "pattern": r"^[^\n]*$"}),
        "alerts": _closed(
            {alert.name: _closed(switch | ({"otherwise": severity} if alert.otherwise else {})) for alert in ALERTS}
        ),
        "thresholds": _closed({camel(number.name): _form_of(number) for number in _TUNABLE}),
    }


def camel(name: str) -> str:
    """The name as chart values are named: `moeFor` for `moe_for`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _fill_for_helm(text: str) -> str:
    """The text of a rule as template code: values for its placeholders; Prometheus templates are kept."""
    return fill(text, _value, lambda template: f"{{{{`{{{{ {template} }}}}`}}}}")


def _value(name: str) -> str:
    """Template code for a value of the rules."""
    if name == "unless":
        return f"{{{{ with $rule.maintenance }}}}{unless('{{ . }}')}{{{{ end }}}}"
    if name in _OWN:
        return f"{{{{ $rule.{camel(name)} }}}}"
    if name == "jobs":
        return "{{ $jobs }}"
    if name in _ADDRESSES:
        return f'{{{{ $rule.{name} | trimSuffix "/" }}}}'
    return _FIXED.get(name) or f"{{{{ $rule.thresholds.{camel(name)} }}}}"


def _recording_group(group: Document) -> Iterator[str]:
    sharded = group["name"] in SHARDED
    rules = group["rules"]
    loop = f"{{{{- range $shard := until (min $shards {len(rules)} | int) }}}}"
    head = list(_head(group, sharded))
    yield from [loop, *head[1:]] if sharded else head
    for number, rule in enumerate(rules):
        yield from _if(f"eq (mod {number} $shards) $shard" if sharded else "", _item(rule))
    if sharded:
        yield "{{- end }}"


def _alert_group(group: Document) -> Iterator[str]:
    """A group of alerts, each inside its switch; a group without any is omitted."""
    sharded = group["name"] in SHARDED
    tests = [
        f"and (eq (mod {number} $shards) $shard) {_switch(rule['alert'])}" if sharded else _switch(rule["alert"])
        for number, rule in enumerate(group["rules"])
    ]
    head = list(_head(group, sharded))
    if sharded:
        yield head.pop(0)
    yield f"{{{{- if or {' '.join(f'({test})' for test in tests)} }}}}"
    yield from head
    known: set[str] = set()
    for test, rule in zip(tests, group["rules"], strict=True):
        key = "otherwise" if rule["alert"] in known else "severity"
        known.add(rule["alert"])
        severity = f"{{{{ $rule.alerts.{rule['alert']}.{key} }}}}"
        yield from _if(test, _item(rule | {"labels": rule["labels"] | {"severity": severity}}))
    yield "{{- end }}"
    if sharded:
        yield "{{- end }}"


def _head(group: Document, sharded: bool) -> Iterator[str]:
    """The lines of a group above its rules; for a sharded one, the beginning of the loop comes first."""
    if sharded:
        yield "{{- range $shard := until $shards }}"
    number = "{{ if gt $shards 1 }}-{{ add1 $shard }}{{ end }}" * sharded
    yield f"- name: {group['name']}{number}"
    yield f"  interval: {group['interval']}"
    yield "  {{- with int $rule.limit }}"
    yield "  limit: {{ . }}"
    yield "  {{- end }}"
    yield "  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}"
    yield "  rules:"


def _if(test: str, lines: Iterable[str]) -> Iterator[str]:
    if not test:
        yield from lines
        return
    yield f"  {{{{- if {test} }}}}"
    yield from lines
    yield "  {{- end }}"


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


def _form_of(number: Threshold) -> dict[str, Any]:
    like = f"like {number.value}"
    if re.fullmatch(_DURATION, number.value):
        return _form(f"a Prometheus duration with one unit, {like}", {"type": "string", "pattern": _DURATION})
    return _form(f"a number, {like}", {"type": "number", "minimum": 0})


def _form(sentence: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """A schema with an error message that states the wanted form."""
    return {"if": wanted, "else": {"const": sentence}}


def _closed(members: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(members),
        "properties": dict(members),
    }
