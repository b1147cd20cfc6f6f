"""The numbers of the rules, and the one way in which expressions and texts refer to them.

Everything that is filled in stands in angle brackets. `<rail_idle_for>` is a threshold or an address, known when the
rules are written. `<$labels.device>` and `<$value | humanize>` are templates of Prometheus, known when an alert fires.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_PLACE = re.compile(r"<(?:(?P<name>[a-z_]+)|(?P<template>\$[^<>]+))>")
_DURATION = re.compile(r"[0-9]+(ms|s|m|h|d)")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number of the rules: a plain number, or a duration as Prometheus writes it, such as `5m`.

    `reason` says why it has this value. Those that operators tune are values of the Helm chart; the others can be set
    by `python -m tools.grafana rules --set NAME=VALUE` only.
    """

    name: str
    value: str
    reason: str
    tunable: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """Where something of the operator's is: a text that rules contain and that is no number."""

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
        "The job label is `ibpulse` in plain Prometheus and `namespace/ibpulse` from a PodMonitor; both are found.",
    ),
    Address("runbooks", "docs/runbooks", "Address of the runbooks; set it to where you publish them."),
    Address("grafana", "/", "Address of Grafana; with the default, the links work from within Grafana."),
)


def fill(text: str, value: Callable[[str], str], template: Callable[[str], str]) -> str:
    """The text with every place filled in.

    Args:
        value: gives what stands for the name of a threshold or an address.
        template: gives what stands for a template of Prometheus, such as `$labels.device`.
    """
    return _PLACE.sub(lambda place: value(place["name"]) if place["name"] else template(place["template"]), text)


def places(text: str) -> frozenset[str]:
    """The names of the thresholds and addresses that the text refers to."""
    return frozenset(place["name"] for place in _PLACE.finditer(text) if place["name"])


def kind(value: str) -> str:
    """`duration`, `number` or `pattern`, by how the value is written."""
    if _DURATION.fullmatch(value):
        return "duration"
    return "number" if _NUMBER.fullmatch(value) else "pattern"
