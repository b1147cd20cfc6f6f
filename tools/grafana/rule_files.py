"""The rules as documents, for the files that Prometheus loads and for the Helm chart.

All placeholders are filled in before a document is built: with values for Prometheus, with template code for
Helm. Writing the YAML afterwards only handles plain text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from ibpulse.base.errors import ConfigError
from tools.grafana import alerts, recording_rules
from tools.grafana.alerts import INSTANCE, KEEP, KEEP_CAUSE, Alert
from tools.grafana.inhibitions import INHIBITIONS, rule_of
from tools.grafana.rule_levels import Recording
from tools.grafana.rule_numbers import ADDRESSES, EVALUATION, QUERIES, Address, Threshold, fill, kind, unless
from tools.grafana.series_names import checked

HEAD = "# Written by `python -m tools.grafana`: change the program, not this file.\n"
RECORDING_FILE = "ibpulse-recording.yaml"
ALERT_FILE = "ibpulse-alerts.yaml"
INHIBITION_FILE = "ibpulse-inhibitions.yaml"
JOB_BOARD = "ibpulse-job"
INHIBITION_HEAD = (
    "# For Alertmanager: add these to `inhibit_rules` of its configuration. Prometheus does not read this file.\n"
)
SHARDED = ("ibpulse-nodes", "ibpulse-days", "ibpulse-rails")
"""The groups that read most, whose rules are divided among shards. Rules of one shard do not need those of another at
the same moment."""

Document = dict[str, Any]
Fill = Callable[[str], str]
"""Fills in the placeholders of one text."""


def thresholds_of(alert: Alert) -> tuple[Threshold, ...]:
    """Every threshold of an alert."""
    return (alert.hold, *((kept_for(alert),) if alert.keep else ()), *alert.numbers)


def kept_for(alert: Alert) -> Threshold:
    """How long an alert that goes on for a while does so."""
    return KEEP_CAUSE if any(alert.name in row.causes for row in INHIBITIONS) else KEEP


# a threshold shared by several rules is listed where it is first used
TABLE: tuple[Threshold, ...] = tuple(
    dict.fromkeys(
        (*(number for alert in alerts.ALERTS for number in thresholds_of(alert)), *recording_rules.THRESHOLDS)
    )
)
"""Every threshold of the rules."""


def resolve(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every threshold, address, query and setting of groups by name; `overrides` replaces default values.

    Raises:
        ConfigError: a name is unknown, or a value is of another kind than its default.
    """
    rows: tuple[Address | Threshold, ...] = (*ADDRESSES, *QUERIES, *EVALUATION, *TABLE)
    values = {row.name: row.value for row in rows}
    faults = []
    for name, value in (overrides or {}).items():
        if name not in values:
            faults.append(f"--set {name}={value}: {name} is unknown; choose one of {', '.join(values)}")
        elif name in {row.name for row in (*EVALUATION, *TABLE)} and kind(value) != kind(values[name]):
            faults.append(
                f'--set {name}={value}: "{value}" is not a {kind(values[name])}; write it like {values[name]}'
            )
    if faults:
        raise ConfigError(faults)
    return values | dict(overrides or {})


def fill_for_prometheus(values: Mapping[str, str]) -> Fill:
    """Fill in the values by name and keep the Prometheus templates."""
    clause = unless(values["maintenance"])

    def value(name: str) -> str:
        if name == "unless":
            return clause
        return values[name].rstrip("/") if name in ("runbooks", "grafana") else values[name]

    return lambda text: fill(text, value, lambda template: f"{{{{ {template} }}}}")


def recording_groups(fill_text: Fill) -> list[Document]:
    """The groups of recording rules, undivided."""
    return [
        _group(
            name,
            recording_rules.INTERVALS.get(name, "<interval>"),
            [_record(rule, fill_text) for rule in rules],
            fill_text,
        )
        for name, rules in recording_rules.GROUPS.items()
    ]


