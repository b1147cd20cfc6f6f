"""The numbers in the rules, and how expressions and texts refer to them.

Placeholders are in angle brackets. `<rail_idle_for>` is a threshold or an address, filled in when the
rules are written. `<$labels.device>` and `<$value | humanize>` are Prometheus templates, filled in when an alert fires.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_PLACE = re.compile(r"<(?:(?P<template>else|end|(?:[$.]|(?:if|with|range) )[^<>]*)|(?P<name>[a-z_]+))>")
_DURATION = re.compile(r"[0-9]+(ms|s|m|h|d)")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_UNLESS = " unless on (cluster, node) ({})"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number in the rules: a plain number, or a duration in Prometheus notation, such as `5m`.

    `reason` explains the value. Thresholds that operators tune are values of the Helm chart; the others can only be
    set with `python -m tools.grafana rules --set NAME=VALUE`.
    """

    name: str
    value: str
    reason: str
    tunable: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """An address or a pattern in the rules that depends on the operator's installation."""

    name: str
    value: str
    reason: str


def fixed(name: str, value: str, reason: str) -> Threshold:
    """A number that no operator needs to tune."""
    return Threshold(name, value, reason, tunable=False)


ADDRESSES = (
    Address(
        "jobs",
        ".*ibpulse.*",
        "The job label is `ibpulse` in plain Prometheus and `namespace/ibpulse` from a PodMonitor; this matches both.",
    ),
    Address(
        "runbooks",
        "/runbooks",
        "Address of the runbooks, for links that work in notifications: those of a gateway, such as "
        "`https://ibpulse.example.com/runbooks`, or those of a release; the default works from within a gateway.",
    ),
    Address(
        "grafana",
        "/",
        "Address of Grafana, for links that work in notifications; with the default, they work from within Grafana.",
    ),
)
QUERIES = (
    Address(
        "maintenance",
        "",
        "PromQL for the nodes in maintenance, by their labels `cluster` and `node`; no alert about one of them fires. "
        "Kubernetes with kube-state-metrics: `kube_node_spec_unschedulable == 1`.",
    ),
    Address(
        "expected_nodes",
        'kube_node_status_capacity{resource=~"nvidia_com_gpu|amd_com_gpu"} > 0',
        "PromQL for the nodes that should have an exporter, by their labels `cluster` and `node`. The default needs "
        "kube-state-metrics; where a query finds nothing, only exporters that Prometheus knows are counted.",
    ),
)
"""Queries about nodes that the operator's installation answers."""
EVALUATION = (
    Threshold("interval", "1m", "Interval of the recording rules, except those of a day, which need five minutes."),
    Threshold("alert_interval", "15s", "Interval of the alerts; what kills a job is known within a minute."),
    Threshold(
        "limit", "0", "Most series or alerts that one rule may produce; 0 is no limit. A rule above it produces none."
    ),
    Threshold(
        "shards", "1", "Groups among which the rules about nodes are divided; Prometheus evaluates groups in parallel."
    ),
)
"""How the groups of rules are evaluated."""


def fill(text: str, value: Callable[[str], str], template: Callable[[str], str]) -> str:
    """The text with every placeholder filled in.

    Args:
        value: returns the text for the name of a threshold or an address.
        template: returns the text for a part of a Prometheus template, such as `$labels.device`, `if $value` or `end`.
    """
    return _PLACE.sub(lambda place: value(place["name"]) if place["name"] else template(place["template"]), text)


def places(text: str) -> frozenset[str]:
    """The names of the thresholds and addresses that the text refers to."""
    return frozenset(place["name"] for place in _PLACE.finditer(text) if place["name"])


def unless(maintenance: str) -> str:
    """The clause that silences a rule for nodes in maintenance; empty without a query for them."""
    return _UNLESS.format(maintenance) if maintenance else ""


def kind(value: str) -> str:
    """`duration`, `number` or `pattern`, judged by the notation of the value."""
    if _DURATION.fullmatch(value):
        return "duration"
    return "number" if _NUMBER.fullmatch(value) else "pattern"
