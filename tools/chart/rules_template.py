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
from tools.grafana.rule_files import SHARDED, TABLE, Document, alert_groups, recording_groups, thresholds_of
from tools.grafana.rule_numbers import ADDRESSES, EVALUATION, QUERIES, Threshold, fill, places, unless

HEAD = "{{/* Written by `make chart`: change the program in tools/, not this file. */}}\n"
# fmt: off
RETIRED = (
    "moe_window", "saturated_window", "reset_window", "step_score", "step_recent", "step_memory", "stall_steps",
    "read_errors_window", "missed_window", "heartbeat_age", "throttled_for", "recorder_window", "at_once", "pcie_ratio",
)
# fmt: on
"""Thresholds that were values of the chart in 0.1. 0.2 still applies them, with a warning; 0.3 drops them."""
_FLAPS = "IBPulseLinkWentDown replaces IBPulsePortFlapping; set linkDrops instead."
REPLACED = {
    "flap_window": ("15m", _FLAPS),
    "flap_changes": ("4", _FLAPS),
    "rail_missing_memory": ("1h", "Set config.ports.expected-rails to the number of rails that a node should have."),
    "stall_memory": ("30m", "Set stallFor instead; the alert now ends with the job."),
    "step_other_job": ("2", "Set stepSlower instead; another job is now known by its id."),
}
"""Thresholds of 0.1 whose rules are gone: their old values, and what to do. They are accepted throughout 0.2."""
REPLACED_ALERTS = {"IBPulsePortFlapping": "IBPulseLinkWentDown"}
"""Alerts of 0.1 that are gone, and those that replace them."""

_TUNABLE = tuple(number for number in TABLE if number.tunable)
_FIXED = {number.name: number.value for number in TABLE if not number.tunable}
_ADDRESSES = {address.name: address for address in ADDRESSES}
_OWN = {row.name for row in (*QUERIES, *EVALUATION)}
"""Names of values that are not thresholds and that 0.1 did not have."""
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
    """The templates `ibpulse.rules`, the groups of rules, and `ibpulse.retired…`, advice on removed values."""
    begin = [
        '{{- define "ibpulse.rules" -}}',
        "{{- $rule := .Values.prometheusRule }}",
        "{{- $shards := int $rule.shards }}",
        '{{- $jobs := dig "jobs" $rule.jobs $rule.thresholds }}',
        f'{{{{- if eq $jobs "{_ADDRESSES["jobs"].value}" }}}}',
        # monitors take the label from the name
        '{{- $name := include "ibpulse.name" . }}',
        '{{- if not (contains "ibpulse" $name) }}{{ $jobs = printf ".*(ibpulse|%s).*" $name }}{{ end }}',
        "{{- end }}",
    ]
    recordings = [line for group in recording_groups(_fill_for_helm) for line in _recording_group(group)]
    alerts = [line for group in alert_groups(_fill_for_helm) for line in _alert_group(group)]
    thresholds = ['{{- define "ibpulse.retiredThresholds" -}}', *_retired(), "{{- end }}"]
    gone = (f"{old}: Its replacement is prometheusRule.alerts.{new}." for old, new in REPLACED_ALERTS.items())
    names = ['{{- define "ibpulse.retiredAlerts" -}}', *gone, "{{- end }}"]
    return HEAD + "\n".join([*begin, *recordings, *alerts, "{{- end }}", "", *thresholds, "", *names]) + "\n"


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
    gone = {
        old: _closed({}, switch) | {"description": f"Replaced by {new}.", "deprecated": True}
        for old, new in REPLACED_ALERTS.items()
    }
    jobs = f"a regular expression without blanks, quotation marks and backslashes, like {_ADDRESSES['jobs'].value}"
    addresses = {
        "jobs": _form(jobs, _MATCHER_TEXT),
        "address": _form("an address without blanks and quotation marks", {"type": "string", "pattern": _ADDRESS}),
    }
    retired = {name: _form_of(number) for number in TABLE if (name := number.name) in RETIRED}
    retired |= {name: _form_of(Threshold(name, value, "")) for name, (value, _) in REPLACED.items()}
    retired |= {name: addresses.get(name, addresses["address"]) for name in _ADDRESSES}
    sentences = _replacements()
    return {
        **addresses,
        "query": _form("PromQL in one line", {"type": "string", "pattern": r"^[^\n]*$"}),
        "alerts": _closed(
            {alert.name: _closed(switch | ({"otherwise": severity} if alert.otherwise else {})) for alert in ALERTS},
            gone,
        ),
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
    """Template code for a value of the rules; a value under its name in 0.1 takes precedence."""
    if name == "unless":
        return f"{{{{ with $rule.maintenance }}}}{unless('{{ . }}')}{{{{ end }}}}"
    if name in _OWN:
        return f"{{{{ $rule.{camel(name)} }}}}"
    if name == "jobs":
        return "{{ $jobs }}"
    if name in _ADDRESSES:
        return f'{{{{ dig "{name}" $rule.{name} $rule.thresholds | trimSuffix "/" }}}}'
    if name in RETIRED:
        return f'{{{{ dig "{camel(name)}" "{_FIXED[name]}" $rule.thresholds }}}}'
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


def _retired() -> Iterator[str]:
    """A line for each removed value of 0.1: its name, and what to do instead."""
    return (f"{camel(name)}: {sentence}" for name, sentence in _replacements().items())


def _replacements() -> dict[str, str]:
    recorded = {name for group in recording_rules.GROUPS.values() for rule in group for name in places(rule.expr)}
    still = "This version still applies it, 0.3 will not. Set prometheusRule."
    sentences = {name: f"{still}{name} instead." for name in _ADDRESSES}
    for name in RETIRED:
        users = " and ".join(f"alerts.{alert.name}.enabled=false" for alert in _users(name))
        sentences[name] = still + (
            "enabled=false, and load the rules that a checkout writes with your number by "
            f"`python -m tools.grafana rules DIR --set {name}=VALUE`."
            if name in recorded
            else f"{users}, and put rules of your own under prometheusRule.extraGroups."
        )
    return sentences | {name: f"It has no effect. {advice}" for name, (_, advice) in REPLACED.items()}


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