def alert_groups(fill_text: Fill) -> list[Document]:
    """The groups of alerts, undivided."""
    return [
        _group(
            name,
            "<alert_interval>",
            [rule for alert in group for rule in _alert(alert, alerts.COMPONENTS[name], fill_text)],
            fill_text,
        )
        for name, group in alerts.GROUPS.items()
    ]


def divided(groups: Sequence[Document], shards: int, limit: int = 0) -> list[Document]:
    """The groups as Prometheus evaluates them: large ones divided among shards, each with the limit if there is one."""
    found = []
    for group in groups:
        parts = shards if group["name"] in SHARDED else 1
        for part in range(parts):
            name = f"{group['name']}-{part + 1}" if parts > 1 else group["name"]
            head = {"name": name, "interval": group["interval"]} | ({"limit": limit} if limit else {})
            found.append({**head, "rules": group["rules"][part::parts]})
    return [group for group in found if group["rules"]]


def rule_files(values: Mapping[str, str]) -> dict[str, str]:
    """The text of each rule file by its name."""
    fill_text, shards, limit = fill_for_prometheus(values), int(values["shards"]), int(values["limit"])

    def groups(of: Callable[[Fill], list[Document]]) -> str:
        return HEAD + write_yaml({"groups": divided(of(fill_text), shards, limit)})

    inhibitions = {"inhibit_rules": [rule_of(row) for row in INHIBITIONS]}
    return {
        RECORDING_FILE: groups(recording_groups),
        ALERT_FILE: groups(alert_groups),
        INHIBITION_FILE: HEAD + INHIBITION_HEAD + write_yaml(inhibitions),
    }


def _group(name: str, interval: str, rules: list[Document], fill_text: Fill) -> Document:
    return {"name": name, "interval": fill_text(interval), "rules": rules}


def _record(rule: Recording, fill_text: Fill) -> Document:
    return {"record": rule.record, "expr": fill_text(checked(rule.expr))}


def _alert(alert: Alert, component: str, fill_text: Fill) -> list[Document]:
    """The rule of an alert; the two rules of one whose severity depends on something."""
    if not alert.when:
        return [_rule(alert, alert.severity, "", component, fill_text)]
    return [
        _rule(alert, alert.severity, f"and {alert.when}", component, fill_text),
        _rule(alert, alert.otherwise, f"unless {alert.when}", component, fill_text),
    ]


def _rule(alert: Alert, severity: str, condition: str, component: str, fill_text: Fill) -> Document:
    expr = checked(alert.expr)
    if condition or alert.of_node:
        # `or` binds less tightly than what follows
        expr = f"(\n{textwrap.indent(expr, '  ')}\n)"
    expr += f"\n{checked(condition)}" * bool(condition) + "<unless>" * alert.of_node
    chosen = "?var-cluster=<$labels.cluster>"
    # an alert about the fleet may have no scrape job, one about a job no instance
    chosen += "&var-job=<$labels.job>" * ((alert.board == JOB_BOARD or alert.of_node) and not alert.pushed)
    chosen += "&var-job_id=<$labels.job_id>" * (alert.board == JOB_BOARD)
    chosen += f"&var-instance={INSTANCE}" * alert.of_node
    time = fill_text(f"<{kept_for(alert).name}>")
    # some rulers do not know the field
    keep = {"keep_firing_for": time} if alert.keep and time != "0s" else {}
    return {
        "alert": alert.name,
        "expr": fill_text(expr),
        "for": fill_text(f"<{alert.hold.name}>"),
        **keep,
        # Alertmanager merges alerts whose labels are the same
        "labels": {"severity": severity} | ({} if alert.pushed else {"component": component}),
        "annotations": {
            "summary": fill_text(alert.summary),
            "description": fill_text(checked(alert.description)),
            "runbook_url": fill_text(f"<runbooks>/{alert.name}.md"),
            "dashboard_url": fill_text(f"<grafana>/d/{alert.board}{chosen}"),
        },
    }


def write_yaml(document: Document) -> str:
    """A document as YAML, with multi-line texts as blocks."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
